// Alerts that stand, who is told, and a trial.

import { useState } from "preact/hooks";
import { send } from "./api.js";
import { count, moment, span } from "./format.js";
import { useData } from "./hooks.js";
import { Empty, Name, Problem, Table, Words } from "./parts.jsx";

const TRIAL = "/page/alerts/trial";
const NOBODY = "Nobody is told of alerts. Set `webhook` or `mail_to` in [alerts], and reload the configuration.";

const standing = [
  { name: "Alert", show: (alert) => <code>{alert.alert}</code> },
  { name: "About", show: (alert) => <Name>{alert.subject}</Name> },
  { name: "What", class: "wide", show: (alert) => <Name>{alert.text}</Name> },
  { name: "For", class: "num", show: (alert) => span(alert.for_seconds) },
];

const receivers = [
  { name: "Receiver", show: (one) => one.to },
  { name: "Delivered", class: "num", show: (one) => count(one.delivered) },
  { name: "Failed", class: "num", show: (one) => count(one.failed) },
  { name: "Waiting", class: "num", show: (one) => count(one.waiting) },
  { name: "State", class: "wide", show: (one) => (one.last_error ? <span class="state bad"><Name>{one.last_error}</Name></span> : "fine") },
];

const outcomes = [
  { name: "Receiver", show: (one) => one.to },
  { name: "Trial", show: (one) => <span class={one.error ? "state bad" : "state"}>{one.error ? "not delivered" : "delivered"}</span> },
  { name: "Answer", class: "wide", show: (one) => <Name>{one.error ?? one.answer}</Name> },
];

function Trial({ any }) {
  const [waits, setWaits] = useState(false);
  const { data, error, again } = useData(TRIAL, waits ? 1000 : 0);
  const [failed, setFailed] = useState(null);
  const trial = data?.trial;
  const underWay = Boolean(trial && !trial.outcomes);
  // asks again while one is under way, and not longer
  if (underWay !== waits) setWaits(underWay);
  const begin = async () => {
    try {
      await send("POST", TRIAL);
      setFailed(null);
    } catch (why) {
      setFailed(why);
    }
    again();
  };
  return (
    <section aria-labelledby="trial">
      <h2 id="trial">Trial</h2>
      <p>A trial alert goes to every receiver, and says that it is one.</p>
      <p>
        <button type="button" disabled={!any || underWay} onClick={begin}>
          Send a trial alert
        </button>
      </p>
      <Problem error={failed ?? error} />
      <p role="status">
        {underWay && "Under way. A receiver that does not answer takes a minute."}
        {trial?.outcomes && `Sent ${moment(new Date(trial.begun))}.`}
      </p>
      {trial?.outcomes && <Table label="Outcome of the trial" columns={outcomes} rows={trial.outcomes} empty="Nobody is told of alerts." />}
    </section>
  );
}

export function Alerts({ live }) {
  const alerts = live?.status.alerts;
  const told = alerts?.receivers ?? [];
  return (
    <>
      <h1>Alerts</h1>
      {!live && <Empty>…</Empty>}
      {live && (
        <>
          <Table label="Alerts" columns={standing} rows={alerts?.standing ?? []} id={(alert) => `${alert.alert} ${alert.subject}`} empty="No alert stands." />
          {live.standing > (alerts?.standing.length ?? 0) && (
            <p>
              <Words text={`The first ${alerts.standing.length} of ${count(live.standing)}. \`ekiden status\` lists all.`} />
            </p>
          )}
          <section aria-labelledby="receivers">
            <h2 id="receivers">Receivers</h2>
            {told.length === 0 ? (
              <p>
                <Words text={NOBODY} />
              </p>
            ) : (
              <Table label="Receivers" columns={receivers} rows={told} id={(one) => one.to} empty="" />
            )}
          </section>
          <Trial any={told.length > 0} />
        </>
      )}
    </>
  );
}
