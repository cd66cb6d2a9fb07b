// The operator's page at its extremes: ten thousand rows, and a clock of the day that jumps.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { launch, logIn } from "./look.mjs";
import { Relay, call, eventually, through } from "./relays.mjs";

const MANAGEMENT = "127.0.0.1:9128";
const CLIENTS = { host: "127.0.0.1", port: 3128 };
const ACCOUNTS = 5_000;
/** The relay needs two descriptors for each, and a hard limit of 20,000 is common. */
const CONNECTIONS = 9_300;
/** Calls of the API at once. */
const AT_ONCE = 8;
const CONFIG = `listen = ["127.0.0.1:3128"]
[access]
allow_destinations = ["127.0.0.0/8"]
[accounts]
enabled = true
[budgets]
connections = 10050
pipes = 16
[pressure]
waiting = 0
[management]
listen = "${MANAGEMENT}"
`;

/** A relay that serves, with these variables of its environment. */
async function started(ekiden, folder, env) {
  const relay = new Relay(ekiden, folder, env);
  writeFileSync(relay.config, CONFIG);
  relay.serve();
  await eventually("the relay", async () => (await fetch(`http://${MANAGEMENT}/readyz`)).ok);
  return relay;
}

const address = (account) => `127.16.${Math.floor(account / 250)}.${(account % 250) + 1}`;

/** Does all, so many at once. */
async function all(count, act) {
  let next = 0;
  const worker = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function fill(token) {
  await all(ACCOUNTS, (n) => {
    const devices = [{ kind: "prefix", prefix: `${address(n)}/32`, name: "house" }];
    const name = `household-${String(n).padStart(4, "0")}`;
    return call(MANAGEMENT, token, "POST", "/api/v1/accounts", { name, quota: 300e9, period: "month", devices });
  });
  await eventually("the accounts", async () => (await call(MANAGEMENT, token, "GET", "/api/v1/status")).accounts.known === ACCOUNTS);
}

/** What holds the other ends is a process of its own: descriptors are few. */
function origin() {
  const serve = 'const s=require("net").createServer(c=>c.on("error",()=>{}).resume()).listen(0,"127.0.0.1",2048,()=>console.log(s.address().port))';
  const child = spawn(process.execPath, ["-e", serve], { stdio: ["ignore", "pipe", "inherit"] });
  process.on("exit", () => child.kill());
  return new Promise((done) => child.stdout.once("data", (port) => done([child, Number(port)])));
}

async function connectAll(port) {
  const sockets = [];
  await all(CONNECTIONS, async (n) => {
    const socket = through(CLIENTS, address(n % ACCOUNTS), ["127.0.0.1", port], "/");
    sockets.push(socket);
    await new Promise((done, fail) => socket.once("data", done).once("close", () => fail(new Error("a connection was closed without an answer"))));
  });
  return sockets;
}

/** What the browser needs until a view shows what it should, and what it holds then. */
async function views(token) {
  const browser = await launch();
  const page = await browser.newPage({ viewport: { width: 1_400, height: 900 } });
  const complaints = [];
  page.on("console", (said) => ["error", "warning"].includes(said.type()) && complaints.push(said.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  await logIn(page, `http://${MANAGEMENT}/`, token);
  const found = page.locator("main");
  const rows = [];
  const measure = async (view, act, shown) => {
    const begin = Date.now();
    await act();
    await found.getByText(shown).first().waitFor();
    const took = Date.now() - begin;
    const tr = await page.locator("tbody tr").count();
    rows.push({ view, shown_ms: took, table_rows: tr });
    console.log(`crowd: ${view}: shown after ${took} ms, ${tr} rows of a table`);
  };
  const go = (hash) => () => page.evaluate((hash) => (location.hash = hash), hash);
  const last = () => page.getByRole("button", { name: "Last" }).click();
  await measure("connections", go("#/connections"), /^1 to 50 of 9,3\d\d$/);
  await measure("connections, the last page", last, /^9,2\d\d to 9,3\d\d of 9,3\d\d$/);
  await measure("connections, one searched", () => page.getByLabel(/^Find/).fill("household-4321"), "household-4321");
  await measure("accounts", go("#/accounts"), "1 to 50 of 5,000");
  await measure("accounts, the last page", last, "4,951 to 5,000 of 5,000");
  await measure("accounts, one searched", () => page.getByLabel(/^Find/).fill("household-4321"), "household-4321");
  // a minute of looking leaves nothing behind
  await go("#/connections")();
  const session = await page.context().newCDPSession(page);
  const held = async () => {
    await session.send("HeapProfiler.collectGarbage");
    return (await session.send("Runtime.getHeapUsage")).usedSize;
  };
  await pause(3_000);
  const before = await held();
  await pause(60_000);
  const after = await held();
  console.log(`crowd: the page holds ${Math.round(before / 1e3)} kB, and a minute later ${Math.round(after / 1e3)} kB`);
  await browser.close();
  return { rows, complaints, heap_bytes: [before, after] };
}

/** Ten thousand connections of five thousand accounts in a browser. */
export async function crowd(ekiden, folder) {
  const relay = await started(ekiden, folder);
  const token = relay.token();
  console.log(`crowd: ${ACCOUNTS} accounts`);
  await fill(token);
  const [other, port] = await origin();
  const sockets = await connectAll(port);
  console.log(`crowd: ${sockets.length} connections`);
  const seen = await views(token);
  sockets.forEach((socket) => socket.destroy());
  other.kill();
  await relay.end();
  return { connections: CONNECTIONS, accounts: ACCOUNTS, ...seen };
}

const HISTORY = "/page/history?series=(total)&span=hour";
/** Two samples and a bit. */
const SAMPLES = 25_000;

/** The hour's samples of the relay: when and how many connections, where something is known. */
async function known(token) {
  const { from, step, rows } = await call(MANAGEMENT, token, "GET", HISTORY);
  return rows.connections.flatMap((value, n) => (value === null ? [] : [{ at: from + n * step, value }]));
}

/** Hours by which the clock is moved, one after the other, and how the history looks after each. */
export async function clock(ekiden, folder) {
  const library = readdirSync("/usr/lib").map((machine) => `/usr/lib/${machine}/faketime/libfaketimeMT.so.1`).find(existsSync);
  if (!library) throw new Error("libfaketime is missing: apt-get install libfaketime");
  const offset = join(folder, "offset");
  const set = (hours) => writeFileSync(offset, `${hours >= 0 ? "+" : ""}${hours * 3_600}\n`);
  mkdirSync(folder, { recursive: true });
  set(0);
  const relay = await started(ekiden, folder, {
    LD_PRELOAD: library,
    FAKETIME_TIMESTAMP_FILE: offset,
    FAKETIME_NO_CACHE: "1",
    FAKETIME_DONT_FAKE_MONOTONIC: "1",
  });
  const token = relay.token();
  const [rows, faults] = [[], []];
  for (const hours of [0, 2, -30, 0]) {
    set(hours);
    await pause(SAMPLES);
    const now = Date.now() / 1_000 + hours * 3_600;
    const samples = await known(token);
    const near = samples.filter(({ at }) => Math.abs(at - now) < 60).length;
    const after = samples.filter(({ at }) => at > now + 60).length;
    const nonsense = samples.filter(({ value }) => value > 10).length;
    rows.push({ moved_hours: hours, known: samples.length, of_the_last_minute: near, of_times_to_come: after, nonsense });
    console.log(`clock: moved by ${hours} h: ${samples.length} samples known, ${near} of the last minute, ${after} of times to come, ${nonsense} nonsense`);
    if (near === 0 || after > 0 || nonsense > 0) faults.push(`moved by ${hours} h`);
  }
  await relay.end();
  return { rows, faults };
}
