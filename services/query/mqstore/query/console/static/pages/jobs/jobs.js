// What runs long: index rebuilds, reports, the archive and leases of backups, with their last results.
import { path, request } from "../../lib/api.js";
import { bytes, count, duration, percent, plural } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { eachShard, shards } from "../../lib/shards.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { Badge, Card, Facts, Page } from "../../parts/page.js";
import { Progress } from "../../parts/progress.js";
import { Empty, Failure, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { Backups } from "./backups.js";
import { archivedPart, horizonsOf, operationsOf, outcomeInWords, rebuildPercent } from "./lists.js";

/** @typedef {import("./lists.js").ShardJobs} ShardJobs */
/** @typedef {import("../../lib/shards.js").OfShards<ShardJobs>} Jobs */

/** @returns {Promise<Jobs>} */
const load = (/** @type {AbortSignal} */ signal) =>
  eachShard(async (shard) => {
    const get = (/** @type {string} */ each) => request({ service: "writer", path: each, params: { shard }, signal });
    const [{ operations }, rebuilds, { report }, backups, { archive }, { pins }, store] = await Promise.all([
      get("/v1/operations"),
      get("/v1/index-rebuilds"),
      get("/v1/reports/expiry"),
      get("/v1/reports/backup"),
      get("/v1/store/archive"),
      get("/v1/store/pins"),
      get("/v1/store"),
    ]);
    return { operations, rebuilds, report, backups, archive, pins, store };
  });

export default function JobsPage() {
  const jobs = useLoad(load, [], { everyS: 5 });
  return html`<${Page} title="Jobs">
    <${Shown} of=${jobs} lines=${10}>
      ${(/** @type {Jobs} */ { answers, missing }) => {
        const all = [...answers].sort(([a], [b]) => a - b);
        return html`<${MissingShards} missing=${missing} />
          <div class="grid wide-cells">
            <${Rebuilds} all=${all} />
            <${Reports} all=${all} />
            <${Backups} all=${all} />
            <${Archives} all=${all} />
            <${Pins} all=${all} onChanged=${jobs.reload} />
          </div>
          <${Operations} answers=${answers} />`;
      }}
    <//>
  <//>`;
}

/** @typedef {[number, ShardJobs][]} All */

const ofShard = (/** @type {number} */ shard) => (shards.value.length > 1 ? `Shard ${shard}` : "");

/** @param {{all: All}} props */
function Rebuilds({ all }) {
  const known = all.filter(([, { rebuilds }]) => rebuilds.running || rebuilds.last);
  return html`<${Card} title="Index rebuild">
    <div class="stack">
      ${all.map(
        ([shard, { store }]) => !store.indexComplete && html`<${Notice} key=${shard} kind="warning" title=${`The index${shards.value.length > 1 ? ` of shard ${shard}` : ""} is not complete`}>${store.indexTrouble ?? `${bytes(store.indexBehind)} are still to be indexed.`}<//>`,
      )}
      ${known.length === 0 && html`<${Empty} title="No rebuild since the stores were opened">A rebuild makes the index again from the log. The how-to page “Rebuild the index” says when it is needed.<//>`}
      ${known.map(([shard, { rebuilds }]) => html`<div class="stack" key=${shard}>
        ${ofShard(shard) && html`<h3>${ofShard(shard)}</h3>`}
        ${rebuilds.running && html`<${Running} rebuild=${rebuilds.running} />`}
        ${rebuilds.last && html`<${Last} rebuild=${rebuilds.last} />`}
      </div>`)}
    </div>
  <//>`;
}

/** @param {{rebuild: any}} props */
function Running({ rebuild }) {
  const done = rebuildPercent(rebuild);
  return html`<${Progress} label=${`Rebuild by ${rebuild.owner}`} percent=${done ?? 0} />
    <${Facts}
      of=${[
        ["Job", rebuild.owner],
        ["State", done === null ? "it plans the files" : `${count(rebuild.parts)} of ${plural(rebuild.partsPlanned, "part")} received, ${count(rebuild.items)} items`],
        ["Since", html`<${Time} ms=${rebuild.sinceMs} />`],
        ["Lease ends", html`<${Time} ms=${rebuild.expiresMs} isRelative />`, "Unless the job renews it."],
      ]}
    />`;
}

/** @param {{rebuild: any}} props */
function Last({ rebuild }) {
  const { kind, text } = outcomeInWords(rebuild.outcome);
  return html`<div class="row"><${Badge} kind=${kind}>${rebuild.outcome}<//><span class="muted small">${text}</span></div>
    <${Facts}
      of=${[
        ["Last", html`<${Time} ms=${rebuild.endedMs} />`, `by ${rebuild.owner}`],
        ["Result", `${count(rebuild.items)} items in ${plural(rebuild.files, "file")}, ${bytes(rebuild.bytes)}`, `in ${duration(rebuild.seconds * 1000)}`],
      ]}
    />`;
}

/** @param {{all: All}} props */
function Reports({ all }) {
  const known = all.filter(([, { report }]) => report);
  return html`<${Card} title="Expiry report">
    <div class="stack">
      ${known.length === 0 && html`<${Empty} title="No report was handed in yet">The job looks ahead: which messages retention will delete unread. The how-to page “Prevent unread expiry” says how to run it.<//>`}
      ${known.map(([shard, { report }]) => html`<${Report} key=${shard} title=${ofShard(shard)} report=${report} />`)}
    </div>
  <//>`;
}

/** @param {{title: string, report: any}} props */
function Report({ title, report }) {
  return html`<div class="stack">
    <div class="row">${title && html`<h3>${title}</h3>`}${report.atRisk && html`<${Badge} kind="bad">at risk<//>`}${report.diskFills && html`<${Badge} kind="warning">disk fills<//>`}${!report.atRisk && !report.diskFills && html`<${Badge} kind="good">fine<//>`}<span class="muted small">made <${Time} ms=${report.madeMs} /></span></div>
    <div class="table-box small-table" tabindex="0" role="region" aria-label="What expires, by horizon">
      <table>
        <thead><tr><th scope="col">Within</th><th scope="col" class="number">Messages</th><th scope="col" class="number">Bytes</th><th scope="col" class="number">Lost unread</th></tr></thead>
        <tbody>
          ${horizonsOf(report).map((each) => html`<tr key=${each.horizonHours}>
            <td>${duration(each.horizonHours * 3_600_000)}</td><td class="number">${count(each.messages)}</td><td class="number">${bytes(each.bytes)}</td>
            <td class="number">${each.lost ? html`<${Badge} kind="bad">${count(each.lost)}<//>` : "0"}</td>
          </tr>`)}
        </tbody>
      </table>
    </div>
    ${report.risks.length > 0 && html`<ul class="lines small">
      ${report.risks.slice(0, 6).map((/** @type {any} */ each, /** @type {number} */ i) => html`<li key=${i}>
        ${each.kind === "group" ? html`<a href=${href("groups", { group: each.name })}>${each.name}</a>` : `${each.kind} ${each.name}`} loses ${plural(each.messages, "message")} of ${each.topic}${each.goesMs !== null && html`, from <${Time} ms=${each.goesMs} />`}
      </li>`)}
    </ul>`}
    ${report.risks.length + report.risksMore > 6 && html`<p class="muted small">${count(report.risks.length + report.risksMore - 6)} more risks are in the report.</p>`}
    ${report.out && html`<p class="muted small">The whole report: <span class="mono">${report.out}</span></p>`}
  </div>`;
}

/** @param {{all: All}} props */
function Archives({ all }) {
  const known = all.filter(([, { archive }]) => archive);
  return html`<${Card} title="Archive">
    <div class="stack">
      ${known.length === 0 && html`<${Empty} title="Retention waits for no archive">Once the archive job has reported its position, segments are kept until they are archived.<//>`}
      ${known.map(([shard, { archive, store }]) => html`<div class="stack" key=${shard}>
        ${ofShard(shard) && html`<h3>${ofShard(shard)}</h3>`}
        <${Progress} label="Archived part of the log" percent=${Math.floor(100 * archivedPart(archive, store))} />
        <${Facts}
          of=${[
            ["Archived", `${percent(archivedPart(archive, store))} of the log`, `${bytes(Math.max(0, store.maxOffset - archive.offset))} are not`],
            ["Place", html`<span class="mono">${archive.place}</span>`],
            ["Last report", html`<${Time} ms=${archive.markedMs} />`],
          ]}
        />
      </div>`)}
    </div>
  <//>`;
}

/** @param {{all: All, onChanged: () => void}} props */
function Pins({ all, onChanged }) {
  const [ending, setEnding] = useState(/** @type {any} */ (null));
  const pins = all.flatMap(([shard, jobs]) => jobs.pins.map((each) => ({ shard, ...each })));
  return html`<${Card} title="Leases of the log">
    ${pins.length === 0 && html`<${Empty} title="Nothing is leased">A backup, a Spark job or a reader leases the range that it reads: retention keeps it meanwhile.<//>`}
    <ul class="lines">
      ${pins.map((each) => html`<li key=${`${each.shard} ${each.name}`} class="row">
        <div class="grow"><strong>${each.name}</strong>${each.why && html` <span class="muted">${each.why}</span>`}
          <p class="muted small">${ofShard(each.shard)} from ${count(each.fromOffset)}${each.toOffset === null ? " on" : ` to ${count(each.toOffset)}`}, since <${Time} ms=${each.createdMs} />, ends <${Time} ms=${each.expiresMs} isRelative /></p>
        </div>
        ${may("admin") && html`<button class="button small" onClick=${() => setEnding(each)}>End</button>`}
      </li>`)}
    </ul>
    ${ending && html`<${EndDialog} pin=${ending} onClose=${() => setEnding(null)} onDone=${onChanged} />`}
  <//>`;
}

/** @param {{pin: any, onClose: () => void, onDone: () => void}} props */
function EndDialog({ pin, onClose, onDone }) {
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const end = async () => {
    try {
      await request({ service: "writer", method: "DELETE", path: path`/v1/store/pins/${pin.name}`, params: { shard: pin.shard } });
      announce(`The lease ${pin.name} was ended`);
      onDone();
      onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title=${`End the lease ${pin.name}`} onClose=${onClose}>
    <div class="stack">
      <${Notice} kind="warning" title="Retention may then delete the range">A job that still reads it fails. ${pin.why && `Its owner gave as reason: ${pin.why}.`}<//>
      ${problem && html`<${Failure} error=${problem} />`}
      <footer><button class="button" onClick=${onClose}>Cancel</button><button class="button danger" onClick=${end}>End the lease</button></footer>
    </div>
  <//>`;
}

/** @param {{answers: Map<number, ShardJobs>}} props */
function Operations({ answers }) {
  const rows = operationsOf(answers);
  return html`<${Card} title="Long operations of the stores" isPlain>
    ${rows.length === 0
      ? html`<${Empty} title="Nothing took long">Opening a store, and indexing it, are listed here with their progress.<//>`
      : html`<div class="table-box small-table" tabindex="0" role="region" aria-label="Long operations">
          <table>
            <thead><tr><th scope="col">Operation</th><th scope="col">Progress</th><th scope="col" class="number">Bytes</th><th scope="col">Begun</th><th scope="col">Ended</th></tr></thead>
            <tbody>
              ${rows.map((each) => html`<tr key=${`${each.shard} ${each.name}`}>
                <td>${each.name} ${shards.value.length > 1 && html`<${Badge}>shard ${each.shard}<//>`}</td>
                <td><${Progress} label=${each.name} percent=${each.percent} note=${each.endedMs === null ? each.stage : "done"} /></td>
                <td class="number">${bytes(each.total)}</td>
                <td><${Time} ms=${each.startedMs} /></td>
                <td><${Time} ms=${each.endedMs} none="it runs" /></td>
              </tr>`)}
            </tbody>
          </table>
        </div>`}
  <//>`;
}
