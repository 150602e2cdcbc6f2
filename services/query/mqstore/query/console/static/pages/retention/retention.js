// What retention deletes, when, and who has not read it. Live from the stores.
import { request } from "../../lib/api.js";
import { bytes, count, duration, percent, plural } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { ageOf, loadLags } from "../../lib/lags.js";
import { useLoad } from "../../lib/load.js";
import { href, setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { eachShard, missingOf, shards } from "../../lib/shards.js";
import { SelectField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Card, Facts, Page, Tile } from "../../parts/page.js";
import { Empty, Failure, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Time } from "../../parts/time.js";
import { inWords, readersOf, segmentOf, stretches, triggerInWords, unreadIn } from "./plan.js";
import { RunDialog } from "./run.js";
import { Strip } from "./strip.js";

/** @typedef {import("./plan.js").Stretch} Stretch */
/** @typedef {import("./plan.js").Reader} Reader */
/** @typedef {import("../../lib/shards.js").OfShards<any>} Plans */

const loadPlans = (/** @type {AbortSignal} */ signal) => eachShard((shard) => request({ service: "writer", path: "/v1/store/retention", params: { shard }, signal }));

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Retention({ state }) {
  const plans = useLoad(loadPlans, [], { everyS: 10 });
  const lags = useLoad(loadLags, [], { everyS: 30 });
  const [isRunning, setRunning] = useState(false);
  const readers = useMemo(() => lags.data && readersOf(lags.data, ageOf), [lags.data]);
  const isWhole = Boolean(lags.data && !lags.data.isCut && Object.keys(lags.data.missing).length === 0);
  const chosen = plans.data && shardOf(plans.data, state.shard);
  const plan = chosen === undefined ? undefined : plans.data?.answers.get(chosen);
  const run = html`<button class="button" onClick=${() => setRunning(true)}><${Icon} name="play" />Delete expired now</button>`;
  return html`<${Page} title="Retention" actions=${may("admin") && plan && plan.deletes !== false && run}>
    <${Shown} of=${plans} lines=${8}>
      ${(/** @type {Plans} */ found) => html`
        <${MissingShards} missing=${missingOf(found.missing, lags.data?.missing)} />
        ${lags.error && html`<${Failure} error=${lags.error} retry=${lags.reload} isStale />`}
        ${shards.value.length > 1 && html`<${Shards} plans=${found} selected=${chosen} />`}
        ${plan && html`<${Plan} key=${chosen} plan=${plan} readers=${readers ?? []} isWhole=${isWhole} />`}
        ${isRunning && plan && html`<${RunDialog} shard=${/** @type {number} */ (chosen)} plan=${plan} readers=${readers ?? []} isWhole=${isWhole} onClose=${() => setRunning(false)} onDone=${plans.reload} />`}`}
    <//>
  <//>`;
}

/** The shard of the address, or the first one that replied. @param {Plans} plans @param {string | undefined} wanted */
function shardOf({ answers }, wanted) {
  const number = Number(wanted);
  return wanted && answers.has(number) ? number : [...answers.keys()].sort((a, b) => a - b)[0];
}

/** @param {{plans: Plans, selected: number | undefined}} props */
function Shards({ plans, selected }) {
  const options = [...plans.answers].map(([shard, plan]) => /** @type {[string, string]} */ ([String(shard), `Shard ${shard}: ${percent(plan.volumes[0].usedPercent / 100)} used, ${bytes(plan.bytesToGo)} go now`]));
  return html`<div class="row"><${SelectField} label="Shard" value=${String(selected)} options=${options} onChange=${(/** @type {string} */ shard) => setState({ shard })} /></div>`;
}

/** @param {{plan: any, readers: Reader[], isWhole: boolean}} props isWhole: the lags of all groups are known */
function Plan({ plan, readers, isWhole }) {
  const segments = useMemo(() => stretches(plan), [plan]);
  const going = segments.filter((each) => each.goes);
  const next = segments.find((each) => each.notBeforeMs !== null);
  const losing = readers.filter((each) => going.some((segment) => segment.modifiedMs >= each.fromMs));
  return html`
    ${plan.putsRefused && html`<${Notice} kind="bad" title="Messages are refused">${plan.putsRefusedWhy}<//>`}
    ${!plan.holdsHonoured && html`<${Notice} kind="bad" title="Nothing is held any more">The volume is fuller than keepDiskCeilingRatio (${plan.rule.keepDiskCeilingRatio} %): pins, groups and the archive keep nothing.<//>`}
    ${losing.length > 0 && html`<${Notice} kind="bad" title=${`${plural(losing.length, "group")} may lose unread messages now`}>${losing.slice(0, 8).map((each) => each.group).join(", ")}. Let them catch up, name them in keepForGroups, or raise fileReservedTime.<//>`}
    <div class="tiles">
      <${Tile} label="Goes now" value=${bytes(plan.bytesToGo)} note=${going.length ? plural(going.length, "segment") : "nothing"} />
      <${Tile} label="Next deletion" value=${going.length ? "now" : next ? duration(Math.max(0, /** @type {number} */ (next.notBeforeMs) - plan.madeMs)) : "–"} note=${going.length ? plan.triggers.map(triggerInWords).join("; ") : next ? "at the earliest" : "none is planned"} />
      <${Tile} label="Oldest message" value=${plan.oldestMs ? duration(Math.max(0, plan.madeMs - plan.oldestMs)) : "–"} note=${plan.deletes === false ? "kept for good" : `kept for ${plan.rule.fileReservedTime} h, deleted at ${plan.rule.deleteWhen} h`} />
      ${plan.volumes.map((/** @type {any} */ each) => html`<${Tile} key=${each.name} label=${`Volume of ${each.name}`} value=${percent(each.usedPercent / 100)} note=${`${bytes(each.freeBytes)} free of ${bytes(each.totalBytes)}`} />`)}
    </div>
    <${Card} title="What goes when" aside=${html`<span class="muted small">by the time that messages were stored</span>`}>
      ${segments.length ? html`<${Strip} segments=${segments} readers=${readers} nowMs=${plan.madeMs} />` : html`<${Empty} title="The log is empty">It has no segment yet.<//>`}
    <//>
    <div class="grid wide-cells">
      <${Readers} segments=${segments} readers=${readers} isWhole=${isWhole} nowMs=${plan.madeMs} />
      <${Holds} plan=${plan} />
    </div>
    <${Segments} segments=${segments} readers=${readers} />`;
}

/** @param {{segments: Stretch[], readers: Reader[], isWhole: boolean, nowMs: number}} props */
function Readers({ segments, readers, isWhole, nowMs }) {
  const columns = /** @type {import("../../parts/table.js").Column<Reader>[]} */ ([
    { name: "Group", cell: (each) => html`<a href=${href("groups", { group: each.group })}>${each.group}</a>`, title: (each) => each.group },
    { name: "Unread since", width: "190px", cell: (each) => html`<${Time} ms=${each.fromMs} none="unknown" />` },
    { name: "Lag", width: "90px", isNumber: true, cell: (each) => count(each.lag) },
    { name: "First goes", width: "130px", isNumber: true, cell: (each) => html`<${Deadline} segment=${segmentOf(segments, each)} nowMs=${nowMs} />` },
  ]);
  return html`<${Card} title="Who has not read it" isPlain>
    ${readers.length === 0
      ? html`<${Empty} title=${isWhole ? "Every group has read everything" : "The lags of all groups are not known"}>A group that has never committed an offset is not known to the store.<//>`
      : html`<div class="queues"><${Table} label="Groups that are behind" rows=${readers} columns=${columns} keyOf=${(/** @type {Reader} */ each) => each.group} width=${560} /></div>
          <p class="table-foot">A group that has never committed an offset is not known. Of all shards the oldest unread message counts.</p>`}
  <//>`;
}

/** @param {{segment: Stretch | undefined, nowMs: number}} props */
function Deadline({ segment, nowMs }) {
  if (!segment || segment.notBeforeMs === null) return html`<span class="muted">not planned</span>`;
  if (segment.goes) return html`<${Badge} kind="bad">now<//>`;
  const left = segment.notBeforeMs - nowMs;
  return html`<${Badge} kind=${left < 86_400_000 ? "warning" : "plain"}>in ${duration(Math.max(0, left))}<//>`;
}

/** @param {{plan: any}} props */
function Holds({ plan }) {
  const { rule, holds } = plan;
  return html`<${Card} title="The rule, and what holds segments">
    <div class="stack">
      <${Facts}
        of=${[
          ...(plan.deletes === false
            ? [["retention", "false", "This store-writer deletes nothing."]]
            : [
                ["fileReservedTime", `${rule.fileReservedTime} h`, "How long messages are kept."],
                ["deleteWhen", `${rule.deleteWhen} h`, html`Next: <${Time} ms=${plan.nextHourMs} />`],
              ]),
          ["Forced deletion", rule.cleanFileForciblyEnable ? `above ${rule.diskSpaceCleanForciblyRatio} %` : "off"],
          ["keepForGroups", rule.keepForGroups || "none", `Holds count up to ${rule.keepDiskCeilingRatio} % of the volume.`],
        ]}
      />
      <h3>Holds</h3>
      ${holds.length === 0 && html`<p class="muted">No pin, group, delay level or archive holds a segment.</p>`}
      <ul class="lines small">
        ${holds.map((/** @type {any} */ each) => html`<li class="row" key=${`${each.kind} ${each.name}`}>
          <${Badge} kind="accent">${each.kind}<//><strong>${each.name}</strong>
          <span class="muted small">from ${count(each.fromOffset)}${each.toOffset === null ? "" : ` to ${count(each.toOffset)}`}${each.untilMs !== null && html`, until <${Time} ms=${each.untilMs} />`}</span>
        </li>`)}
      </ul>
    </div>
  <//>`;
}

/** @param {{segments: Stretch[], readers: Reader[]}} props */
function Segments({ segments, readers }) {
  const columns = /** @type {import("../../parts/table.js").Column<Stretch>[]} */ ([
    { name: "Segment", width: "190px", cell: (each) => html`<span class="mono">${each.name}</span>`, title: (each) => each.name },
    { name: "Written until", width: "190px", cell: (each) => html`<${Time} ms=${each.modifiedMs} />` },
    { name: "Size", width: "90px", isNumber: true, cell: (each) => bytes(each.size) },
    { name: "Goes", width: "190px", cell: (each) => (each.goes ? html`<${Badge} kind="bad">now<//>` : html`<${Time} ms=${each.notBeforeMs} none="not planned" />`) },
    { name: "Why", cell: (each) => `${inWords(each.why)}${each.heldBy.length ? ` (${each.heldBy.join(", ")})` : ""}`, title: (each) => `${inWords(each.why)} ${each.heldBy.join(", ")}` },
    { name: "Not read by", width: "110px", isNumber: true, cell: (each) => unreadCell(unreadIn(each, readers)), title: (each) => unreadIn(each, readers).map((reader) => reader.group).join(", ") },
  ]);
  return html`<${Card} title="Segments" isPlain>
    <${Table} label="Segments, oldest first" rows=${segments} columns=${columns} keyOf=${(/** @type {Stretch} */ each) => each.name} width=${980} />
    <p class="table-foot">${plural(segments.length, "segment")}, oldest first. A segment that stays keeps all behind it.</p>
  <//>`;
}

const unreadCell = (/** @type {Reader[]} */ found) => (found.length ? plural(found.length, "group") : html`<span class="muted">–</span>`);
