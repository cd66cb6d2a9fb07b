// Accounts: what they use, and their limits and devices.

import { useState } from "preact/hooks";
import { send } from "./api.js";
import { NONE, bytes, count, number, rate } from "./format.js";
import { BY, Configurations, DeviceFields, NO_DEVICE, device } from "./devices.jsx";
import { useData, useListing } from "./hooks.js";
import { accountState, use } from "./overview.jsx";
import { Choice, Empty, Field, Figure, Find, Name, Pager, Problem, Sure, Table } from "./parts.jsx";

const PAGE = 50;
const MEGA = 1e6;
const GIGA = 1e9;

const ORDERS = [
  ["rate", "busiest first"],
  ["used", "most of the quota first"],
  ["name", "by name"],
];

const PERIODS = ["day", "week", "month", "never"].map((period) => [period, period]);

const SPENT = [
  ["throttle", "go on slowly"],
  ["cut", "refuse connections"],
];

const to = (name) => `#/accounts/${encodeURIComponent(name)}`;

const columns = [
  {
    name: "Account",
    show: (line) => (
      <a href={to(line.name)}>
        <Name>{line.name}</Name>
      </a>
    ),
  },
  { name: "Down", class: "num", show: (line) => rate(line.now?.rate_down) },
  { name: "Up", class: "num", show: (line) => rate(line.now?.rate_up) },
  { name: "Connections", class: "num", show: (line) => count(line.now?.connections) },
  { name: "Used", show: (line) => use(line.now) },
  { name: "Devices", class: "num", show: (line) => (line.kept ? count(line.kept.devices.length) : NONE) },
  { name: "State", show: (line) => (line.barred ? <span class="state bad">{line.barred}</span> : accountState(line.now)) },
];

export function Accounts({ path, live }) {
  if (path[0] === "") return <New />;
  return path[0] ? <Account name={path[0]} listen={live?.status.listen[0]} key={path[0]} /> : <List />;
}

/** Where the account's devices find the proxy, and what its user is to open. */
function Way({ listen }) {
  if (!listen) return null;
  const [, host, port] = listen.match(/^(.*):(\d+)$/) ?? [];
  const at = `${host === "0.0.0.0" || host === "[::]" ? location.hostname : host}:${port}`;
  return (
    <p>
      Its devices use the proxy <code>{at}</code>. <a href={`http://${at}/`}>Its own page</a> shows its user how, and what is used and left.
    </p>
  );
}

function List() {
  const list = useListing("/page/accounts", "rate", PAGE, 3000);
  const { data, error } = list;
  return (
    <>
      <h1>Accounts</h1>
      <form class="tools" role="search" onSubmit={(event) => event.preventDefault()}>
        <Find label="Find a name or a device" value={list.find} set={list.setFind} />
        <Choice label="Order" value={list.order} set={list.setOrder} options={ORDERS} />
        {data?.changeable && (
          <a class="button" href="#/accounts/">
            Add an account
          </a>
        )}
      </form>
      <Problem error={error} />
      {data && !data.changeable && (
        <p>
          Accounts are not kept in a database here: set <code>enabled = true</code> in [accounts], and restart the relay.
        </p>
      )}
      {data ? (
        <>
          <Table label="Accounts" columns={columns} rows={data.accounts} id={(line) => line.name} empty="No accounts." />
          <Pager offset={list.offset} count={PAGE} found={data.found} total={data.total} noun="accounts" go={list.setOffset} />
        </>
      ) : (
        !error && <Empty>…</Empty>
      )}
    </>
  );
}

const text = (value, unit = 1) => (value == null ? "" : String(value / unit));

/** What the form shows of an account. */
function drafted(kept) {
  return {
    name: kept?.name ?? "",
    down: text(kept?.down, MEGA),
    up: text(kept?.up, MEGA),
    quota: text(kept?.quota, GIGA),
    period: kept?.period ?? "month",
    zone: kept?.zone ?? "UTC",
    on_quota_exceeded: kept?.on_quota_exceeded ?? "throttle",
    throttle_rate: text(kept?.throttle_rate ?? 256_000, MEGA),
    connections: text(kept?.connections),
    weight: text(kept?.weight ?? 1),
    expires: kept?.expires ?? "",
    disabled: kept?.disabled ?? false,
  };
}

/** The change that turns `before` into `draft`; what is the same is not sent. */
function changes(draft, before) {
  const quota = number(draft.quota, GIGA, "Quota");
  const all = {
    name: draft.name.trim(),
    down: number(draft.down, MEGA, "Limit down"),
    up: number(draft.up, MEGA, "Limit up"),
    quota,
    period: quota === null ? null : draft.period,
    zone: draft.zone.trim() || null,
    on_quota_exceeded: draft.on_quota_exceeded,
    throttle_rate: number(draft.throttle_rate, MEGA, "Rate after that"),
    connections: number(draft.connections, 1, "Connections"),
    weight: number(draft.weight, 1, "Weight"),
    expires: draft.expires || null,
    disabled: draft.disabled,
  };
  if (!before) {
    const given = Object.entries(all).filter(([, value]) => value !== null && value !== false);
    return Object.fromEntries(given);
  }
  const differs = ([key, value]) => (before[key] ?? null) !== value;
  return Object.fromEntries(Object.entries(all).filter(differs));
}

function Limits({ draft, set }) {
  const field = (key) => ({ value: draft[key], onInput: (event) => set({ ...draft, [key]: event.target.value }) });
  return (
    <>
      <Field label="Name">
        <input required maxLength={63} autocomplete="off" {...field("name")} />
      </Field>
      <div class="row">
        <Field label="Limit down" unit="Mbit/s" hint="Towards its devices. Empty: none.">
          <input inputMode="decimal" {...field("down")} />
        </Field>
        <Field label="Limit up" unit="Mbit/s" hint="From its devices. Empty: none.">
          <input inputMode="decimal" {...field("up")} />
        </Field>
      </div>
      <div class="row">
        <Field label="Quota" unit="GB" hint="Both directions together. Empty: none.">
          <input inputMode="decimal" {...field("quota")} />
        </Field>
        <Choice label="Begins anew each" value={draft.period} set={(period) => set({ ...draft, period })} options={PERIODS} />
        <Field label="Time zone" hint="Such as Asia/Tokyo.">
          <input {...field("zone")} />
        </Field>
      </div>
      <div class="row">
        <Choice label="When the quota is spent" value={draft.on_quota_exceeded} set={(on_quota_exceeded) => set({ ...draft, on_quota_exceeded })} options={SPENT} />
        <Field label="Rate after that" unit="Mbit/s">
          <input inputMode="decimal" {...field("throttle_rate")} />
        </Field>
      </div>
      <div class="row">
        <Field label="Connections at once" hint="Empty: no limit.">
          <input inputMode="numeric" {...field("connections")} />
        </Field>
        <Field label="Weight" hint="Its share where the relay's own rate is full.">
          <input inputMode="numeric" {...field("weight")} />
        </Field>
        <Field label="Last day">
          <input type="date" {...field("expires")} />
        </Field>
      </div>
    </>
  );
}

function New() {
  const [draft, setDraft] = useState(drafted(null));
  const [first, setFirst] = useState(NO_DEVICE);
  const [error, setError] = useState(null);
  const [added, setAdded] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      const account = await send("POST", "/api/v1/accounts", { ...changes(draft, null), devices: [device(first)] });
      // what is shown once stays until somebody has seen it
      if (account.configurations) setAdded(account);
      else location.hash = to(account.name);
    } catch (why) {
      setError(why);
    }
  };
  if (added) {
    const see = () => (location.hash = to(added.name));
    return (
      <>
        <h1>
          Account <Name>{added.name}</Name> was added
        </h1>
        <Configurations made={added.configurations} done={see} />
      </>
    );
  }
  return (
    <>
      <h1>Add an account</h1>
      <form class="sheet" onSubmit={submit}>
        <Limits draft={draft} set={setDraft} />
        <h2>First device</h2>
        <DeviceFields draft={first} set={setFirst} first />
        <Problem error={error} />
        <p class="actions">
          <button type="submit" class="primary">
            Add
          </button>
          <a class="button" href="#/accounts">
            Cancel
          </a>
        </p>
      </form>
    </>
  );
}

const atMost = (limit) => (limit != null ? `of ${rate(limit)}` : "no limit");

function Account({ name, listen }) {
  const path = `/api/v1/accounts/${encodeURIComponent(name)}`;
  const query = new URLSearchParams({ find: name, order: "name", offset: 0, count: 200 });
  const now = useData(`/page/accounts?${query}`, 2000);
  const line = now.data?.accounts.find((one) => one.name === name);
  const { data: kept, error: missing, again } = useData(path, 0);
  // outlives the form, which begins anew with each change of the account
  const [said, setSaid] = useState({ done: "", error: null });
  return (
    <>
      <h1>
        Account <Name>{name}</Name>
      </h1>
      {line && (
        <dl class="figures">
          <Figure name="Down" note={atMost(line.now?.limit_down)}>
            {rate(line.now?.rate_down)}
          </Figure>
          <Figure name="Up" note={atMost(line.now?.limit_up)}>
            {rate(line.now?.rate_up)}
          </Figure>
          <Figure name="Used" note={line.now?.quota_left != null && `${bytes(line.now.quota_left)} left`}>
            {use(line.now)}
          </Figure>
          <Figure name="State" class="words">
            {line.barred ?? accountState(line.now)}
          </Figure>
        </dl>
      )}
      <Way listen={listen} />
      {missing && missing.status !== 409 && <Problem error={missing} />}
      {missing?.status === 409 && <p>This account stands in the configuration. Change it there, and reload.</p>}
      {kept && <Edit kept={kept} path={path} again={again} said={said} say={setSaid} key={JSON.stringify(kept)} />}
      <p>
        <a href="#/accounts">All accounts</a>
      </p>
    </>
  );
}

function Edit({ kept, path, again, said, say }) {
  const [draft, setDraft] = useState(drafted(kept));
  const [added, setAdded] = useState(NO_DEVICE);
  const fail = (error) => say({ done: "", error });
  const change = async (document, done) => {
    try {
      const account = await send("PATCH", path, document);
      say({ done, error: null, made: account.configurations });
      if (account.name === kept.name) again();
      else location.hash = to(account.name);
    } catch (why) {
      fail(why);
    }
  };
  const save = (event) => {
    event.preventDefault();
    try {
      const document = changes(draft, kept);
      if (Object.keys(document).length === 0) say({ done: "Nothing was changed.", error: null });
      else change(document, "Saved. Live connections follow within a second.");
    } catch (why) {
      fail(why);
    }
  };
  const remove = async () => {
    try {
      await send("DELETE", path);
      location.hash = "#/accounts";
    } catch (why) {
      fail(why);
    }
  };
  const devices = [
    { name: "Device", show: (one) => <Name>{one.name}</Name> },
    { name: "Recognised by", show: (one) => BY[one.kind] ?? one.kind },
    { name: "Identity", show: (one) => <Name>{one.identity}</Name> },
    {
      name: "Change",
      show: (one) => (
        <Sure sure={`Forget ${one.name}`} act={() => change({ forget: [one.name] }, "Forgotten.")}>
          Forget
        </Sure>
      ),
    },
  ];
  return (
    <>
      <form class="sheet" onSubmit={save}>
        <h2>Limits</h2>
        <Limits draft={draft} set={setDraft} />
        <p class="actions">
          <button type="submit" class="primary">
            Save
          </button>
          <button type="button" onClick={() => change({ disabled: !kept.disabled }, kept.disabled ? "Enabled." : "Disabled. Its connections end.")}>
            {kept.disabled ? "Enable" : "Disable"}
          </button>
          <Sure sure="Remove for good" act={remove}>
            Remove
          </Sure>
        </p>
      </form>
      <Problem error={said.error} />
      <p class="done" role="status">
        {said.done}
      </p>
      <section aria-labelledby="devices">
        <h2 id="devices">Devices</h2>
        {said.made && <Configurations made={said.made} done={() => say({ done: "", error: null })} />}
        <Table label="Devices" columns={devices} rows={kept.devices} id={(one) => one.name} empty="No devices: nobody can use this account." />
        <form
          class="sheet"
          onSubmit={(event) => {
            event.preventDefault();
            change({ devices: [device(added)] }, "The device was added.");
          }}
        >
          <h3>Add a device</h3>
          <DeviceFields draft={added} set={setAdded} />
          <p class="actions">
            <button type="submit">Add the device</button>
          </p>
        </form>
      </section>
    </>
  );
}
