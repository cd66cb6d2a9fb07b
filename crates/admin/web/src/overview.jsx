// What is now: what to look at, the whole relay, its lines, its busiest accounts and connections.

import { useEffect, useRef, useState } from "preact/hooks";
import { History } from "./chart.jsx";
import { columns as connectionColumns } from "./connections.jsx";
import { NONE, bytes, count, delay, percent, rate, size, span } from "./format.js";
import { useData } from "./hooks.js";
import { Empty, Figure, Meter, Name, Table, Words } from "./parts.jsx";

const BUSY = "/page/connections?order=rate&count=8";

const payload = (down, up) => ({
  label: "Payload",
  format: rate,
  least: 100_000,
  lines: [
    { row: "down", name: down, color: "--down", fill: true },
    { row: "up", name: up, color: "--up" },
  ],
});

const THROUGHPUT = [
  payload("down, to clients", "up, from clients"),
  {
    label: "Connections",
    format: count,
    least: 4,
    whole: true,
    lines: [{ row: "connections", name: "open", color: "--down", fill: true }],
  },
];

const LINE = [
  payload("received", "sent"),
  {
    label: "Delay",
    format: delay,
    least: 1000,
    lines: [
      { row: "rtt_us", name: "round trip", color: "--down" },
      { row: "queue_us", name: "queue", color: "--up" },
    ],
  },
  {
    label: "Loss of what was sent",
    format: (ppm) => (ppm == null ? NONE : percent(ppm / 1e6)),
    least: 1000,
    lines: [{ row: "loss_ppm", name: "lost", color: "--down", fill: true }],
  },
];

function Findings({ findings }) {
  if (findings.length === 0) {
    return (
      <p class="fine">
        Nothing needs attention. <a href="#/doctor">Doctor</a> says what this machine allows.
      </p>
    );
  }
  return (
    <section aria-labelledby="findings">
      <h2 id="findings">Needs attention</h2>
      <ul class="findings">
        {findings.map((finding) => (
          <li key={finding.what}>
            <b>
              <Name>{finding.what}</Name>
            </b>
            <span>
              <Words text={finding.remedy} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Relay({ live }) {
  const { status, down, up, accounts } = live;
  const used = status.budgets.find((budget) => budget.name === "connections");
  const { pressure } = status;
  return (
    <section aria-labelledby="relay">
      <h2 id="relay">Relay</h2>
      <dl class="figures">
        <Figure name="Down" note={`to clients; ${bytes(status.totals.bytes_down)} since the start`}>
          {rate(down)}
        </Figure>
        <Figure name="Up" note={`from clients; ${bytes(status.totals.bytes_up)} since the start`}>
          {rate(up)}
        </Figure>
        <Figure name="Connections" note={used && `of ${count(used.limit)}, ${count(used.peak)} at most`}>
          {count(used?.used)}
        </Figure>
        <Figure name="Accounts" note={status.accounts ? `in ${status.accounts.database}` : "no database"}>
          {count(status.accounts?.known ?? accounts)}
        </Figure>
        <Figure name="Waiting" note={`${count(pressure.waited)} waited, ${count(pressure.refused)} refused`}>
          {count(pressure.waiting)}
        </Figure>
        <Figure name="Runs for" note={`version ${status.version}`}>
          {span(status.uptime_seconds)}
        </Figure>
      </dl>
      <History series="(total)" plots={THROUGHPUT} name="the relay" />
    </section>
  );
}

function Line({ line, why }) {
  const lost = line.packets > 0 ? line.packets_lost / line.packets : null;
  const shown = (text) => (line.up ? text : NONE);
  const state = line.up ? (line.over_tcp ? "up over TCP" : "up") : "down";
  return (
    <article class="line" aria-labelledby={`line-${line.peer}`}>
      <h3 id={`line-${line.peer}`}>
        <Name>{line.peer}</Name> <span class={line.up ? "state" : "state bad"}>{state}</span>
      </h3>
      <p class="why">
        {line.up && "Held back by "}
        <Name>{why}</Name>
      </p>
      <dl class="figures small">
        <Figure name="Sends at" note={`of ${rate(line.allotted)} agreed`}>
          {shown(rate(line.rate))}
        </Figure>
        <Figure name="May receive" note="as agreed">
          {shown(rate(line.receives))}
        </Figure>
        <Figure name="Round trip" note={`queue ${shown(delay(line.queue_us))}`}>
          {shown(delay(line.rtt_us))}
        </Figure>
        <Figure name="Loss" note={`the path's own ${shown(percent(line.path_loss))}`}>
          {shown(percent(lost))}
        </Figure>
        <Figure name="Repairs sent" note={`${bytes(line.bytes_repaired)} mended here`}>
          {shown(bytes(line.bytes_repairs))}
        </Figure>
        <Figure name="Waiting" note={`${count(line.flows)} ${line.flows === 1 ? "flow" : "flows"}`}>
          {shown(size(line.waiting))}
        </Figure>
      </dl>
      <details>
        <summary>History of this line</summary>
        <Lazily>
          <History series={line.peer} plots={LINE} name={`the line to ${line.peer}`} />
        </Lazily>
      </details>
    </article>
  );
}

/** What stands in a closed `details` is not asked for. */
function Lazily({ children }) {
  const [open, ref] = useOpen();
  return <div ref={ref}>{open && children}</div>;
}

function useOpen() {
  const ref = useRef(null);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const details = ref.current.closest("details");
    const on = () => setOpen(details.open);
    on();
    details.addEventListener("toggle", on);
    return () => details.removeEventListener("toggle", on);
  }, []);
  return [open, ref];
}

/** An account's use beside its limits. */
export function use(account) {
  if (account?.quota == null) return account ? `${bytes(account.bytes_down + account.bytes_up)} since the start` : NONE;
  const left = account.quota_left ?? 0;
  const share = (account.quota - left) / account.quota;
  const text = `${bytes(account.quota - left)} of ${bytes(account.quota)}`;
  return (
    <span class="use">
      {text}
      <Meter share={share} low={share >= 0.9} label={`${Math.round(share * 100)} % used`} />
    </span>
  );
}

const accountColumns = [
  {
    name: "Account",
    show: (account) => (
      <a href={`#/accounts/${encodeURIComponent(account.name)}`}>
        <Name>{account.name}</Name>
      </a>
    ),
  },
  { name: "Down", class: "num", show: (account) => rate(account.rate_down) },
  { name: "Up", class: "num", show: (account) => rate(account.rate_up) },
  { name: "Connections", class: "num", show: (account) => count(account.connections) },
  { name: "Used", show: use },
  { name: "State", show: (account) => accountState(account) },
];

/** What its limits do to an account now. */
export function accountState(account) {
  if (!account) return "not seen yet";
  if (account.state === "cut") return "quota spent: cut off";
  if (account.state === "throttle") return `quota spent: ${rate(account.limit_down)}`;
  const waits = account.waiting_down + account.waiting_up;
  if (waits === 0) return account.connections === 0 ? "no connections" : "fine";
  return waits === 1 ? "1 waits for its limits" : `${waits} wait for its limits`;
}

export function Overview({ live }) {
  const { data } = useData(BUSY, 2000);
  if (!live) {
    return (
      <>
        <h1>Overview</h1>
        <Empty>…</Empty>
      </>
    );
  }
  const { status } = live;
  const busiest = status.sharing?.accounts ?? [];
  return (
    <>
      <h1>Overview</h1>
      <Findings findings={live.findings} />
      <Relay live={live} />
      <section aria-labelledby="lines">
        <h2 id="lines">Lines</h2>
        {status.tunnels.length === 0 && (
          <Empty>
            No tunnels. <a href="#/peers">Invite a peer</a>, or join one with <code>ekiden peer join</code>.
          </Empty>
        )}
        {status.tunnels.map((line, n) => (
          <Line line={line} why={live.held_back[n]} key={line.peer} />
        ))}
      </section>
      <section aria-labelledby="busy-accounts">
        <h2 id="busy-accounts">Busiest accounts</h2>
        <Table label="Busiest accounts" columns={accountColumns} rows={busiest} id={(account) => account.name} empty="No account has limits or moved anything yet." />
        {live.accounts > busiest.length && (
          <p>
            <a href="#/accounts">All {count(live.accounts)} accounts</a>
          </p>
        )}
      </section>
      <section aria-labelledby="busy-connections">
        <h2 id="busy-connections">Busiest connections</h2>
        <Table label="Busiest connections" columns={connectionColumns} rows={data?.lines ?? []} id={(line) => line.id} empty="No connections." />
        {data && data.total > data.lines.length && (
          <p>
            <a href="#/connections">All {count(data.total)} connections</a>
          </p>
        )}
      </section>
    </>
  );
}
