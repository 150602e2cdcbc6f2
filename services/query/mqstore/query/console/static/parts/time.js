import { html } from "../lib/html.js";
import { everyForm, formatTime, relative, zone } from "../lib/times.js";

/** A point in time in the chosen zone; a pointer on it shows local time, UTC and the distance.
 * @param {{ms: number | null | undefined, isRelative?: boolean, none?: string}} props
 */
export function Time({ ms, isRelative = false, none = "–" }) {
  if (ms === null || ms === undefined || ms <= 0) return html`<span class="muted">${none}</span>`;
  const text = isRelative ? relative(ms) : formatTime(ms, zone.value);
  const time = new Date(ms);
  return html`<time datetime=${Number.isNaN(time.getTime()) ? undefined : time.toISOString()} title=${everyForm(ms)}>${text}</time>`;
}
