// What the doctor finds on the relay's machine, and reports of the laboratory.

import { useState } from "preact/hooks";
import { request } from "./api.js";
import { NONE, moment } from "./format.js";
import { useData } from "./hooks.js";
import { Copy, Empty, Name, Problem, Table, Words, save } from "./parts.jsx";

const SEVERITIES = { problem: "bad", warning: "bad" };

function Finding({ finding }) {
  const { severity, what, why, mend } = finding;
  return (
    <li>
      <b>
        <span class={`state ${SEVERITIES[severity] ?? ""}`}>{severity}</span> <Name>{what}</Name>
      </b>
      <span>
        <Words text={why} />
      </span>
      {mend && (
        <span class="mend">
          <code>{mend}</code> <Copy text={mend} />
        </span>
      )}
    </li>
  );
}

export function Doctor() {
  const { data, error, again } = useData("/page/doctor", 0);
  const found = data?.findings ?? [];
  const fine = found.filter((finding) => finding.severity === "ok");
  const others = found.filter((finding) => finding.severity !== "ok");
  return (
    <>
      <h1>Doctor</h1>
      <p>
        <Words text="What this machine allows, as `ekiden doctor` finds it. Run a remedy on the relay's machine as root; `ekiden doctor --apply` runs those that are settings." />
      </p>
      <p>
        <button type="button" onClick={again}>
          Look again
        </button>
      </p>
      <Problem error={error} />
      {!data && !error && <Empty>…</Empty>}
      {data && others.length === 0 && <p class="fine">Nothing to mend.</p>}
      {others.length > 0 && (
        <ul class="findings" aria-label="To mend">
          {others.map((finding) => (
            <Finding finding={finding} key={finding.id + finding.what} />
          ))}
        </ul>
      )}
      {fine.length > 0 && (
        <section aria-labelledby="well">
          <h2 id="well">As it should be</h2>
          <ul>
            {fine.map((finding) => (
              <li key={finding.id + finding.what}>
                <Name>{finding.what}</Name>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

const verdict = (holds) => (holds === null || holds === undefined ? NONE : holds ? "holds" : "does not hold");

const claims = [
  { name: "Claim", class: "wide", show: (claim) => <Name>{claim.text}</Name> },
  { name: "Verdict", show: (claim) => <span class={claim.holds === false ? "state bad" : "state"}>{verdict(claim.holds)}</span> },
  { name: "Evidence", class: "wide", show: (claim) => <Name>{claim.evidence || NONE}</Name> },
];

/** A report's page has a style sheet of its own, which this page may not show. */
async function keep(report) {
  const answer = await request("GET", `/page/reports/${report.experiment}/${report.engine}`);
  save(await answer.blob(), `${report.experiment}-${report.engine}.html`);
}

/** How many of a report's claims hold, in words. */
function judgement(all) {
  const judged = all.filter((claim) => claim.holds !== null);
  const holds = judged.filter((claim) => claim.holds).length;
  if (all.length === 0) return "It makes no claims.";
  if (judged.length === 0) return "No claim was judged: this engine does not measure what they need.";
  const rest = all.length - judged.length;
  return `${holds} of ${judged.length} judged claims hold${rest > 0 ? `; ${rest} ${rest === 1 ? "was" : "were"} not judged` : ""}.`;
}

export function Reports() {
  const { data, error } = useData("/page/reports", 0);
  const [failed, setFailed] = useState(null);
  const reports = data?.reports ?? [];
  return (
    <>
      <h1>Reports of the laboratory</h1>
      <Problem error={error ?? failed} />
      {!data && !error && <Empty>…</Empty>}
      {data && !data.folder && <Empty>{"No folder is set. `ekiden lab run NAME --out /var/lib/ekiden/reports` writes a report; `reports = \"/var/lib/ekiden/reports\"` in `[management]` shows it here."}</Empty>}
      {data?.folder && reports.length === 0 && <Empty>{`No reports in \`${data.folder}\` yet. \`ekiden lab run NAME --out\` writes them there.`}</Empty>}
      {reports.map((report) => (
        <section key={`${report.experiment}/${report.engine}`} aria-label={`${report.experiment}, ${report.engine}`}>
          <h2>
            {report.experiment}, {report.engine}
          </h2>
          <p>
            Written {moment(new Date(report.written * 1000))}, by <Name>{report.version}</Name>. {judgement(report.claims)}
          </p>
          {report.page && (
            <p>
              <button type="button" onClick={() => keep(report).then(() => setFailed(null), setFailed)}>
                Save the whole report
              </button>
            </p>
          )}
          <Table label={`Claims of ${report.experiment}, ${report.engine}`} columns={claims} rows={report.claims} empty="None." />
        </section>
      ))}
    </>
  );
}
