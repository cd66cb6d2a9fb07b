// The operator's page: the log-in, the view that is open, and the current status.

import { hydrate, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./app.css";
import { hasKey, logIn, logOut, onSession } from "./api.js";
import { useLive } from "./hooks.js";
import { Field, Name, Problem } from "./parts.jsx";
import { Accounts } from "./accounts.jsx";
import { Alerts } from "./alerts.jsx";
import { Audit, Configuration } from "./records.jsx";
import { Connection, Connections } from "./connections.jsx";
import { Doctor, Reports } from "./doctor.jsx";
import { Overview } from "./overview.jsx";
import { Peers } from "./peers.jsx";
import { VIEWS } from "./views.js";

const SHOWS = [Overview, Connections, Accounts, Peers, Alerts, Doctor, Reports, Audit, Configuration];

// a part of an address as text; as it stands where somebody typed a lone %
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function useRoute() {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const on = () => setRoute(read());
    addEventListener("hashchange", on);
    return () => removeEventListener("hashchange", on);
  }, []);
  return route;
}

function LogIn({ typed }) {
  const [name, setName] = useState(typed[0]);
  const [secret, setSecret] = useState(typed[1]);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    setBusy(true);
    logIn(name.trim(), secret).catch((why) => {
      setError(why);
      setBusy(false);
    });
  };
  return (
    <main class="login">
      <h1>Ekiden</h1>
      <form onSubmit={submit}>
        <Field label="Operator" hint="Leave it empty to log in with the token.">
          <input type="text" autocomplete="username" autocapitalize="none" value={name} onInput={(event) => setName(event.target.value)} />
        </Field>
        <Field label={name.trim() ? "Password" : "Token"} hint={name.trim() ? undefined : "`ekiden token show` prints it on the relay's machine."}>
          <input type="password" autocomplete="current-password" required value={secret} onInput={(event) => setSecret(event.target.value)} />
        </Field>
        <Problem error={error} />
        <button type="submit" class="primary" disabled={busy}>
          Log in
        </button>
      </form>
    </main>
  );
}

function Page() {
  const [name, ...rest] = useRoute();
  const live = useLive();
  const main = useRef(null);
  const first = useRef(true);
  const at = Math.max(0, VIEWS.findIndex(([path]) => path === name));
  const [title, View] = [VIEWS[at][1], SHOWS[at]];
  const one = name === "connections" && rest[0];
  const place = [name, ...rest].join("/");
  useEffect(() => {
    document.title = `${one ? `Connection ${rest[0]}` : title} – Ekiden`;
    // whoever follows a link goes on reading at the view's beginning
    if (!first.current) main.current.focus();
    first.current = false;
  }, [place]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current.focus(); }}>
        Skip to the content
      </a>
      <header>
        <span class="mark">Ekiden</span>
        <span class="relay">{live.now && <Name>{live.now.status.name}</Name>}</span>
        <nav aria-label="Views">
          {VIEWS.map(([path, text]) => (
            <a href={`#/${path}`} key={path} aria-current={path === name ? "page" : undefined}>
              {text}
            </a>
          ))}
        </nav>
        <button type="button" class="quiet" onClick={() => logOut().catch(() => {})}>
          Log out
        </button>
      </header>
      <p class="lost" role="status">
        {live.lost && `Not live: ${live.lost}. The figures are from before.`}
      </p>
      <main id="main" ref={main} tabIndex={-1}>
        {one ? <Connection id={rest[0]} /> : <View live={live.now} path={rest} key={name} />}
      </main>
    </>
  );
}

function App({ typed }) {
  const [known, setKnown] = useState(hasKey());
  useEffect(() => onSession(() => setKnown(hasKey())), []);
  return known ? <Page /> : <LogIn typed={known ? ["", ""] : typed} />;
}

// index.html has the log-in and the frame already, so that they are seen before this script arrives
const root = document.getElementById("app");
const typed = Array.from(root.querySelectorAll("input"), (input) => input.value);
root.className = "";
if (hasKey()) {
  root.replaceChildren();
  render(<App typed={["", ""]} />, root);
} else {
  root.querySelectorAll(".frame, noscript").forEach((other) => other.remove());
  root.querySelector("button").disabled = false;
  hydrate(<App typed={typed} />, root);
}
