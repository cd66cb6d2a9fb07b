// Two relays with a tunnel between them, accounts, operators and traffic, as a village behind a satellite has them.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer as createHttp } from "node:http";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

/** A name that is markup and changes the direction of what follows. */
export const HOSTILE = '<img src=x onerror="window.hit=1">\u202ex';
const PASSWORD = "a long password";

/** A port that is free now, below those that the kernel gives to connections. */
export const freePort = (tries = 50) =>
  new Promise((done, fail) => {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = createServer();
    server.once("error", (error) => (error.code === "EADDRINUSE" && tries > 0 ? done(freePort(tries - 1)) : fail(error)));
    server.listen(port, "0.0.0.0", () => server.close(() => done(port)));
  });

/** Asks until the answer is something, for 30 s. */
export async function eventually(what, ask) {
  for (let begin = Date.now(); Date.now() - begin < 30_000; await pause(100)) {
    try {
      const answer = await ask();
      if (answer) return answer;
    } catch {
      // not yet
    }
  }
  throw new Error(`${what} did not come within 30 s`);
}

/** A daemon with a home of its own below `folder`; it ends with this program. `env`: more variables while it serves. */
export class Relay {
  constructor(ekiden, folder, env = {}) {
    this.serving = env;
    this.ekiden = ekiden;
    const state = join(folder, "state");
    mkdirSync(state, { recursive: true });
    this.env = { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder, XDG_RUNTIME_DIR: folder, STATE_DIRECTORY: state };
    delete this.env.RUNTIME_DIRECTORY;
    this.config = join(folder, "config.toml");
    this.logFile = join(folder, "log");
  }

  /** Runs a command of this relay; what it prints. */
  run(args, input = "") {
    const done = spawnSync(this.ekiden, [...args, "--config", this.config], { env: this.env, input });
    if (done.status !== 0) throw new Error(`ekiden ${args.join(" ")}: ${done.stderr}`);
    return done.stdout.toString();
  }

  serve() {
    const log = `${this.ekiden} serve --config ${this.config} >>${this.logFile} 2>&1`;
    this.child = spawn("sh", ["-c", `exec ${log}`], { env: { ...this.env, ...this.serving }, stdio: ["ignore", "ignore", "ignore"] });
    process.on("exit", () => this.child.kill("SIGKILL"));
  }

  log() {
    return existsSync(this.logFile) ? readFileSync(this.logFile, "utf8") : "";
  }

  token() {
    return this.run(["token", "show"]).trim();
  }

  async end() {
    const ended = new Promise((done) => this.child.once("exit", done));
    this.child.kill("SIGTERM");
    await ended;
  }
}

/** Calls the API with the token. */
export async function call(management, token, method, path, document) {
  const answer = await fetch(`http://${management}${path}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, ...(document ? { "Content-Type": "application/json" } : {}) },
    body: document && JSON.stringify(document),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.status === 204 ? null : answer.json();
}

/** The accounts of the village: shared quotas, a telephone, a name that is markup, one that is disabled. */
export async function addAccounts(management, token) {
  const add = (document) => call(management, token, "POST", "/api/v1/accounts", document);
  const user = (name) => ({ kind: "password", user: name, password: PASSWORD });
  const GB = 1e9;
  await add({ name: "tanaka", quota: 20 * GB, period: "month", devices: [{ ...user("hanako"), name: "laptop" }, { kind: "prefix", prefix: "127.0.0.1/32", name: "house" }] });
  await add({ name: "school", quota: 300 * GB, period: "month", weight: 4, devices: [{ kind: "prefix", prefix: "127.0.1.0/24" }] });
  await add({ name: "clinic", weight: 8, devices: [user("clinic")] });
  await add({ name: "market", quota: 2_000_000, period: "month", devices: [user(HOSTILE)] });
  // a change counts within a second
  await pause(2_000);
  await add({ name: "away", disabled: true, devices: [user("away")] });
}

/** A server that sends without an end, reads all, or answers a small page. */
export const startOrigin = (host) =>
  new Promise((done) => {
    const block = Buffer.alloc(1 << 16, 7);
    const server = createHttp({ keepAliveTimeout: 0 }, (request, answer) => {
      if (request.url === "/endless") {
        const more = () => {
          while (answer.write(block));
        };
        answer.on("drain", more).on("error", () => {});
        more();
        return;
      }
      request.resume().on("end", () => answer.end("fine\n"));
    }).listen(0, host, () => done(server));
  });

/** A connection through the relay from an address of this machine, by CONNECT; it begins with a request for `path`. */
export function through(relay, from, [host, port], path) {
  const socket = connect({ host: relay.host, port: relay.port, localAddress: from });
  socket.on("error", () => {});
  socket.write(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`);
  socket.once("data", (answer) => {
    if (!answer.toString().startsWith("HTTP/1.1 200")) throw new Error(`CONNECT from ${from}: ${answer}`);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nUser-Agent: ${"<img src=x onerror=window.hit=1>"}\r\n\r\n`);
    socket.resume();
  });
  return socket;
}

export function write(file, document) {
  writeFileSync(file, `${JSON.stringify(document, null, 1)}\n`);
}
