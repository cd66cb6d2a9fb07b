// Calls of the management port. A session is a cookie that scripts cannot read, and a key that this page keeps.

const KEY = "ekiden-key";
const listeners = new Set();

export function hasKey() {
  return localStorage.getItem(KEY) !== null;
}

/** Calls `on` when the session begins or ends. */
export function onSession(on) {
  listeners.add(on);
  return () => listeners.delete(on);
}

function setKey(key) {
  if (key === null) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, key);
  for (const on of listeners) on();
}

/** A refusal with what happened and what to try. */
export class Refusal extends Error {
  constructor(problem) {
    const errors = (problem.errors ?? []).map((one) => `${one.pointer} ${one.detail}`.trim());
    super([problem.detail, ...errors].join("; "));
    this.hint = problem.hint;
    this.status = problem.status;
  }
}

export async function request(method, path, body, signal) {
  const headers = { "X-Ekiden-Key": localStorage.getItem(KEY) ?? "" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init = { method, headers, signal, credentials: "same-origin", cache: "no-store" };
  const answer = await fetch(path, body === undefined ? init : { ...init, body: JSON.stringify(body) });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({ detail: `the relay answered ${answer.status}` }));
  if (answer.status === 401 && hasKey()) setKey(null);
  throw new Refusal({ ...problem, status: answer.status });
}

export async function get(path, signal) {
  return (await request("GET", path, undefined, signal)).json();
}

export async function send(method, path, body) {
  const text = await (await request(method, path, body)).text();
  return text === "" ? null : JSON.parse(text);
}

/** Logs in as an operator; without a name, `secret` is the token. */
export async function logIn(name, secret) {
  const body = name ? { name, password: secret } : { token: secret };
  setKey((await send("POST", "/page/session", body)).key);
}

export async function logOut() {
  try {
    await request("DELETE", "/page/session");
  } finally {
    setKey(null);
  }
}

/** The events of a stream, until it ends. */
export async function* events(path, signal) {
  const answer = await request("GET", path, undefined, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const lines = text.slice(0, end).split("\n");
        text = text.slice(end + 2);
        const field = (name) => lines.find((line) => line.startsWith(name))?.slice(name.length);
        const data = field("data: ");
        if (data) yield { kind: field("event: ") ?? "now", data: JSON.parse(data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
