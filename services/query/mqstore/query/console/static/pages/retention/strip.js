// The log as a strip in time: what goes, what stays, and how far each group has read.
import { plural } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { formatTime, relative } from "../../lib/times.js";
import { inWords, kindOf } from "./plan.js";

/** @typedef {import("./plan.js").Stretch} Stretch */
/** @typedef {import("./plan.js").Reader} Reader */

const MARKS_MAX = 40;
const LEGEND = /** @type {[import("./plan.js").Kind, string][]} */ ([
  ["goes", "goes now"],
  ["due", "expired, goes later"],
  ["held", "held"],
  ["kept", "kept"],
]);

/** @param {{segments: Stretch[], readers: Reader[], nowMs: number}} props segments: at least one */
export function Strip({ segments, readers, nowMs }) {
  const first = /** @type {Stretch} */ (segments[0]).fromMs;
  const last = Math.max(nowMs, /** @type {Stretch} */ (segments.at(-1)).modifiedMs);
  const at = (/** @type {number} */ ms) => (100 * Math.min(1, Math.max(0, (ms - first) / Math.max(1, last - first)))).toFixed(3);
  const shown = readers.filter((each) => each.fromMs >= first - 1000).slice(0, MARKS_MAX);
  const going = segments.filter((each) => each.goes).length;
  return html`<figure class="strip">
    <div role="img" aria-label=${`The log from ${formatTime(first)} to now: ${plural(segments.length, "segment")}, ${going} go now; ${plural(readers.length, "group")} behind. The tables below say the same.`}>
      <div class="strip-marks">
        ${shown.map((each) => html`<i key=${each.group} title=${`${each.group}: unread since ${formatTime(each.fromMs)}`} style=${{ left: `${at(each.fromMs)}%` }}></i>`)}
      </div>
      <div class="strip-bar">
        ${segments.map((each) => html`<i
          key=${each.name}
          class=${kindOf(each)}
          title=${`${each.name}\nstored ${formatTime(each.fromMs)} to ${formatTime(each.modifiedMs)}\n${inWords(each.why)}${each.heldBy.length ? `: ${each.heldBy.join(", ")}` : ""}`}
          style=${{ left: `${at(each.fromMs)}%`, width: `${(Number(at(each.why === "newest" ? last : each.modifiedMs)) - Number(at(each.fromMs))).toFixed(3)}%` }}
        ></i>`)}
      </div>
    </div>
    <div class="strip-ends small muted"><span>${relative(first, nowMs)}</span><span>now</span></div>
    <figcaption class="legend">
      ${LEGEND.map(([kind, text]) => html`<span key=${kind} class="of-strip ${kind}">${text}</span>`)}
      <span class="of-strip reader">oldest unread message of a group${readers.length > shown.length ? ` (${shown.length} of ${readers.length})` : ""}</span>
    </figcaption>
  </figure>`;
}
