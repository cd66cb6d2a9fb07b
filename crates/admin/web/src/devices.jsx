// Devices of an account: how they are recognised, and what is handed out for one that comes by WireGuard.

import { Choice, Copy, Field, Name, Qr, Save, Words } from "./parts.jsx";

const KINDS = [
  ["password", "user and password"],
  ["prefix", "address"],
  ["peer", "peer"],
  ["wireguard", "WireGuard (telephone)"],
];

/** What tells a device's kind in a table. */
export const BY = { password: "user", prefix: "address", peer: "peer", wireguard: "WireGuard" };

export const NO_DEVICE = { kind: "password", user: "", password: "", prefix: "", peer: "", name: "" };

/** The document of a device in the form. */
export function device({ kind, user, password, prefix, peer, name }) {
  if (kind === "password") return { kind, user: user.trim(), password };
  if (kind === "wireguard") return { kind, name: name.trim() };
  return kind === "prefix" ? { kind, prefix: prefix.trim() } : { kind, peer: peer.trim() };
}

/** 20 letters that are not mistaken for others: 100 bits. */
function password() {
  const letters = "abcdefghijkmnpqrstuvwxyz23456789";
  const random = crypto.getRandomValues(new Uint8Array(20));
  return Array.from(random, (byte) => letters[byte % letters.length]).join("");
}

export function DeviceFields({ draft, set, first }) {
  const field = (key) => ({ required: true, autocomplete: "off", value: draft[key], onInput: (event) => set({ ...draft, [key]: event.target.value }) });
  return (
    <div class="row">
      <Choice label="Recognised by" value={draft.kind} set={(kind) => set({ ...draft, kind })} options={KINDS} />
      {draft.kind === "password" && (
        <>
          <Field label="User">
            <input {...field("user")} />
          </Field>
          <Field label="Password" hint="8 characters or more. Write it down: only its hash is kept.">
            <input minLength={8} {...field("password")} />
            <button type="button" onClick={() => set({ ...draft, password: password() })}>
              Make one
            </button>
          </Field>
        </>
      )}
      {draft.kind === "prefix" && (
        <Field label="Address or prefix" hint="Such as 100.64.7.0/24.">
          <input {...field("prefix")} />
        </Field>
      )}
      {draft.kind === "peer" && (
        <Field label="Peer" hint="Its name under Peers.">
          <input {...field("peer")} />
        </Field>
      )}
      {draft.kind === "wireguard" && (
        <Field label="Name of the device" hint={first ? "Such as phone." : "Such as phone. A device of this name gets a new key."}>
          <input maxLength={63} {...field("name")} />
        </Field>
      )}
    </div>
  );
}

/** What new devices are set up with: shown once, as the relay keeps no private key. */
export function Configurations({ made, done }) {
  return made.map(({ device, text, code, names_servers }) => (
    <div class="invitation" role="status" key={device}>
      <h3>
        Configuration for <Name>{device}</Name>
      </h3>
      <p>
        In the app WireGuard tap +, then scan the code. On a computer save the file, and import it. It holds the device's private key and is shown only now.
      </p>
      {!names_servers && (
        <p class="problem">
          <Words text="It names no name server, so pages may not load: set `listen` in [dns], or `dns` in [wireguard], and hand out a new one." />
        </p>
      )}
      {code && <Qr code={code} label={`Configuration for ${device} as a QR code`} />}
      <details>
        <summary>As text</summary>
        <pre tabIndex={0}>{text}</pre>
      </details>
      <p class="actions">
        <Copy text={text} />
        <Save text={text} name={fileName(device)} />
        <button type="button" onClick={done}>
          Done
        </button>
      </p>
    </div>
  ));
}

/** `wg-quick` takes the interface's name from the file's: 15 letters at most. */
function fileName(device) {
  return `${device.replace(/[^A-Za-z0-9_=+.-]/g, "").slice(0, 15) || "ekiden"}.conf`;
}
