// The lag of a group in each queue.
import { count, duration, plural } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { href } from "../../lib/router.js";
import { shards } from "../../lib/shards.js";
import { Badge, Card } from "../../parts/page.js";
import { Table } from "../../parts/table.js";
import { Time } from "../../parts/time.js";

/**
 * @typedef {object} QueueLag
 * @property {string} topic
 * @property {number} shard
 * @property {number} queueId
 * @property {number | null} committed null: never
 * @property {number} minOffset
 * @property {number} maxOffset
 * @property {number} lag
 * @property {number} expired
 * @property {number | null} lagMs
 * @property {number | null} lastStoreTimestamp
 */

/** The queues of topics as rows. @param {any[]} topics @param {string} sort @returns {QueueLag[]} */
export function queueRows(topics, sort) {
  const rows = topics.flatMap((each) => each.queues.map((/** @type {any} */ queue) => ({ topic: each.topic, ...queue })));
  const direction = sort.startsWith("-") ? -1 : 1;
  const by = sort.replace("-", "");
  const value = (/** @type {any} */ row) => (by === "age" ? row.lagMs ?? Infinity : by === "expired" ? row.expired : row.lag);
  const inOrder = (/** @type {any} */ a, /** @type {any} */ b) => (a.topic === b.topic ? a.shard - b.shard || a.queueId - b.queueId : a.topic < b.topic ? -1 : 1);
  if (by === "queue") return rows.sort((a, b) => direction * inOrder(a, b));
  return rows.sort((a, b) => direction * (value(a) - value(b)) || inOrder(a, b));
}

/** @param {{group: string, topics: any[]}} props */
export function Queues({ group, topics }) {
  const [sort, setSort] = useState("-lag");
  const rows = useMemo(() => queueRows(topics, sort), [topics, sort]);
  return html`<${Card} title="Queues" isPlain>
    <${Table}
      label=${`Queues of ${group}`}
      rows=${rows}
      columns=${COLUMNS}
      keyOf=${(/** @type {QueueLag} */ row) => `${row.topic} ${row.shard} ${row.queueId}`}
      sorted=${sort}
      onSort=${setSort}
      width=${800}
    />
    <p class="table-foot">${plural(rows.length, "queue")}. A queue without an offset counts from its first message.</p>
  <//>`;
}

const COLUMNS = /** @type {import("../../parts/table.js").Column<QueueLag>[]} */ ([
  {
    name: "Queue",
    sort: "queue",
    width: "210px",
    cell: (row) => html`<a href=${href("messages", { topic: row.topic, queue: row.queueId, shard: shards.value.length > 1 ? row.shard : "", offset: row.committed ?? row.minOffset })}>${row.topic} ${row.queueId}</a> ${shards.value.length > 1 && html`<${Badge}>shard ${row.shard}<//>`}`,
    title: (row) => `${row.topic}, queue ${row.queueId}`,
  },
  { name: "Lag", sort: "lag", isNumber: true, cell: (row) => count(row.lag) },
  { name: "Oldest", sort: "age", isNumber: true, cell: (row) => (row.lagMs === null ? html`<span title="The message cannot be read">unknown</span>` : row.lag ? duration(row.lagMs) : html`<span class="muted">–</span>`) },
  { name: "Committed", isNumber: true, cell: (row) => (row.committed === null ? html`<span class="muted">never</span>` : count(row.committed)) },
  { name: "End", isNumber: true, cell: (row) => count(row.maxOffset) },
  { name: "Expired", sort: "expired", isNumber: true, cell: (row) => (row.expired ? html`<${Badge} kind="bad">${count(row.expired)}<//>` : html`<span class="muted">0</span>`) },
  { name: "Last consumed", isNumber: true, width: "16%", cell: (row) => html`<${Time} ms=${row.lastStoreTimestamp} isRelative />` },
]);
