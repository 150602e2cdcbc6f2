// Numbers, sizes, rates and lengths of time as text.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** @param {number} value */
export const count = (value) => WHOLE.format(value);

/** @param {number} value with three digits, as 1.23K */
export const compact = (value) => (Math.abs(value) < 1000 ? digits(value) : SHORT.format(value));

/** @param {number} value with three digits at most */
function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
}

/** @param {number} value */
export function bytes(value) {
  let unit = 0;
  let left = value;
  while (Math.abs(left) >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit ? digits(left) : WHOLE.format(left)} ${UNITS[unit]}`;
}

/** @param {number} ratio of 1 */
export const percent = (ratio) => `${digits(100 * ratio)} %`;

const PARTS = /** @type {const} */ ([
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
]);

/** A length of time in its two largest units. @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const first = PARTS.findIndex(([, size]) => ms >= size);
  const [name, size] = /** @type {typeof PARTS[number]} */ (PARTS[first]);
  const next = PARTS[first + 1];
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return `${Math.floor(ms / size)} ${name}${next && rest ? ` ${rest} ${next[0]}` : ""}`;
}

/** A latency in one unit. @param {number} seconds */
export function latency(seconds) {
  if (seconds < 0.001) return `${digits(seconds * 1e6)} µs`;
  return seconds < 1 ? `${digits(seconds * 1000)} ms` : `${digits(seconds)} s`;
}

/** @param {number} number @param {string} one @param {string} [several] */
export const plural = (number, one, several = `${one}s`) => `${count(number)} ${number === 1 ? one : several}`;
