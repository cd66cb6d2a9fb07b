// Peers, and invitations for them.

import { useState } from "preact/hooks";
import { send } from "./api.js";
import { NONE, number, rate } from "./format.js";
import { useData } from "./hooks.js";
import { Copy, Empty, Field, Name, Problem, Qr, Sure, Table, Words } from "./parts.jsx";

const MEGA = 1e6;
const KINDS = { invited: "invited, has not come yet", peer: "connects to this relay", joined: "this relay joined it" };

function state(peer) {
  if (peer.kind === "invited") return "waits for the peer";
  if (peer.up === null) return "not known";
  return peer.up ? "up" : <span class="state bad">down</span>;
}

export function Peers() {
  const { data, error, again } = useData("/page/peers", 3000);
  const [failed, setFailed] = useState(null);
  const revoke = async (name) => {
    try {
      await send("DELETE", `/page/peers/${encodeURIComponent(name)}`);
      setFailed(null);
    } catch (why) {
      setFailed(why);
    }
    again();
  };
  const columns = [
    { name: "Peer", show: (peer) => <Name>{peer.name}</Name> },
    { name: "Tunnel", show: state },
    { name: "Sends it", class: "num", show: (peer) => rate(peer.send) },
    { name: "Receives", class: "num", show: (peer) => rate(peer.receive) },
    { name: "How", show: (peer) => KINDS[peer.kind] },
    { name: "Address", show: (peer) => (peer.address ? <Name>{peer.address}</Name> : NONE) },
    {
      name: "Change",
      show: (peer) => (
        <Sure sure={`Remove ${peer.name}`} act={() => revoke(peer.name)}>
          Remove
        </Sure>
      ),
    },
  ];
  return (
    <>
      <h1>Peers</h1>
      <Problem error={error ?? failed} />
      {data ? (
        <Table label="Peers" columns={columns} rows={data.peers} id={(peer) => peer.name} empty="No peers. Invite one below, or join one with `ekiden peer join`." />
      ) : (
        !error && <Empty>…</Empty>
      )}
      <Invite listens={data?.listens ?? true} again={again} />
    </>
  );
}

// through an SSH tunnel this page has an address that no peer can use
const LOCAL = /^(127\.|\[::1\]|localhost$)/;

function Invite({ listens, again }) {
  const own = LOCAL.test(location.hostname) ? "" : `${location.hostname}:4433`;
  const [draft, setDraft] = useState({ name: "", address: own, send: "", receive: "", renew: false });
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const field = (key) => ({ required: true, autocomplete: "off", value: draft[key], onInput: (event) => setDraft({ ...draft, [key]: event.target.value }) });
  const submit = async (event) => {
    event.preventDefault();
    try {
      const { name, address, renew } = draft;
      const [up, down] = [number(draft.send, MEGA, "Sends it"), number(draft.receive, MEGA, "Receives")];
      setMade({ name, ...(await send("POST", "/page/peers", { name, address, renew, send: up, receive: down })) });
      setError(null);
      again();
    } catch (why) {
      setError(why);
    }
  };
  if (!listens) {
    return (
      <section aria-labelledby="invite">
        <h2 id="invite">Invite a peer</h2>
        <p>
          <Words text={'This relay does not listen for tunnels yet. Set `listen = ["0.0.0.0:4433"]` in [tunnel] of its configuration, and restart it: `systemctl restart ekiden`.'} />{" "}
          <a href="#/configuration">Configuration</a> names the file.
        </p>
      </section>
    );
  }
  return (
    <section aria-labelledby="invite">
      <h2 id="invite">Invite a peer</h2>
      <form class="sheet" onSubmit={submit}>
        <div class="row">
          <Field label="Name of the peer" hint="Letters, digits, - and _.">
            <input maxLength={63} pattern="[A-Za-z0-9_\-]+" {...field("name")} />
          </Field>
          <Field label="Address of this relay" hint="As the peer reaches it, over UDP. Such as relay.example.org:4433.">
            <input {...field("address")} />
          </Field>
        </div>
        <div class="row">
          <Field label="The link carries towards it" unit="Mbit/s">
            <input inputMode="decimal" {...field("send")} />
          </Field>
          <Field label="The link carries from it" unit="Mbit/s">
            <input inputMode="decimal" {...field("receive")} />
          </Field>
        </div>
        <label class="check">
          <input type="checkbox" checked={draft.renew} onChange={(event) => setDraft({ ...draft, renew: event.target.checked })} />
          Replace a peer of this name
        </label>
        <Problem error={error} />
        <p class="actions">
          <button type="submit" class="primary">
            Invite
          </button>
        </p>
      </form>
      {made && (
        <div class="invitation" role="status">
          <h3>
            Invitation for <Name>{made.name}</Name>
          </h3>
          <p>It works once, for anyone who has it, and is shown only now. On the other relay's machine run:</p>
          <pre tabIndex={0}>ekiden peer join --name shore {made.invitation}</pre>
          <p class="actions">
            <Copy text={`ekiden peer join --name shore ${made.invitation}`} />
            <button type="button" onClick={() => setMade(null)}>
              Done
            </button>
          </p>
          {made.code && <Qr code={made.code} label={`Invitation for ${made.name} as a QR code`} />}
        </div>
      )}
    </section>
  );
}
