import { count, latency, plural } from "../../lib/format.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { theme } from "../../lib/theme.js";
import { formatTime, zone } from "../../lib/times.js";
import { resolvedColour } from "../../parts/chart.js";
import { strengthOf } from "./heat.js";

const ROW_PX = 12;

/** Latencies over time: the stronger a cell, the more operations. A pointer on a cell shows its numbers.
 * @param {{label: string, heat: import("./heat.js").Heat}} props
 */
export function HeatMap({ label, heat }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [pointed, setPointed] = useState(/** @type {{column: number, row: number} | null} */ (null));
  const { bounds, cells, greatest, fromMs, toMs } = heat;
  const columns = cells.length;
  useEffect(() => paint(/** @type {HTMLCanvasElement} */ (canvas.current), heat), [heat, theme.value]);
  const point = (/** @type {any} */ event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = bounds.length - 1 - Math.floor(((event.clientY - box.top) / box.height) * bounds.length);
    setPointed(cells[column]?.[row] === undefined ? null : { column, row });
  };
  const at = (/** @type {number} */ column) => formatTime(fromMs + ((toMs - fromMs) * column) / columns, zone.value).slice(11, 19);
  return html`<figure class="heat">
    <div class="heat-rows" aria-hidden="true"><span>${boundText(bounds, bounds.length - 1)}</span>${bounds.length > 1 && html`<span>${boundText(bounds, 0)}</span>`}</div>
    <canvas ref=${canvas} role="img" aria-label=${label} width=${columns} height=${bounds.length} style=${{ height: `${Math.max(48, bounds.length * ROW_PX)}px` }} onPointerMove=${point} onPointerLeave=${() => setPointed(null)}></canvas>
    <div class="heat-ends" aria-hidden="true"><span>${at(0)}</span><span>${at(columns)}</span></div>
    <figcaption class="small muted">
      ${pointed
        ? `${at(pointed.column)} to ${at(pointed.column + 1)}, ${boundText(bounds, pointed.row)}: ${plural(cells[pointed.column]?.[pointed.row] ?? 0, "operation")}`
        : `Up to ${count(greatest)} operations in a cell`}
    </figcaption>
  </figure>`;
}

/** The values that a row has. @param {number[]} bounds @param {number} row */
export function boundText(bounds, row) {
  const bound = /** @type {number} */ (bounds[row]);
  if (bound === Infinity) return row ? `> ${latency(/** @type {number} */ (bounds[row - 1]))}` : "above all";
  return `≤ ${latency(bound)}`;
}

/** One pixel a cell, which the style enlarges. @param {HTMLCanvasElement} canvas @param {import("./heat.js").Heat} heat */
function paint(canvas, { bounds, cells, greatest }) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = resolvedColour(canvas.parentElement ?? canvas, "--series-1");
  cells.forEach((column, x) =>
    column.forEach((number, row) => {
      context.globalAlpha = strengthOf(number, greatest);
      if (number) context.fillRect(x, bounds.length - 1 - row, 1, 1);
    }),
  );
}
