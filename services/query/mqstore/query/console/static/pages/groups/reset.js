// Moves a group to other offsets, after it has shown what each queue would have.
import { path, request } from "../../lib/api.js";
import { count, plural } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { missingOf, shards } from "../../lib/shards.js";
import { parseTime, zone } from "../../lib/times.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { SelectField, TextField } from "../../parts/form.js";
import { Failure, MissingShards, Notice } from "../../parts/states.js";
import { Table } from "../../parts/table.js";

const POSITIONS = /** @type {[string, string][]} */ ([
  ["earliest", "The earliest stored message"],
  ["latest", "Behind the latest message"],
  ["timestamp", "The first message at or after a time"],
  ["group", "The offsets of another group"],
]);

/** @typedef {{shard: number, queueId: number, before: number | null, after: number, minOffset: number, maxOffset: number}} Change */

/** What a reset does: messages that are delivered again, and those that are passed over.
 * @param {Change[]} queues
 */
export function effectOf(queues) {
  let [again, skipped] = [0, 0];
  for (const { before, after, minOffset } of queues) {
    const from = Math.max(before ?? minOffset, minOffset);
    again += Math.max(0, from - after);
    skipped += Math.max(0, after - from);
  }
  return { again, skipped };
}

/** @param {{group: string, topics: string[], onClose: () => void, onDone: () => void}} props */
export function ResetDialog({ group, topics, onClose, onDone }) {
  const own = topics.filter((each) => !each.startsWith("%RETRY%"));
  const [given, setForm] = useState({ topic: /** @type {string | undefined} */ (undefined), to: "earliest", time: "now-1h", source: "" });
  const form = { ...given, topic: given.topic ?? own[0] ?? "" }; // the topics may come later
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const at = form.to === "timestamp" ? parseTime(form.time) : undefined;
  const isComplete = form.topic && (form.to !== "timestamp" || at !== undefined) && (form.to !== "group" || form.source);
  const change = (/** @type {Partial<typeof form>} */ next) => {
    setForm({ ...given, ...next });
    setPlan(null);
  };
  const send = async (/** @type {boolean} */ dryRun) => {
    setBusy(true);
    setProblem(null);
    const body = { topic: form.topic, to: form.to, timestamp: at && Math.floor(at), source: form.to === "group" ? form.source : undefined, dryRun };
    try {
      const found = await request({ service: "writer", method: "POST", path: path`/v1/groups/${group}/offsets:reset`, body });
      if (dryRun) return setPlan(found);
      const left = Object.keys(missingOf(found.shards));
      announce(`${group} was reset in ${plural(found.queues.length, "queue")}${left.length ? `, but not on shard ${left.join(", ")}` : ""}`);
      onDone();
      onClose();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    send(!plan);
  };
  return html`<${Dialog} title=${`Reset ${group}`} onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      <div class="form">
        <${TextField} label="Topic" value=${form.topic} list="reset-topics" required onChange=${(/** @type {string} */ topic) => change({ topic })} />
        <datalist id="reset-topics">${own.map((each) => html`<option key=${each} value=${each}></option>`)}</datalist>
        <${SelectField} label="Continue from" value=${form.to} options=${POSITIONS} onChange=${(/** @type {string} */ to) => change({ to })} />
        ${form.to === "timestamp" &&
        html`<${TextField}
          label="Time"
          class="wide"
          value=${form.time}
          error=${at === undefined ? "This is no time." : ""}
          help=${`As now-15m, or 2026-11-27 12:00 in ${zone.value === "utc" ? "UTC" : "local time"}, or RFC 3339.`}
          onChange=${(/** @type {string} */ time) => change({ time })}
        />`}
        ${form.to === "group" && html`<${TextField} label="Group" class="wide" value=${form.source} required onChange=${(/** @type {string} */ source) => change({ source })} />`}
      </div>
      ${problem && html`<${Failure} error=${problem} />`}
      ${plan && html`<${Plan} plan=${plan} />`}
      <footer>
        <button type="button" class="button" onClick=${onClose}>Cancel</button>
        ${!plan && html`<button class="button primary" disabled=${!isComplete || isBusy}>Preview</button>`}
        ${plan && html`<button class="button danger" disabled=${isBusy || plan.queues.length === 0}>Reset offsets</button>`}
      </footer>
    </form>
  <//>`;
}

/** @param {{plan: {queues: Change[], shards?: any}}} props */
function Plan({ plan }) {
  const { again, skipped } = effectOf(plan.queues);
  const columns = /** @type {import("../../parts/table.js").Column<Change>[]} */ ([
    { name: "Queue", cell: (row) => `${row.queueId}${shards.value.length > 1 ? `, shard ${row.shard}` : ""}` },
    { name: "Now", isNumber: true, cell: (row) => (row.before === null ? "never" : count(row.before)) },
    { name: "Then", isNumber: true, cell: (row) => html`<strong>${count(row.after)}</strong>` },
    { name: "End", isNumber: true, cell: (row) => count(row.maxOffset) },
  ]);
  const effects = [again && `${plural(again, "message")} will be delivered again`, skipped && `${plural(skipped, "message")} will not be delivered`].filter(Boolean);
  return html`<${MissingShards} missing=${missingOf(plan.shards)} />
    <${Notice} kind=${skipped ? "warning" : ""} title=${effects.length ? `${effects.join("; ")}.` : "No offset would change."}>
      Stop the consumers of the group before: running ones go on from the offsets that they hold.
    <//>
    <section class="card queues" aria-label="Preview">
      <${Table} label="Offsets by queue" rows=${plan.queues} columns=${columns} keyOf=${(/** @type {Change} */ row) => `${row.shard} ${row.queueId}`} width=${300} />
    </section>`;
}
