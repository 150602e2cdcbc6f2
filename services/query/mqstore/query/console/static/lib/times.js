// Points in time: as text in local time or UTC, relative, and from what users write.
import { duration } from "./format.js";
import { signal } from "./html.js";

const NAME = "mqstore.zone";

/** @typedef {"local" | "utc"} Zone */

/** The zone that times are shown in. */
export const zone = signal(/** @type {Zone} */ (localStorage.getItem(NAME) === "utc" ? "utc" : "local"));

/** @param {Zone} chosen */
export function setZone(chosen) {
  zone.value = chosen;
  localStorage.setItem(NAME, chosen);
}

/** @param {number} number @param {number} [width] */
const padded = (number, width = 2) => String(number).padStart(width, "0");

/** A date and time without a zone, as 2026-11-27 12:00:00.000. @param {number} ms @param {Zone} [of] */
export function formatTime(ms, of = zone.value) {
  const time = new Date(ms);
  if (Number.isNaN(time.getTime())) return String(ms);
  const [year, month, day, hour, minute, second] =
    of === "utc"
      ? [time.getUTCFullYear(), time.getUTCMonth(), time.getUTCDate(), time.getUTCHours(), time.getUTCMinutes(), time.getUTCSeconds()]
      : [time.getFullYear(), time.getMonth(), time.getDate(), time.getHours(), time.getMinutes(), time.getSeconds()];
  const clock = `${padded(hour)}:${padded(minute)}:${padded(second)}.${padded(time.getUTCMilliseconds(), 3)}`;
  return `${padded(year, 4)}-${padded(month + 1)}-${padded(day)} ${clock}`;
}

/** @param {number} ms @param {number} [now] */
export function relative(ms, now = Date.now()) {
  const distance = now - ms;
  if (Math.abs(distance) < 1000) return "now";
  return distance > 0 ? `${duration(distance)} ago` : `in ${duration(-distance)}`;
}

/** Local time, UTC and distance, for a tooltip. @param {number} ms */
export const everyForm = (ms) => `${formatTime(ms, "local")} local\n${formatTime(ms, "utc")} UTC\n${relative(ms)}`;

const UNITS_MS = /** @type {Record<string, number>} */ ({ s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 });

/** The time that a text names: `now`, `now-15m`, RFC 3339, milliseconds, or a date and time in the
 * chosen zone. Returns undefined for another text.
 * @param {string} text @param {number} [now] @returns {number | undefined}
 */
export function parseTime(text, now = Date.now()) {
  const given = text.trim();
  const ago = /^now(?:-(\d+)([smhd]))?$/.exec(given);
  if (ago) return now - Number(ago[1] ?? 0) * (UNITS_MS[ago[2] ?? "s"] ?? 0);
  if (/^\d{12,15}$/.test(given)) return Number(given);
  const parts = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?))?(Z|[+-]\d\d:\d\d)?$/.exec(given);
  if (!parts) return undefined;
  const suffix = parts[3] ?? (zone.value === "utc" ? "Z" : "");
  const found = new Date(`${parts[1]}T${parts[2] ?? "00:00"}${suffix}`).getTime();
  return Number.isNaN(found) ? undefined : found;
}
