// Every page in Chromium, driven by Playwright: narrow and wide, light and dark, each language, without JavaScript,
// with what axe finds, what is wider than the window, what the browser complains of, and a picture of each.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SHAPES = [360, 1_400].flatMap((width) => ["light", "dark"].map((scheme) => ({ width, scheme })));
/** The operator's views: path, what tells that it is there, the name of its picture. */
const VIEWS = [
  ["", "h2#busy-connections", "overview"],
  ["connections", "tbody tr", "connections"],
  ["connections/*", "dl.facts", "connection"],
  ["accounts", "tbody tr", "accounts"],
  ["accounts/tanaka", "tbody tr", "account"],
  ["accounts/", "form", "new-account"],
  ["peers", "h2#invite", "peers"],
  ["alerts", "h2#trial", "alerts"],
  ["doctor", "main li", "doctor"],
  ["reports", "h1", "reports"],
  ["audit", "tbody tr", "audit"],
  ["configuration", "tbody tr", "configuration"],
];
const PAGES = [
  ["/", "own"],
  ["/?password", "password"],
];

/** Starts Debian's Chromium. */
export const launch = (args = []) =>
  chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-quic", ...args] });

/** What is wrong with a page now. */
async function faults(page, what) {
  const found = await page.evaluate(
    `(async () => { ${AXE}; return (await axe.run()).violations.map(v => v.id + ": " + v.nodes.map(n => n.html).join(" ")); })()`,
  );
  const state = await page.evaluate(() => ({ wide: document.documentElement.scrollWidth - innerWidth, hit: window.hit ?? 0 }));
  if (state.wide > 0) found.push(`${state.wide} px wider than the window`);
  if (state.hit) found.push("markup of a name came to life");
  return found.map((text) => `${what}: ${text}`);
}

/** Logs in with the token, as an operator does. */
export async function logIn(page, site, token) {
  await page.goto(site);
  await page.getByLabel(/^Token/).fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
}

/** Looks at all pages of a relay; the faults and how many were looked at. Pictures go to `folder`. */
export async function look({ management, clients, token, folder, connection }) {
  mkdirSync(folder, { recursive: true });
  const browser = await launch();
  const [problems, complaints] = [[], []];
  let looked = 0;
  const open = async (width, scheme, locale, more = {}) => {
    const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme: scheme, locale, ...more });
    const page = await context.newPage();
    page.on("console", (said) => ["error", "warning"].includes(said.type()) && complaints.push(said.text()));
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("request", (request) => {
      const { host } = new URL(request.url());
      if (![management, clients].includes(host)) complaints.push(`a request to ${host}`);
    });
    return [context, page];
  };
  for (const { width, scheme } of SHAPES) {
    console.log(`look: ${width} px, ${scheme}`);
    const [context, page] = await open(width, scheme, "en-GB");
    await logIn(page, `http://${management}/`, token);
    await page.locator(".plot canvas").first().waitFor();
    for (const [view, ready, name] of VIEWS) {
      await page.evaluate((view) => (location.hash = `#/${view}`), view.replace("*", connection));
      await page.locator(ready).first().waitFor();
      await page.waitForTimeout(1_500);
      const what = `${name}-${width}-${scheme}`;
      problems.push(...(await faults(page, what)));
      await page.screenshot({ path: join(folder, `${what}.png`), fullPage: width > 1_000 });
      looked += 1;
    }
    await context.close();
    for (const locale of ["en-GB", "ja-JP"]) {
      const [context, page] = await open(width, scheme, locale);
      for (const [path, name] of PAGES) {
        await page.goto(`http://${clients}${path}`);
        const what = `${name}-${locale.slice(0, 2)}-${width}-${scheme}`;
        problems.push(...(await faults(page, what)));
        await page.screenshot({ path: join(folder, `${what}.png`), fullPage: true });
        looked += 1;
      }
      await context.close();
    }
  }
  // without JavaScript the account's page says the same, and the operator's what to do
  const [context, page] = await open(360, "light", "en-GB", { javaScriptEnabled: false });
  await page.goto(`http://${clients}/`);
  const own = await page.locator("body").innerText();
  if (!/Used .* of .*/.test(own) || !/Left /.test(own)) problems.push(`without JavaScript: ${own}`);
  await page.screenshot({ path: join(folder, "own-without-javascript.png"), fullPage: true });
  await page.goto(`http://${management}/`);
  const operators = await page.locator("body").innerText();
  if (!operators.includes("needs JavaScript")) problems.push(`without JavaScript: ${operators}`);
  looked += 2;
  await context.close();
  await browser.close();
  return { looked, problems, complaints };
}

/** Puts pictures side by side into one. */
export async function sheet(folder, names, width, file) {
  const browser = await launch();
  const page = await browser.newPage({ viewport: { width: names.length * (width + 16) + 16, height: 400 } });
  const shown = names.map((name) => {
    const image = readFileSync(join(folder, `${name}.png`)).toString("base64");
    return `<img width="${width}" src="data:image/png;base64,${image}">`;
  });
  await page.setContent(`<style>body{margin:16px;display:flex;gap:16px;align-items:flex-start;background:#888}</style>${shown.join("")}`);
  await page.locator("img").last().evaluate((image) => image.decode());
  await page.screenshot({ path: file, fullPage: true });
  await browser.close();
}
