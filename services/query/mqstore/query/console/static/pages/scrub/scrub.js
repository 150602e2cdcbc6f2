// What the disk has changed in the log: findings, repairs, and the bytes that were kept.
import { path, request } from "../../lib/api.js";
import { bytes, count, plural } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { eachShard, shards } from "../../lib/shards.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { Segments } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Card, Page, Tile } from "../../parts/page.js";
import { Empty, Failure, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Time } from "../../parts/time.js";
import { findingsOf, kindInWords, repairsOf, summaryOf } from "./findings.js";
import { RepairDialog } from "./repair.js";

/** @typedef {import("./findings.js").ShardState} ShardState */
/** @typedef {import("../../lib/shards.js").OfShards<ShardState>} States */

/** @returns {Promise<States>} */
const load = (/** @type {AbortSignal} */ signal) =>
  eachShard(async (shard) => {
    const get = (/** @type {string} */ each) => request({ service: "writer", path: each, params: { shard }, signal });
    const [scrub, quarantine, store] = await Promise.all([get("/v1/store/scrub"), get("/v1/store/quarantine"), get("/v1/store")]);
    return { scrub, quarantine, store };
  });

const TABS = /** @type {[string, string][]} */ ([["", "Findings"], ["repairs", "Repairs"], ["quarantine", "Quarantine"]]);

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Scrub({ state }) {
  const loaded = useLoad(load, [], { everyS: 5 });
  const [action, setAction] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const run = async () => {
    setProblem(null);
    try {
      await eachShard((shard) => request({ service: "writer", method: "POST", path: "/v1/store/scrub:run", params: { shard } }));
      announce("A pass over the log has begun");
      loaded.reload();
    } catch (error) {
      setProblem(error);
    }
  };
  const actions = html`<button class="button" onClick=${run}><${Icon} name="play" />Check the log now</button>
    <button class="button" onClick=${() => setAction("repair")}>Repair</button>`;
  const tab = state.tab ?? "";
  return html`<${Page} title="Scrub and repair" actions=${may("admin") && loaded.data && actions}>
    ${problem && html`<${Failure} error=${problem} />`}
    <${Shown} of=${loaded} lines=${8}>
      ${(/** @type {States} */ { answers, missing }) => html`
        <${MissingShards} missing=${missing} />
        <${Summary} answers=${answers} />
        <${Segments} label="List" value=${tab} options=${TABS} onChange=${(/** @type {string} */ next) => setState({ tab: next }, { isStep: true })} />
        ${tab === "" && html`<${Findings} answers=${answers} />`}
        ${tab === "repairs" && html`<${Repairs} answers=${answers} />`}
        ${tab === "quarantine" && html`<${Quarantine} answers=${answers} onChanged=${loaded.reload} />`}
        ${action === "repair" && html`<${RepairDialog} shards=${[...answers.keys()]} onClose=${() => setAction("")} onDone=${loaded.reload} />`}`}
    <//>
  <//>`;
}

/** @param {{answers: Map<number, ShardState>}} props */
function Summary({ answers }) {
  const sum = summaryOf(answers);
  return html`
    ${sum.findings > 0
      ? html`<${Notice} kind="bad" title=${`${plural(sum.findings, "damaged range")} in the log`}>Check the disks. Take a backup, and then repair before a broker opens the store: it would cut its log there.<//>`
      : sum.tombstones > 0
        ? html`<${Notice} kind="warning" title=${`${plural(sum.tombstones, "message")} could not be repaired`}>A tombstone keeps the place of each. An earlier backup may have them.<//>`
        : html`<${Notice} kind="good" title="No damage is known">The log is as it was written, as far as it was compared with its checksums.<//>`}
    <div class="tiles">
      ${sum.passes.map(
        (each) => html`<${Tile}
          key=${each.shard}
          label=${answers.size > 1 ? `Pass on shard ${each.shard}` : "Pass over the log"}
          value=${each.isRunning ? `${each.percent} %` : html`<${Time} ms=${each.endedMs} isRelative none="never" />`}
          note=${each.isRunning ? html`since <${Time} ms=${each.beganMs} />` : "the last one ended"}
        />`,
      )}
      <${Tile} label="Compared" value=${bytes(sum.checkedBytes)} note="in the latest passes" />
      <${Tile} label="Repaired" value=${count(sum.repairs)} note="ranges, since the stores were opened" />
      <${Tile} label="Quarantine" value=${bytes(sum.quarantined)} note="removed bytes that are kept" />
    </div>`;
}

const ofShard = (/** @type {number} */ shard) => shards.value.length > 1 && html` <${Badge}>shard ${shard}<//>`;
const place = (/** @type {any} */ each) => (each.topic ? `${each.topic}, queue ${each.queueId}, offset ${count(each.queueOffset)}` : html`<span class="muted">not known</span>`);

const FINDINGS = /** @type {import("../../parts/table.js").Column<any>[]} */ ([
  { name: "Log offset", width: "24%", cell: (each) => html`${count(each.offset)}${ofShard(each.shard)}` },
  { name: "Bytes", width: "80px", isNumber: true, cell: (each) => count(each.length) },
  { name: "Field", width: "120px", cell: (each) => each.field ?? html`<span class="muted">–</span>` },
  { name: "Message", cell: place },
  { name: "Found", width: "200px", cell: (each) => html`<${Time} ms=${each.foundAtMs} />` },
]);

const REPAIRS = /** @type {import("../../parts/table.js").Column<any>[]} */ ([
  { name: "Log offset", width: "24%", cell: (each) => html`${count(each.offset)}${ofShard(each.shard)}` },
  { name: "Bytes", width: "80px", isNumber: true, cell: (each) => count(each.length) },
  { name: "What was done", cell: (each) => `${kindInWords(each.kind)}${each.replica ? ` ${each.replica}` : ""}`, title: (each) => kindInWords(each.kind) },
  { name: "Message", cell: place },
  { name: "When", width: "200px", cell: (each) => html`<${Time} ms=${each.repairedAtMs} />` },
]);

const keyOf = (/** @type {any} */ each) => `${each.shard} ${each.offset} ${each.length} ${each.repairedAtMs ?? each.foundAtMs}`;

/** @param {{answers: Map<number, ShardState>}} props */
function Findings({ answers }) {
  const rows = findingsOf(answers);
  const total = summaryOf(answers).findings;
  if (!rows.length) return html`<div class="card"><${Empty} title="Nothing was found">A pass compares the whole log with the checksums of its blocks. Findings are listed here.<//></div>`;
  return html`<${Card} title="Findings" isPlain>
    <${Table} label="Findings" rows=${rows} columns=${FINDINGS} keyOf=${keyOf} width=${820} />
    <p class="table-foot">${total > rows.length ? `${count(rows.length)} of ${plural(total, "finding")}: the service keeps the first ones.` : plural(rows.length, "finding")}</p>
  <//>`;
}

/** @param {{answers: Map<number, ShardState>}} props */
function Repairs({ answers }) {
  const rows = repairsOf(answers);
  if (!rows.length) return html`<div class="card"><${Empty} title="Nothing was repaired">Since the stores were opened, no range of the log was changed.<//></div>`;
  return html`<${Card} title="Repairs" isPlain>
    <${Table} label="Repairs" rows=${rows} columns=${REPAIRS} keyOf=${keyOf} width=${860} />
    <p class="table-foot">${plural(rows.length, "repair")}, the newest first. The quarantine has the bytes that were replaced.</p>
  <//>`;
}

/** @param {{answers: Map<number, ShardState>, onChanged: () => void}} props */
function Quarantine({ answers, onChanged }) {
  const [removing, setRemoving] = useState(/** @type {any} */ (null));
  const rows = [...answers].flatMap(([shard, { quarantine }]) => quarantine.entries.map((/** @type {any} */ each) => ({ shard, ...each }))).sort((a, b) => b.keptAtMs - a.keptAtMs);
  if (!rows.length) return html`<div class="card"><${Empty} title="The quarantine is empty">Recoveries and repairs keep here the bytes that they remove.<//></div>`;
  const columns = /** @type {import("../../parts/table.js").Column<any>[]} */ ([
    { name: "From", width: "34%", cell: (each) => html`${each.source} at ${count(each.position)}${ofShard(each.shard)}`, title: (each) => each.name },
    { name: "Size", width: "90px", isNumber: true, cell: (each) => bytes(each.length) },
    { name: "Reason", cell: (each) => each.reason, title: (each) => each.reason },
    { name: "Kept since", width: "200px", cell: (each) => html`<${Time} ms=${each.keptAtMs} />` },
    ...(may("admin") ? [{ name: "Remove", width: "100px", cell: (/** @type {any} */ each) => html`<button class="button small" onClick=${() => setRemoving(each)}>Remove</button>` }] : []),
  ]);
  return html`<${Card} title="Quarantine" isPlain>
    <${Table} label="Quarantine" rows=${rows} columns=${columns} keyOf=${(/** @type {any} */ each) => `${each.shard} ${each.name}`} width=${820} />
    <p class="table-foot">${plural(rows.length, "entry", "entries")}. They are files in mqstore/quarantine of the store.</p>
    ${removing && html`<${RemoveDialog} entry=${removing} onClose=${() => setRemoving(null)} onDone=${onChanged} />`}
  <//>`;
}

/** @param {{entry: any, onClose: () => void, onDone: () => void}} props */
function RemoveDialog({ entry, onClose, onDone }) {
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const remove = async () => {
    try {
      await request({ service: "writer", method: "DELETE", path: path`/v1/store/quarantine/${entry.name}`, params: { shard: entry.shard } });
      announce("The entry was removed");
      onDone();
      onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title="Remove from the quarantine" onClose=${onClose}>
    <div class="stack">
      <p class="mono">${entry.name}</p>
      <${Notice} kind="warning" title=${`${bytes(entry.length)} are removed for good`}>Copy the file first if the bytes may be needed: ${entry.reason}.<//>
      ${problem && html`<${Failure} error=${problem} />`}
      <footer><button class="button" onClick=${onClose}>Cancel</button><button class="button danger" onClick=${remove}>Remove</button></footer>
    </div>
  <//>`;
}
