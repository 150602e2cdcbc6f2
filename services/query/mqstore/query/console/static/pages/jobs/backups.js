// The last results of backups, as the commands reported them.
import { bytes, count, duration } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { shards } from "../../lib/shards.js";
import { Badge, Card, Facts } from "../../parts/page.js";
import { Empty, Notice } from "../../parts/states.js";
import { Time } from "../../parts/time.js";

/** @param {{all: [number, import("./lists.js").ShardJobs][]}} props */
export function Backups({ all }) {
  const known = all.filter(([, { backups }]) => backups.created || backups.verified);
  return html`<${Card} title="Backups">
    <div class="stack">
      ${known.length === 0 && html`<${Empty} title="No backup was reported yet">The command <code>mqstore backup create</code> reports its result with <code>--report</code>. The how-to page “Back up and restore” has it.<//>`}
      ${known.map(([shard, { backups }]) => html`<${Results} key=${shard} title=${shards.value.length > 1 ? `Shard ${shard}` : ""} of=${backups} />`)}
    </div>
  <//>`;
}

/** @param {{title: string, of: {created: any, whole: any, verified: any}}} props */
function Results({ title, of: { created, whole, verified } }) {
  return html`<div class="stack">
    <div class="row">
      ${title && html`<h3>${title}</h3>`}
      ${created && html`<${Badge} kind=${created.isWhole ? "good" : "bad"}>${created.isWhole ? "whole" : "failed"}<//>`}
      ${verified ? html`<${Badge} kind=${verified.isWhole ? "good" : "bad"}>${verified.isWhole ? "verified" : "verification failed"}<//>` : html`<${Badge} kind="warning">not verified<//>`}
    </div>
    ${created && !created.isWhole && html`<${Failed} title="The last backup is not whole" result=${created} />`}
    ${verified && !verified.isWhole && html`<${Failed} title="The last verification failed" result=${verified} />`}
    <${Facts}
      of=${[
        ["Last backup", html`<${Time} ms=${created?.endedMs} none="none was reported" />`, created && `took ${duration(created.endedMs - created.beganMs)}`],
        ["Last whole one", html`<${Time} ms=${whole?.endedMs} none="none was reported" />`, whole && `up to offset ${count(whole.endOffset)}; ${bytes(whole.copiedBytes)} were copied`],
        ["Verified", html`<${Time} ms=${verified?.endedMs} none="never" />`, verified?.backup && `backup ${verified.backup}`],
        ["Place", html`<span class="mono">${(created ?? verified).place}</span>`],
      ]}
    />
  </div>`;
}

/** @param {{title: string, result: any}} props */
const Failed = ({ title, result }) => html`<${Notice} kind="bad" title=${title}>${result.error}<//>`;
