// Parts of several views.

import { useState } from "preact/hooks";
import { count as grouped } from "./format.js";
import { QUIET } from "./qr.js";

/** A name that another chose: text, whose direction does not spread. */
export const Name = ({ children }) => <bdi>{children}</bdi>;

/** A text in which commands and keys stand in backticks. */
export const Words = ({ text }) => text.split("`").map((part, n) => (n % 2 === 1 ? <code key={n}>{part}</code> : part));

export const Empty = ({ children }) => <p class="empty">{typeof children === "string" ? <Words text={children} /> : children}</p>;

export function Problem({ error }) {
  if (!error) return null;
  return (
    <p class="problem" role="alert">
      {error.message}
      {error.hint && (
        <span class="hint">
          {" "}
          <Words text={error.hint} />
        </span>
      )}
    </p>
  );
}

/** A table that becomes a list of cards where it is narrow; roles stay, whatever the style sheet does. */
export function Table({ label, columns, rows, id, empty }) {
  if (rows.length === 0) return <Empty>{empty}</Empty>;
  return (
    <table role="table" aria-label={label}>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map((column) => (
            <th role="columnheader" scope="col" class={column.class} key={column.name}>
              {column.name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row, n) => (
          <tr role="row" key={id ? id(row) : n}>
            {columns.map((column) => (
              <td role="cell" class={column.class} data-label={column.name} key={column.name}>
                {column.show(row, n)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** How much of a whole; `label` says it to a screen reader. */
export function Meter({ share, label, low }) {
  const percent = Math.min(100, Math.max(0, share * 100));
  return (
    <svg class={low ? "meter low" : "meter"} viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={label}>
      <rect class="all" width="100" height="4" />
      <rect class="used" width={percent} height="4" />
    </svg>
  );
}

/** Which of `found` are shown, and the way to the others. */
export function Pager({ offset, count, found, total, noun, go }) {
  // the list says so itself
  if (total === 0) return null;
  const last = Math.min(found, offset + count);
  const of = found === total ? grouped(found) : `${grouped(found)} that match, ${grouped(total)} in all`;
  return (
    <nav class="pager" aria-label={`Pages of ${noun}`}>
      <span role="status">{found === 0 ? `no ${noun}` : `${grouped(offset + 1)} to ${grouped(last)} of ${of}`}</span>
      <button type="button" disabled={offset === 0} onClick={() => go(Math.max(0, offset - count))}>
        Previous
      </button>
      <button type="button" disabled={last >= found} onClick={() => go(offset + count)}>
        Next
      </button>
      <button type="button" disabled={last >= found} onClick={() => go(Math.floor((found - 1) / count) * count)}>
        Last
      </button>
    </nav>
  );
}

/** A button that asks once more before it does something. */
export function Sure({ children, sure, act, class: style }) {
  const [asked, setAsked] = useState(false);
  if (!asked) {
    return (
      <button type="button" class={style} onClick={() => setAsked(true)}>
        {children}
      </button>
    );
  }
  return (
    <span class="sure">
      <button
        type="button"
        class="danger"
        onClick={() => {
          setAsked(false);
          act();
        }}
      >
        {sure}
      </button>
      <button type="button" onClick={() => setAsked(false)}>
        Keep
      </button>
    </span>
  );
}

export function Field({ label, unit, hint, children }) {
  return (
    <label class="field">
      <span class="label">{label}</span>
      <span class="input">
        {children}
        {unit && <span class="unit">{unit}</span>}
      </span>
      {hint && (
        <small>
          <Words text={hint} />
        </small>
      )}
    </label>
  );
}

/** A field to search by. */
export const Find = ({ label, value, set }) => (
  <Field label={label}>
    <input type="search" value={value} onInput={(event) => set(event.target.value)} />
  </Field>
);

/** A choice; `options` are values and their texts. */
export const Choice = ({ label, value, set, options }) => (
  <Field label={label}>
    <select value={value} onChange={(event) => set(event.target.value)}>
      {options.map(([value, text]) => (
        <option value={value} key={value}>
          {text}
        </option>
      ))}
    </select>
  </Field>
);

/** A figure of a `dl`, with a remark below it. */
export function Figure({ name, children, note, class: style }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class={style}>
        {children}
        {note && <small>{note}</small>}
      </dd>
    </div>
  );
}

export function Qr({ code, label }) {
  const whole = code.side + 2 * QUIET;
  return (
    <svg class="qr" role="img" aria-label={label} viewBox={`-${QUIET} -${QUIET} ${whole} ${whole}`} shape-rendering="crispEdges">
      <rect x={-QUIET} y={-QUIET} width={whole} height={whole} fill="#fff" />
      <path fill="#000" d={code.path} />
    </svg>
  );
}

export function Copy({ text }) {
  const [done, setDone] = useState(false);
  // browsers have none where the page came over a network without TLS
  if (!navigator.clipboard) return null;
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setDone(true),
      () => setDone(false),
    );
  return (
    <button type="button" onClick={copy}>
      {done ? "Copied" : "Copy"}
    </button>
  );
}

/** Hands a text or a blob to the browser as a file. */
export function save(content, name) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export const Save = ({ text, name }) => (
  <button type="button" onClick={() => save(text, name)}>
    Save as {name}
  </button>
);
