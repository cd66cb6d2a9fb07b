// What is on record: the audit log, and the configuration.

import { useState } from "preact/hooks";
import { send } from "./api.js";
import { NONE, moment } from "./format.js";
import { useData } from "./hooks.js";
import { Choice, Empty, Find, Name, Problem, Table } from "./parts.jsx";

const KINDS = [
  ["changes", "Changes"],
  ["sessions", "Log-ins"],
  ["refused", "Refused calls"],
];

const audited = [
  { name: "When", class: "when", show: (line) => moment(new Date(line.time)) },
  { name: "Who", show: (line) => <Name>{line.user ?? line.address ?? NONE}</Name> },
  { name: "Outcome", show: (line) => <span class={line.outcome === "changed" ? "state" : "state bad"}>{line.status ? `${line.outcome}, ${line.status}` : line.outcome}</span> },
  { name: "What", class: "wide", show: (line) => <Name>{line.what || `${line.method} ${line.path}`}</Name> },
  {
    name: "Call",
    show: (line) => (
      <Name>
        {line.method} {line.path}
      </Name>
    ),
  },
];

export function Audit() {
  const [kind, setKind] = useState("changes");
  const [find, setFind] = useState("");
  const { data, error } = useData(`/page/audit?kind=${kind}`, 5000);
  const wanted = find.toLowerCase();
  const lines = (data?.lines ?? []).filter((line) => JSON.stringify(line).toLowerCase().includes(wanted));
  return (
    <>
      <h1>Audit log</h1>
      <form class="tools" onSubmit={(event) => event.preventDefault()}>
        <Find label="Find" value={find} set={setFind} />
        <Choice label="Lines" value={kind} set={setKind} options={KINDS} />
      </form>
      <Problem error={error} />
      {data ? <Table label="Audit log" columns={audited} rows={lines.slice(0, 200)} empty="No lines." /> : !error && <Empty>…</Empty>}
      {lines.length > 200 && <p>The newest 200 of {lines.length} lines. All are in audit-{kind}.jsonl beside the token.</p>}
    </>
  );
}

const settings = [
  { name: "Key", show: (row) => <code>{row.key}</code> },
  { name: "Value", class: "wide", show: (row) => <code>{row.toml ?? "not set"}</code> },
  { name: "From", show: (row) => row.from },
];

export function Configuration() {
  const { data, error, again } = useData("/page/configuration", 0);
  const [failed, setFailed] = useState(null);
  const [done, setDone] = useState("");
  const reload = async () => {
    setDone("");
    try {
      const { warnings } = await send("POST", "/api/v1/reload");
      setFailed(null);
      setDone(["Reloaded. Live connections keep their configuration.", ...warnings].join(" "));
      again();
    } catch (why) {
      setFailed(why);
    }
  };
  const [find, setFind] = useState("");
  const [all, setAll] = useState(false);
  const tables = new Map();
  for (const [path, value] of Object.entries(data?.values ?? {})) {
    const at = path.lastIndexOf(".");
    const [table, key] = at < 0 ? ["", path] : [path.slice(0, at), path.slice(at + 1)];
    const shown = all || value.from !== "default";
    if (!shown || !`${path} ${value.toml}`.toLowerCase().includes(find.toLowerCase())) continue;
    if (!tables.has(table)) tables.set(table, []);
    tables.get(table).push({ key, ...value });
  }
  return (
    <>
      <h1>Configuration</h1>
      <p>
        {data?.file ? (
          <>
            In effect, from <code>{data.file}</code>. Change the file, then reload it.
          </>
        ) : (
          "In effect: defaults and arguments, no file."
        )}{" "}
        Secrets are not shown.
      </p>
      <form class="tools" onSubmit={(event) => event.preventDefault()}>
        <Find label="Find a key or a value" value={find} set={setFind} />
        <label class="check">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
          Defaults too
        </label>
        <button type="button" onClick={reload}>
          Reload
        </button>
      </form>
      <Problem error={error ?? failed} />
      <p class="done" role="status">
        {done}
      </p>
      {data && tables.size === 0 && <Empty>Nothing that differs from its default.</Empty>}
      {[...tables].sort(([a], [b]) => (a === "" ? -1 : b === "" ? 1 : 0)).map(([table, rows]) => (
        <section aria-label={table || "top"} key={table}>
          <h2>
            <code>{table ? `[${table}]` : "top of the file"}</code>
          </h2>
          <Table label={table || "top"} columns={settings} rows={rows} id={(row) => row.key} empty="" />
        </section>
      ))}
    </>
  );
}
