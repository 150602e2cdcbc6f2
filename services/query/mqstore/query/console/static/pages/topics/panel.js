// One topic: its settings, its queues on all shards, and what can be done with it.
import { path, request } from "../../lib/api.js";
import { count } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href, setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { missingOf, shards } from "../../lib/shards.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Card, Facts } from "../../parts/page.js";
import { MissingShards, Notice, Shown } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { DeletionDialog } from "./deletion.js";
import { TopicDialog } from "./editor.js";
import { permission } from "./list.js";

/** @typedef {{queueId: number, shard: number, minOffset: number, maxOffset: number}} Queue */

/** @param {{name: string, topic: import("./list.js").Topic | undefined, onChanged: () => void}} props */
export function TopicPanel({ name, topic, onChanged }) {
  const [action, setAction] = useState("");
  const queues = useLoad((signal) => request({ path: path`/v1/topics/${name}/queues`, signal }), [name], { everyS: 5 });
  const close = html`<button class="button quiet square" aria-label="Close the topic" onClick=${() => setState({ topic: "" })}><${Icon} name="close" /></button>`;
  return html`<${Card} title=${name} aside=${close}>
    <div class="stack">
      <div class="row">
        <a class="button" href=${href("messages", { topic: name })}><${Icon} name="messages" />Messages</a>
        ${may("produce") && html`<a class="button" href=${href("send", { topic: name })}><${Icon} name="send" />Send</a>`}
        ${may("admin") && topic && html`<button class="button" onClick=${() => setAction("change")}>Change</button>`}
        ${may("admin") && html`<button class="button" onClick=${() => setAction("delete")}>Delete</button>`}
      </div>
      ${topic && html`<${Settings} topic=${topic} />`}
      <${Shown} of=${queues}>
        ${(/** @type {{queues: Queue[], shards?: any}} */ found) => html`
          <${MissingShards} missing=${missingOf(found.shards)} />
          <${Queues} topic=${name} queues=${found.queues} />`}
      <//>
    </div>
    ${action === "change" && html`<${TopicDialog} topic=${topic} onClose=${() => setAction("")} onDone=${onChanged} />`}
    ${action === "delete" && html`<${DeletionDialog} topic=${name} onClose=${() => setAction("")} onDone=${onChanged} />`}
  <//>`;
}

/** @param {{topic: import("./list.js").Topic}} props */
function Settings({ topic }) {
  const rows = /** @type {[string, any, any?][]} */ ([
    ["Queues", topic.readQueues === topic.writeQueues ? count(topic.writeQueues) : `${topic.writeQueues} for writing, ${topic.readQueues} for reading`, "on each shard"],
    ["Permission", permission(topic.perm)],
    ["Ordered", topic.order ? "yes" : "no"],
    ["Filter", topic.filterType],
    ...Object.entries(topic.attributes),
  ]);
  return html`${topic.differs && html`<${Notice} kind="warning" title="Shards have different settings of this topic">Change it once, and all shards get the same.<//>`}
    ${topic.absent.length > 0 && html`<${Notice} kind="warning" title=${`Shard ${topic.absent.join(", ")} does not have this topic`}>Change it once, and all shards get it.<//>`}
    <${Facts} of=${rows} />`;
}

/** @param {{topic: string, queues: Queue[]}} props */
function Queues({ topic, queues }) {
  const columns = /** @type {import("../../parts/table.js").Column<Queue>[]} */ ([
    { name: "Queue", width: "30%", cell: (each) => html`<a href=${href("messages", { topic, queue: each.queueId, shard: shards.value.length > 1 ? each.shard : "", offset: each.minOffset })}>${each.queueId}</a> ${shards.value.length > 1 && html`<${Badge}>shard ${each.shard}<//>`}` },
    { name: "First", isNumber: true, cell: (each) => count(each.minOffset) },
    { name: "Next", isNumber: true, cell: (each) => count(each.maxOffset) },
    { name: "Messages", isNumber: true, cell: (each) => count(each.maxOffset - each.minOffset) },
  ]);
  const total = queues.reduce((sum, each) => sum + each.maxOffset - each.minOffset, 0);
  return html`<section class="card queues" aria-label="Queues">
    <${Table} label="Queues" rows=${queues} columns=${columns} keyOf=${(/** @type {Queue} */ each) => `${each.shard} ${each.queueId}`} width=${320} />
    <p class="table-foot">${count(total)} messages in all queues</p>
  </section>`;
}
