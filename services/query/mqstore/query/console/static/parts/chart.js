import { html, useEffect, useRef } from "../lib/html.js";
import { zone } from "../lib/times.js";
import { theme } from "../lib/theme.js";
import uPlot from "../vendor/uplot.js";

/** @typedef {{name: string, values: (number | null)[]}} Series */

const HEIGHT_PX = 160;

/** A plot over time, with its latest values as text.
 * @param {{label: string, times: number[], series: Series[], format: (value: number) => string}} props times in ms; at most three series
 */
export function Chart({ label, times, series, format }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const formatting = useRef(format);
  formatting.current = format;
  const names = series.map((each) => each.name).join("\n");
  const data = /** @type {import("../vendor/uplot.js").default.AlignedData} */ ([times.map((ms) => ms / 1000), ...series.map((each) => each.values)]);
  useEffect(() => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    const options = optionsOf(element, names.split("\n"), (value) => formatting.current(value));
    plot.current = new uPlot(options, data, element);
    const sizes = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      plot.current.destroy();
    };
  }, [names, theme.value, zone.value]);
  useEffect(() => plot.current?.setData(data), [times, series]);
  const latest = (/** @type {Series} */ each) => each.values.at(-1);
  return html`<figure>
    <div class="chart" ref=${box} role="img" aria-label=${`${label}, last hour`}></div>
    <figcaption class="legend">
      ${series.map((each, i) => {
        const value = latest(each);
        return html`<span key=${each.name} class="s${i + 1}">${each.name} <b>${value === null || value === undefined ? "–" : format(value)}</b></span>`;
      })}
    </figcaption>
  </figure>`;
}

/** @param {HTMLElement} element @param {string[]} names @param {(value: number) => string} format */
function optionsOf(element, names, format) {
  const colour = (/** @type {string} */ name) => resolvedColour(element, name);
  const axis = { stroke: colour("--muted"), font: `11px ${getComputedStyle(element).fontFamily}`, ticks: { show: false }, grid: { stroke: colour("--line"), width: 1 } };
  return {
    width: element.clientWidth || 300,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { drag: { setScale: false }, y: false },
    tzDate: zone.value === "utc" ? (/** @type {number} */ s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC") : undefined,
    scales: { x: { time: true, range: rangeOf }, y: { range: heightOf } },
    axes: [
      { ...axis, grid: { show: false }, values: "{HH}:{mm}", space: 70 },
      { ...axis, size: 62, values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map(format), space: 34 },
    ],
    series: [{}, ...names.map((name, i) => ({ label: name, stroke: colour(`--series-${i + 1}`), width: 1.75, fill: i ? undefined : fade(colour("--series-1")), points: { show: false } }))],
  };
}

/** Ten minutes at least, so that the first values are not a line across the whole plot. The end is
 * not in the future: for a single value uPlot gives the next day.
 * @param {any} _ @param {number | null} first @param {number | null} last @returns {[number, number]}
 */
function rangeOf(_, first, last) {
  const now = Date.now() / 1000;
  const end = Math.min(last ?? now, now);
  return [Math.min(first ?? end, end - 600), end];
}

/** From zero to above the greatest value. @param {any} _ @param {number | null} __ @param {number | null} greatest @returns {[number, number]} */
const heightOf = (_, __, greatest) => [0, greatest ? greatest * 1.1 : 1];

/** The colour of a token now, as a canvas takes it. @param {HTMLElement} element @param {string} name */
export function resolvedColour(element, name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** @param {string} colour rgb(…) */
const fade = (colour) => colour.replace("rgb(", "rgba(").replace(")", ", 0.09)");
