// The pages of two relays in Chromium, and what they cost over a long link. Root, for the links; half an hour.
//
//   node run.mjs [look] [grade] [paint] [crowd] [clock] --ekiden PROGRAM --results FOLDER [--pictures FOLDER] [--book FOLDER]
//
// look: every page by Playwright and axe. grade: Lighthouse. paint: first paint over 600 ms, 2 Mbit/s and 1 % loss.
// crowd: 9,300 connections of 5,000 accounts. clock: the history while the clock of the day jumps (libfaketime).
// `--book`: where the book's pictures are renewed. Exits with 1 where a page has a fault.
import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { launch, logIn, look, sheet } from "./look.mjs";
import { clock, crowd } from "./extremes.mjs";
import { grade, machine, paint } from "./measure.mjs";
import { HOSTILE, Relay, addAccounts, call, eventually, freePort, startOrigin, through, write } from "./relays.mjs";

const LINE = ["--delay", "300ms", "--rate", "20Mbit/s", "--up", "rate=2Mbit/s", "--loss", "1%"];
const SLOW = ["--delay", "300ms", "--rate", "2Mbit/s", "--loss", "1%"];
const REPEATS = 9;
const CLIENTS = "127.0.0.1:3128";
const MANAGEMENT = "127.0.0.1:9128";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { ekiden: { type: "string" }, results: { type: "string" }, pictures: { type: "string" }, book: { type: "string" }, home: { type: "string" }, invitation: { type: "string" }, origin: { type: "string" } },
});
const parts = positionals.length > 0 ? positionals : ["look", "grade", "paint", "crowd", "clock"];
const ekiden = resolve(options.ekiden);
const kept = (name, document) => {
  mkdirSync(options.results, { recursive: true });
  const command = "make dashboard";
  write(join(options.results, `${name}.json`), { command, ...document, machine: machine(os) });
};

/** Runs a part of this program at the near end of a link; whether it went well. */
const atTheNearEnd = (link, args) =>
  new Promise((done) => {
    const self = [process.execPath, fileURLToPath(import.meta.url)];
    const common = ["--ekiden", ekiden, "--results", options.results, "--pictures", options.pictures ?? "pictures"];
    const child = spawn(ekiden, ["link", ...link, "--", ...self, ...args, ...common], { stdio: "inherit" });
    child.once("exit", (code) => done(code === 0));
  });

/** The relay before the link, which invites the one behind it. */
async function startShore(home) {
  const shore = new Relay(ekiden, join(home, "shore"));
  const tunnel = await freePort();
  const rates = ["--send", "20 Mbit/s", "--receive", "2 Mbit/s"];
  const clients = `127.0.0.1:${await freePort()}`;
  const said = shore.run(["init", "shore", "--address", `far:${tunnel}`, "--listen", `0.0.0.0:${tunnel}`, "--name", "ship", "--clients", clients, ...rates, "--yes"]);
  const more = "[access]\nallow_destinations = [\"100.64.0.0/10\"]\n[management]\nlisten = \"off\"\n";
  const made = readFileSync(shore.config, "utf8");
  writeFileSync(shore.config, `${made}\n${more}`);
  shore.serve();
  await eventually("shore", () => shore.log().includes("listening"));
  const origin = await startOrigin("0.0.0.0");
  return [said.match(/ekiden1-\S+/)[0], origin.address().port];
}

/** The relay behind the link, with accounts, reports and traffic; the number of a connection. */
async function startShip(home, invitation, origin) {
  const ship = new Relay(ekiden, join(home, "ship"));
  ship.run(["init", "far", invitation, "--listen", CLIENTS, "--from", "127.0.0.0/8", "--yes"]);
  const reports = join(home, "reports");
  const report = join(reports, "satellite/sim");
  mkdirSync(report, { recursive: true });
  writeFileSync(join(report, "report.html"), "<p>");
  write(join(report, "summary.json"), { version: "0.1.0", claims: [{ text: HOSTILE, holds: true, evidence: "1.0" }] });
  const more = `[access]\nallow_destinations = ["100.64.0.0/10"]\n[accounts]\nenabled = true\n[management]\nlisten = "${MANAGEMENT}"\nreports = "${reports}"\n[alerts]\nwebhook = "http://127.0.0.1:9/"\n`;
  const made = readFileSync(ship.config, "utf8");
  writeFileSync(ship.config, `${made}\n${more}`);
  ship.serve();
  await eventually("ship", async () => (await fetch(`http://${MANAGEMENT}/readyz`)).ok);
  const token = ship.token();
  await addAccounts(MANAGEMENT, token);
  await eventually("the tunnel", async () => (await call(MANAGEMENT, token, "GET", "/api/v1/status")).tunnels?.length > 0);
  const [host, port] = CLIENTS.split(":");
  const to = [process.env.EKIDEN_FAR, Number(origin)];
  for (let nth = 1; nth <= 3; nth += 1) through({ host, port }, "127.0.1.1", to, "/endless");
  through({ host, port }, "127.0.0.1", to, "/endless");
  for (let nth = 1; nth <= 24; nth += 1) through({ host, port }, `127.0.1.${nth}`, to, "/page");
  await new Promise((done) => setTimeout(done, 15_000));
  const { connections } = await call(MANAGEMENT, token, "GET", "/api/v1/status");
  if (connections.length < 28) throw new Error(`${connections.length} of 28 connections`);
  return [ship, token, connections.find((one) => one.account === "tanaka")?.id ?? connections[0].id];
}

async function shipPart(name) {
  const [ship, token, connection] = await startShip(options.home, options.invitation, options.origin);
  const relay = { management: MANAGEMENT, clients: CLIENTS, token, connection, folder: resolve(options.pictures) };
  let fine = true;
  if (name === "look") {
    const { looked, problems, complaints } = await look(relay);
    kept("look", { browser: "Chromium by Playwright, axe-core", pages: looked, problems, complaints });
    console.log(`look: ${looked} pages, ${problems.length} faults, ${complaints.length} complaints of the browser`);
    [...problems, ...complaints].forEach((text) => console.log(`  ${text}`));
    fine = problems.length + complaints.length === 0;
  } else {
    const rows = await grade(relay);
    kept("grade", { browser: "Lighthouse", rows });
    fine = rows.every((row) => row.performance >= 95 && row.accessibility === 100 && row["best-practices"] >= 95);
  }
  await ship.end();
  return fine;
}

/** A relay at the far end of the slow link, and a browser at the near end. */
async function farPart(home) {
  const relay = new Relay(ekiden, join(home, "far"));
  const config = `listen = ["0.0.0.0:3128"]\n[[rule]]\nfrom = ["0.0.0.0/0"]\naction = "allow"\n[accounts]\nenabled = true\n[management]\nlisten = "0.0.0.0:9128"\ncleartext = true\n`;
  writeFileSync(relay.config, config);
  relay.serve();
  await eventually("the relay", async () => (await fetch(`http://${MANAGEMENT}/readyz`)).ok);
  await addAccounts(MANAGEMENT, relay.token());
  const fine = await atTheNearEnd(SLOW, ["near-paint", "--home", home, "--origin", relay.token()]);
  await relay.end();
  return fine;
}

async function nearPart(token) {
  const far = process.env.EKIDEN_FAR;
  const rows = [
    await paint(`http://${far}:9128/`, REPEATS, "button.primary:not([disabled])"),
    await paint(`http://${far}:3128/`, REPEATS, "body"),
    await paint(`http://${far}:3128/?password`, REPEATS, "h1"),
  ];
  const browser = await launch();
  const page = await browser.newPage();
  const begin = Date.now();
  await logIn(page, `http://${far}:9128/`, token);
  await page.locator(".plot canvas").first().waitFor();
  const charts = Date.now() - begin;
  await browser.close();
  kept("paint", { link: SLOW.join(" "), browser: "Chromium, fresh for each", repeats: REPEATS, rows, from_nothing_to_charts_ms: charts });
  for (const row of rows) console.log(`${row.url}: first paint ${Math.round(row.first_paint_ms)} ms, usable ${row.usable_ms} ms, ${row.bytes} bytes`);
  console.log(`from an empty browser to the charts: ${charts} ms`);
  return rows.every((row) => row.first_paint_ms <= 1_400);
}

async function extreme(name, folder) {
  const result = await { crowd, clock }[name](ekiden, folder);
  kept(name, result);
  const faults = result.faults ?? result.complaints;
  faults.forEach((text) => console.log(`  ${name}: ${text}`));
  return faults.length === 0;
}

// so that relays end with this program
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
const home = options.home ?? mkdtempSync(join(os.tmpdir(), "ekiden-dashboard-"));
let fine = true;
for (const part of parts) {
  if (part === "look" || part === "grade") {
    const [invitation, origin] = await startShore(join(home, part));
    fine = (await atTheNearEnd(LINE, [`ship-${part}`, "--home", join(home, part), "--invitation", invitation, "--origin", `${origin}`])) && fine;
  } else if (part === "paint") fine = (await farPart(home)) && fine;
  else if (part === "near-paint") fine = await nearPart(options.origin);
  else if (part === "crowd" || part === "clock") fine = (await extreme(part, join(home, part))) && fine;
  else if (part.startsWith("ship-")) fine = await shipPart(part.slice(5));
  else throw new Error(`unknown part ${part}: it is look, grade, paint, crowd or clock`);
}
if (parts.includes("look") && fine) {
  const from = resolve(options.pictures);
  for (const [width, scheme] of [[360, "dark"], [1_400, "light"]]) {
    const shown = ["overview", "connection", "account", "peers", "alerts", "doctor"].map((name) => `${name}-${width}-${scheme}`);
    await sheet(from, shown, width === 360 ? 270 : 560, join(from, `sheet-${width}-${scheme}.png`));
  }
  const own = ["en", "ja"].flatMap((language) => ["own", "password"].map((name) => `${name}-${language}-360-`));
  await sheet(from, ["light", "dark"].flatMap((scheme) => own.map((name) => name + scheme)), 270, join(from, "sheet-own.png"));
  if (options.book) {
    copyFileSync(join(from, "sheet-360-dark.png"), join(options.book, "dashboard-phone.png"));
    copyFileSync(join(from, "sheet-own.png"), join(options.book, "own-pages.png"));
  }
}
if (!options.home) rmSync(home, { recursive: true, force: true });
process.exit(fine ? 0 : 1);
