// The state of the whole store at a glance.
import { request } from "../../lib/api.js";
import { bytes, compact, count, duration, latency, percent, plural } from "../../lib/format.js";
import { points, seriesOf, unread } from "../../lib/history.js";
import { html, useMemo } from "../../lib/html.js";
import { ageOf, ageText, GROUPS_MAX, loadLags } from "../../lib/lags.js";
import { useLoad } from "../../lib/load.js";
import { href } from "../../lib/router.js";
import { eachShard, missingOf } from "../../lib/shards.js";
import { Chart } from "../../parts/chart.js";
import { Badge, Card, Facts, Page, Tile } from "../../parts/page.js";
import { Empty, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { Events } from "./events.js";
import { growthOf, timeUntil } from "./forecast.js";
import { recoveryInWords } from "./words.js";

/** @typedef {{store: any, retention: any, recovery: any}} ShardState */
/** @typedef {{kind: string, severity: string, shard: number, text: string, page: string}} Finding */
/** @typedef {import("../../lib/shards.js").OfShards<ShardState>} States */

/** @returns {Promise<States>} */
const loadStates = (/** @type {AbortSignal} */ signal) =>
  eachShard(async (shard) => {
    const get = (/** @type {string} */ each) => request({ service: "writer", path: each, params: { shard }, signal });
    const [store, retention, recovery] = await Promise.all([get("/v1/store"), get("/v1/store/retention"), get("/v1/store/recovery")]);
    return { store, retention, recovery };
  });

/** What is wrong now: the list of `mqstore check`, of `kubectl mqstore status` and of the alerts. */
const loadFindings = (/** @type {AbortSignal} */ signal) => request({ path: "/v1/findings", signal });

export default function Overview() {
  const states = useLoad(loadStates, [], { everyS: 10 });
  const findings = useLoad(loadFindings, [], { everyS: 10 });
  return html`<${Page} title="Overview">
    <${Shown} of=${states} lines=${8}>
      ${(/** @type {States} */ found) => html`
        <${MissingShards} missing=${missingOf(unread.value, found.missing)} />
        <${Health} states=${found} findings=${findings} />
        <${Figures} states=${found} />`}
    <//>
    <${Plots} />
    <div class="grid wide-cells">
      ${states.data && html`<${Disks} states=${states.data} />`}
      <${Lags} />
      ${states.data && html`<${Recoveries} states=${states.data} />`}
      <${Events} />
    </div>
  <//>`;
}

/** What is wrong now, in order of importance. @param {States} states @param {Finding[]} findings @returns {{kind: "bad" | "warning", title: string, text: string}[]} */
export function troublesOf({ answers }, findings) {
  /** @type {ReturnType<typeof troublesOf>} */
  const found = findings.map(({ kind, severity, shard, text, page }) => {
    const words = kind.replaceAll("-", " ");
    const at = answers.size > 1 ? `, shard ${shard}` : "";
    return { kind: severity === "critical" ? "bad" : "warning", title: `${words[0]?.toUpperCase()}${words.slice(1)}${at}`, text: `${text}. How-to page: ${page}.` };
  });
  for (const [shard, { store }] of answers) {
    const at = answers.size > 1 ? ` of shard ${shard}` : "";
    if (!store.indexComplete && !store.indexTrouble) found.push({ kind: "warning", title: `The index${at} is not complete`, text: `${bytes(store.indexBehind)} are still to be indexed; searches by key say so.` });
  }
  return found;
}

/** @param {{states: States, findings: import("../../lib/load.js").Loaded<{findings: Finding[]}>}} props */
function Health({ states, findings }) {
  if (findings.error) return html`<${Notice} kind="warning" title="What is wrong is unknown">${String(findings.error.message ?? findings.error)}<//>`;
  if (!findings.data) return null;
  const troubles = troublesOf(states, findings.data.findings);
  const isMissing = Object.keys(states.missing).length > 0;
  if (!troubles.length && isMissing) return null;
  if (!troubles.length) return html`<${Notice} kind="good" title="All is well">Every shard takes messages, its index is complete and its replicas are in sync; no group is behind by ten minutes or has dead letters, and no transaction is stuck.<//>`;
  return troubles.map((each) => html`<${Notice} key=${each.title + each.text} kind=${each.kind} title=${each.title}>${each.text}<//>`);
}

/** @param {{states: States}} props */
function Figures({ states }) {
  const all = [...states.answers.values()];
  const sum = (/** @type {string} */ name) => all.reduce((total, each) => total + each.store[name], 0);
  const topics = Math.max(...all.map((each) => each.store.topics));
  const latest = points.value.at(-1);
  const rate = (/** @type {number | null | undefined} */ value, /** @type {(value: number) => string} */ format) => (value === null || value === undefined ? "–" : format(value));
  const log = all.reduce((total, { store }) => total + store.maxOffset - store.minOffset, 0);
  const complete = all.every((each) => each.store.indexComplete);
  return html`<div class="tiles">
    <${Tile} label="In" value=${rate(latest?.messagesIn, (value) => `${compact(value)}/s`)} note=${rate(latest?.bytesIn, (value) => `${bytes(value)}/s`)} />
    <${Tile} label="Out" value=${rate(latest?.messagesOut, (value) => `${compact(value)}/s`)} note=${rate(latest?.bytesOut, (value) => `${bytes(value)}/s`)} />
    <${Tile} label="Log" value=${bytes(log)} note=${plural(sum("segments"), "segment")} />
    <${Tile} label="Topics" value=${html`<a href=${href("topics")}>${count(topics)}</a>`} note=${`${plural(sum("queues"), "queue")} in use`} />
    <${Tile} label="Index" value=${complete ? "Complete" : "Not complete"} note=${plural(sum("indexFiles"), "file")} />
    <${Tile} label="Not on disk yet" value=${bytes(sum("flushBehind"))} note=${`${bytes(sum("dispatchBehind"))} not in queues`} />
  </div>`;
}

const PLOTS = /** @type {{title: string, series: [name: string, field: keyof import("../../lib/history.js").Point][], format: (value: number) => string}[]} */ ([
  { title: "Messages", series: [["In", "messagesIn"], ["Out", "messagesOut"]], format: (value) => `${compact(value)}/s` },
  { title: "Bytes", series: [["In", "bytesIn"], ["Out", "bytesOut"]], format: (value) => `${bytes(value)}/s` },
  { title: "Slowest 1 % of operations", series: [["Put", "put99"], ["Sync", "sync99"], ["Search", "search99"]], format: latency },
  { title: "Lag of all groups", series: [["Messages", "lag"]], format: compact },
]);

function Plots() {
  const all = points.value;
  const plots = useMemo(() => PLOTS.map(({ series }) => seriesOf(all, series.map(([, field]) => (/** @type {import("../../lib/history.js").Point} */ each) => /** @type {number | null} */ (each[field])))), [all]);
  return html`<div class="grid wide-cells">
    ${PLOTS.map(({ title, series, format }, i) => {
      const { times, series: values } = /** @type {typeof plots[number]} */ (plots[i]);
      const shown = series.map(([name], at) => ({ name, values: values[at] ?? [] }));
      return html`<${Card} key=${title} title=${title}><${Chart} label=${title} times=${times} series=${shown} format=${format} /><//>`;
    })}
  </div>`;
}

/** @param {{states: States}} props */
function Disks({ states }) {
  return html`<${Card} title="Disk" aside=${html`<span class="muted small">at the growth of the plotted time</span>`}>
    <div class="stack">
      ${[...states.answers].map(([shard, { retention }]) => html`<${Disk} key=${shard} shard=${shard} isNamed=${states.answers.size > 1} retention=${retention} />`)}
    </div>
  <//>`;
}

/** @param {{shard: number, isNamed: boolean, retention: any}} props */
function Disk({ shard, isNamed, retention }) {
  const volume = retention.volumes[0];
  const rule = retention.rule;
  const growth = growthOf(points.value.flatMap((/** @type {any} */ { atMs, diskUsed }) => (diskUsed.has(shard) ? [{ atMs, used: diskUsed.get(shard) }] : [])));
  const used = volume.usedBytes / volume.totalBytes;
  const kind = volume.usedPercent >= rule.diskSpaceWarningLevelRatio ? "bad" : volume.usedPercent >= rule.diskMaxUsedSpaceRatio ? "warning" : "";
  const steps = /** @type {[number, string][]} */ ([
    [rule.diskMaxUsedSpaceRatio, "expired segments are deleted at any hour"],
    [rule.diskSpaceCleanForciblyRatio, "segments may be deleted before their time, if so set"],
    [rule.diskSpaceWarningLevelRatio, "messages are refused"],
  ]);
  return html`<div class="stack">
    <div class="row"><strong>${isNamed ? `Shard ${shard}: ` : ""}${percent(used)} used</strong><span class="muted small">${bytes(volume.freeBytes)} free of ${bytes(volume.totalBytes)}</span></div>
    <div class="meter ${kind}" role="meter" aria-label="Used part of the volume" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(volume.usedPercent)}>
      <i style=${{ width: `${Math.min(100, volume.usedPercent)}%` }}></i>
    </div>
    <${Facts} of=${steps.map(([ratio, why]) => [`${ratio} %`, untilText(timeUntil(volume.usedBytes, volume.totalBytes, ratio, growth)), why])} />
  </div>`;
}

/** @param {number | undefined} ms */
function untilText(ms) {
  if (ms === 0) return "reached";
  if (ms === undefined) return "known after half a minute";
  if (ms > 10 * 365 * 86_400_000) return "not at this growth";
  return `in ${duration(ms)}`;
}

/** @param {{states: States}} props */
function Recoveries({ states }) {
  return html`<${Card} title="Last recovery">
    <div class="stack">
      ${[...states.answers].map(
        ([shard, { recovery }]) => html`<div key=${shard}>
          <h3>${states.answers.size > 1 ? `Shard ${shard}, ` : ""}<${Time} ms=${recovery.finishedAtMs} /></h3>
          ${recoveryInWords(recovery).map((text) => html`<p key=${text}>${text}</p>`)}
        </div>`,
      )}
    </div>
  <//>`;
}

function Lags() {
  const lags = useLoad(loadLags, [], { everyS: 10 });
  return html`<${Card} title="Greatest lags" isPlain>
    <${Shown} of=${lags}>
      ${(/** @type {import("../../lib/lags.js").Lags} */ { groups, missing, isCut }) => {
        const behind = groups.filter((each) => each.lag > 0).sort((a, b) => b.lag - a.lag);
        return html`<${MissingShards} missing=${missing} />
          ${behind.length === 0 && html`<${Empty} title=${isCut || Object.keys(missing).length ? "No group that was counted is behind" : "No group is behind"}>A group appears here when messages wait for it.<//>`}
          ${behind.length > 0 && html`<${LagTable} groups=${behind} isCut=${isCut} />`}`;
      }}
    <//>
  <//>`;
}

/** @param {{groups: import("../../lib/lags.js").GroupSum[], isCut: boolean}} props */
const LagTable = ({ groups, isCut }) => html`<table>
    <thead><tr><th scope="col">Group</th><th scope="col" class="number">Waiting</th><th scope="col" class="number">Oldest</th></tr></thead>
    <tbody>
      ${groups.slice(0, 6).map((each) => html`<tr key=${each.group}>
        <td title=${each.group}><a href=${href("groups", { group: each.group })}>${each.group}</a> ${each.deadLetters > 0 && html`<${Badge} kind="warning">${plural(each.deadLetters, "dead letter")}<//>`}</td>
        <td class="number">${count(each.lag)}</td>
        <td class="number">${ageText(ageOf(each))}</td>
      </tr>`)}
    </tbody>
  </table>
  <p class="table-foot">${groups.length > 6 ? html`<a href=${href("groups", { only: "behind" })}>${count(groups.length - 6)} more groups are behind.</a>` : ""}${isCut ? ` Only the first ${count(GROUPS_MAX)} groups were compared.` : ""}</p>`;
