// Lighthouse's grades, and the first paint over a link.
import { readFileSync } from "node:fs";
import lighthouse, { desktopConfig } from "lighthouse";
import { chromium } from "playwright-core";
import { freePort } from "./relays.mjs";
import { launch, logIn } from "./look.mjs";

export const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Grades of 0–100 for each page, as a phone and as a desk sees them; the operator's page with and without a session. */
export async function grade({ management, clients, token }) {
  const rows = [];
  for (const form of (process.env.FORMS ?? "phone,desk").split(",")) {
    const port = await freePort();
    const browser = await launch([`--remote-debugging-port=${port}`]);
    const run = async (name, url) => {
      if (process.env.ONLY && !process.env.ONLY.split(",").includes(name)) return;
      // Lighthouse's pages use the browser's first context, which Playwright reaches by this port alone
      const flags = { port, output: "json", logLevel: "error", disableStorageReset: true, onlyCategories: ["performance", "accessibility", "best-practices"] };
      const { lhr } = await lighthouse(url, flags, form === "desk" ? desktopConfig : undefined);
      const row = { page: name, form };
      for (const [category, { score }] of Object.entries(lhr.categories)) row[category] = Math.round(score * 100);
      row.first_paint_ms = Math.round(lhr.audits["first-contentful-paint"].numericValue);
      row.below = Object.values(lhr.audits)
        .filter((audit) => audit.score !== null && audit.score < 0.9 && ["binary", "numeric", "metricSavings"].includes(audit.scoreDisplayMode))
        .map((audit) => `${audit.id}: ${audit.displayValue ?? audit.score}`);
      rows.push(row);
      for (const id of ["mainthread-work-breakdown","bootup-time","long-tasks","network-requests","largest-contentful-paint-element"]) {
        const d = lhr.audits[id]?.details; if (!d) continue;
        console.log(id, JSON.stringify(d.items.slice(0,14).map(i => Object.fromEntries(Object.entries(i).filter(([k])=>["groupLabel","duration","url","total","scripting","startTime","statusCode","transferSize","networkEndTime","networkRequestTime"].includes(k))))));
      }
      const m = lhr.audits.metrics?.details?.items?.[0]; console.log(JSON.stringify(m));
      (await import("node:fs")).writeFileSync(`/tmp/lh-${name}-${form}.json`, JSON.stringify(lhr));
      const below = row.below.length > 0 ? `; ${row.below.join(", ")}` : "";
      console.log(`${name}, ${form}: performance ${row.performance}, accessibility ${row.accessibility}, best practices ${row["best-practices"]}${below}`);
    };
    // the browser ends with its last page
    const reached = await chromium.connectOverCDP(`http://127.0.0.1:${port}`);
    const page = await reached.contexts()[0].newPage();
    await run("log-in", `http://${management}/`);
    await logIn(page, `http://${management}/`, token);
    for (const [name, hash] of [["overview", ""], ["connections", "#/connections"], ["accounts", "#/accounts"]]) {
      await run(name, `http://${management}/${hash}`);
    }
    await page.goto("about:blank");
    await run("own", `http://${clients}/`);
    await run("password", `http://${clients}/?password`);
    await reached.close();
    await browser.close();
  }
  return rows;
}

/** First paint and the time until the page may be used, each with a fresh browser, in milliseconds. */
export async function paint(url, repeats, usable) {
  const [first, used, bytes] = [[], [], []];
  for (let nth = 0; nth < repeats; nth += 1) {
    const browser = await launch();
    const page = await browser.newPage({ viewport: { width: 360, height: 800 } });
    let received = 0;
    const session = await page.context().newCDPSession(page);
    await session.send("Network.enable");
    session.on("Network.loadingFinished", ({ encodedDataLength }) => (received += encodedDataLength));
    const begin = Date.now();
    await page.goto(url);
    await page.locator(usable).first().waitFor();
    used.push(Date.now() - begin);
    const painted = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
    first.push(await page.waitForFunction(painted).then((value) => value.jsonValue()));
    await page.waitForLoadState("load");
    bytes.push(received);
    await browser.close();
  }
  const round = (values) => values.map(Math.round);
  return { url: new URL(url).pathname + new URL(url).search, first_paint_ms: Math.round(median(first)), usable_ms: median(used), bytes: median(bytes), all_first_paint_ms: round(first), all_usable_ms: used };
}

/** What this machine is. */
export function machine(os) {
  const model = readFileSync("/proc/cpuinfo", "utf8").match(/model name\s*: (.*)/)?.[1];
  return { processors: os.cpus().length, model, kernel: os.release() };
}
