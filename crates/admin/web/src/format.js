// Quantities as text: three digits and a unit.

function digits(x) {
  if (x === 0) return "0";
  if (x < 10) return x.toFixed(2);
  return x < 100 ? x.toFixed(1) : x.toFixed(0);
}

function scaled(x, step, units) {
  let at = 0;
  // 999.6 is 1.00 of the next unit
  while (x >= step * 0.9995 && at < units.length - 1) {
    x /= step;
    at += 1;
  }
  return `${digits(x)} ${units[at]}`;
}

export const NONE = "–";

/** Bits per second. */
export function rate(bits) {
  if (bits == null) return NONE;
  if (bits < 1000) return `${Math.round(bits)} bit/s`;
  return scaled(bits / 1000, 1000, ["kbit/s", "Mbit/s", "Gbit/s"]);
}

/** Bytes, in the units that quotas are sold in. */
export function bytes(n) {
  if (n == null) return NONE;
  if (n < 1000) return `${n} B`;
  return scaled(n / 1000, 1000, ["kB", "MB", "GB", "TB"]);
}

/** Bytes of buffers, in the units that `ekiden explain` has. */
export function size(n) {
  if (n == null) return NONE;
  if (n < 1024) return `${n} B`;
  return scaled(n / 1024, 1024, ["KiB", "MiB", "GiB"]);
}

/** Microseconds. */
export function delay(us) {
  if (us == null) return NONE;
  if (us < 1000) return `${Math.round(us)} µs`;
  return us < 999_500 ? `${digits(us / 1000)} ms` : `${digits(us / 1e6)} s`;
}

/** A part of one. */
export function percent(x) {
  if (x == null) return NONE;
  if (x === 0) return "0 %";
  return x < 0.0001 ? "< 0.01 %" : `${digits(x * 100)} %`;
}

export function count(n) {
  return n == null ? NONE : n.toLocaleString("en-US");
}

/** Seconds, in the two largest units. */
export function span(seconds) {
  if (seconds == null) return NONE;
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

const two = (n) => String(n).padStart(2, "0");

/** A moment in this browser's time zone. */
export function moment(date) {
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The number in a field, in `unit`; null where it is empty. Throws where it is none. */
export function number(text, unit, what) {
  const bare = text.trim();
  if (bare === "") return null;
  const n = Number(bare);
  if (!Number.isFinite(n) || n <= 0) throw new Error(`${what}: "${bare}" is not a number above 0`);
  return Math.round(n * unit);
}
