import { count, percent } from "../lib/format.js";
import { html } from "../lib/html.js";

/** @typedef {{name: string, value: number, why?: string}} Share */

/** Parts of a sum as a bar, with a legend that says the same; at most six.
 * @param {{label: string, of: Share[]}} props
 */
export function Shares({ label, of }) {
  const total = of.reduce((sum, each) => sum + each.value, 0);
  const width = (/** @type {Share} */ each) => `${(100 * each.value) / total}%`;
  return html`<figure class="shares">
    <div class="shares-bar" role="img" aria-label=${`${label}: ${of.map((each) => `${each.name} ${count(each.value)}`).join(", ")}`}>
      ${total > 0 && of.map((each, i) => each.value > 0 && html`<i key=${each.name} class="s${i + 1}" title=${`${each.name}: ${percent(each.value / total)}`} style=${{ width: width(each) }}></i>`)}
    </div>
    <figcaption class="legend">
      ${of.map((each, i) => html`<span key=${each.name} class="s${i + 1}" title=${each.why}>${each.name} <b>${count(each.value)}</b></span>`)}
    </figcaption>
  </figure>`;
}
