// How long puts and searches take: quantiles and heat maps of the last hour, by shard.
import { count, latency } from "../../lib/format.js";
import { points, seriesOf, unread } from "../../lib/history.js";
import { html, useMemo } from "../../lib/html.js";
import { quantileOf, totalOf } from "../../lib/metrics.js";
import { setState } from "../../lib/router.js";
import { shards } from "../../lib/shards.js";
import { Chart } from "../../parts/chart.js";
import { SelectField } from "../../parts/form.js";
import { Card, Page } from "../../parts/page.js";
import { Empty, MissingShards } from "../../parts/states.js";
import { countsAt, countsOfAll, heatOf } from "./heat.js";
import { HeatMap } from "./heatmap.js";

/** @typedef {import("../../lib/history.js").Operation} Operation */
/** @typedef {import("../../lib/history.js").Point} Point */

const COLUMNS = 120;
/** Shorter times are plotted as a part of so many minutes. */
const SHORTEST_MS = 600_000;

const QUANTILES = [0.5, 0.9, 0.99, 0.999];

const OPERATIONS = /** @type {[Operation, string, string][]} */ ([
  ["put", "Put", "Storing one request's messages in the log, in store-writer."],
  ["search", "Search", "Requests that find messages by topic, key or id, in query. Those that wait for new messages are not counted."],
  ["sync", "Sync", "Waiting for the disk, in requests with durability sync."],
]);

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Latencies({ state }) {
  const shard = shards.value.find((each) => String(each) === state.shard) ?? null;
  const isUnknown = state.shard !== undefined && shard === null;
  const choices = /** @type {[string, string][]} */ ([["", "All shards"], ...shards.value.map((/** @type {number} */ each) => [String(each), `Shard ${each}`])]);
  const choice = shards.value.length > 1 || isUnknown ? html`<${SelectField} class="inline" label="Shard" value=${shard === null ? "" : String(shard)} options=${choices} onChange=${(/** @type {string} */ value) => setState({ shard: value })} />` : null;
  return html`<${Page} title="Latencies" hint="Of the last hour, from the services' metrics." actions=${choice}>
    <${MissingShards} missing=${unread.value} />
    ${isUnknown
      ? html`<${Empty} title=${`There is no shard ${state.shard}`}>Choose one of ${shards.value.join(", ")}, or all.<//>`
      : html`<div class="grid wide-cells">${OPERATIONS.map(([operation, title, why]) => html`<${Plots} key=${operation} operation=${operation} title=${title} why=${why} shard=${shard} />`)}</div>`}
  <//>`;
}

/** @param {{operation: Operation, title: string, why: string, shard: number | null}} props */
function Plots({ operation, title, why, shard }) {
  const all = /** @type {Point[]} */ (points.value);
  const { plot, sum, heat } = useMemo(() => {
    const at = (/** @type {number} */ quantile) => (/** @type {Point} */ each) => quantileOf(countsAt(each, operation, shard), quantile) ?? null;
    const toMs = all.at(-1)?.atMs ?? 0;
    const fromMs = Math.min(all[0]?.fromMs ?? 0, toMs - SHORTEST_MS);
    return { plot: seriesOf(all, [at(0.5), at(0.99)]), sum: countsOfAll(all, operation, shard), heat: heatOf(all, operation, shard, fromMs, toMs, COLUMNS) };
  }, [all, operation, shard]);
  const total = totalOf(sum);
  const text = (/** @type {number} */ quantile) => latency(quantileOf(sum, quantile) ?? 0);
  return html`<${Card} title=${title} aside=${html`<span class="muted small">${count(total)} in the plotted time</span>`}>
    <div class="stack">
      <p class="muted small">${why}</p>
      ${heat === null
        ? html`<${Empty} title="None yet">They appear here some seconds after the first one.<//>`
        : html`<${Chart} label=${`${title}: latency`} times=${plot.times} series=${[{ name: "p50", values: plot.series[0] ?? [] }, { name: "p99", values: plot.series[1] ?? [] }]} format=${latency} />
            <${HeatMap} label=${`${title}: operations by time and latency; half take at most ${text(0.5)}, 99 % at most ${text(0.99)}`} heat=${heat} />
            <dl class="quantiles">${QUANTILES.map((each) => html`<div key=${each}><dt>p${100 * each}</dt><dd>${text(each)}</dd></div>`)}</dl>`}
    </div>
  <//>`;
}
