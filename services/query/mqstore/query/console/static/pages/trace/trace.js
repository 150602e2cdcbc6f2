// The time line of one message: its copies, and the groups that passed it.
import { path, request } from "../../lib/api.js";
import { bytes, count } from "../../lib/format.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href, setState } from "../../lib/router.js";
import { missingOf } from "../../lib/shards.js";
import { Segments, TextField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Card, Facts, Page } from "../../parts/page.js";
import { Empty, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { TopicField } from "../../parts/topicfield.js";
import { standsOf, stepsOf } from "./history.js";

/** @typedef {import("../../lib/router.js").State} State */
/** @typedef {{traces: any[], complete: boolean, next: string | null, shards?: any}} Found */

/** @param {State} state @param {AbortSignal} signal @returns {Promise<Found>} */
async function loadTraces({ id, topic, key }, signal) {
  if (id) {
    const found = await request({ path: `${path`/v1/messages/${id}`}/trace`, params: { topic }, signal });
    return { traces: [found.trace], complete: found.trace.complete, next: null, shards: found.shards };
  }
  return request({ path: path`/v1/topics/${topic ?? ""}/traces`, params: { key, limit: 64 }, signal });
}

/** @param {{state: State}} props */
export default function Trace({ state }) {
  const isReady = Boolean(state.id || (state.topic && state.key));
  const loaded = useLoad(isReady ? (signal) => loadTraces(state, signal) : null, [state.id, state.topic, state.key]);
  return html`<${Page} title="Trace" hint="Where the copies of a message are, and which groups have passed it.">
    <${Form} state=${state} />
    ${!isReady && html`<div class="card"><${Empty} title="Which message?">Enter its id, or a key and the topic.<//></div>`}
    ${isReady &&
    html`<${Shown} of=${loaded} lines=${8}>
      ${(/** @type {Found} */ found) => html`
        <${MissingShards} missing=${missingOf(found.shards)} />
        ${!found.complete && !found.next && html`<${Notice} kind="warning" title="Not complete">A copy may be missing here: a part of the store could not be searched.<//>`}
        ${found.traces.length === 0 && html`<div class="card"><${Empty} title="No message has this key">Keys are found as they were sent, upper and lower case included.<//></div>`}
        ${found.traces.map((each) => html`<${History} key=${`${each.uniqKey} ${each.copies[0]?.offsetMsgId}`} trace=${each} />`)}
        ${found.next && html`<${Notice} title="There are older ones">Only the newest ${count(found.traces.length)} are shown. The search for messages by this key shows all: <a href=${href("messages", { topic: state.topic, key: state.key })}>open it</a>.<//>`}`}
    <//>`}
  <//>`;
}

/** @param {{state: State}} props */
function Form({ state }) {
  const [by, setBy] = useState(state.key ? "key" : "id");
  const [draft, setDraft] = useState(state);
  useEffect(() => setDraft(state), [state.id, state.topic, state.key]);
  const change = (/** @type {string} */ name) => (/** @type {string} */ value) => setDraft((before) => ({ ...before, [name]: value }));
  const find = (/** @type {Event} */ event) => {
    event.preventDefault();
    setState(by === "id" ? { id: draft.id?.trim(), topic: draft.topic, key: "" } : { id: "", topic: draft.topic, key: draft.key?.trim() }, { isStep: true });
  };
  return html`<form class="card" aria-label="Find a message" onSubmit=${find}>
    <div class="filters">
      <div class="field by"><span class="label">Find by</span><${Segments} label="Find by" value=${by} options=${[["id", "Id"], ["key", "Key"]]} onChange=${setBy} /></div>
      ${by === "id"
        ? html`<${TextField} class="long" label="Message id, or unique key with its topic" value=${draft.id ?? ""} onChange=${change("id")} required />`
        : html`<${TextField} class="long" label="Key or unique key" value=${draft.key ?? ""} onChange=${change("key")} required />`}
      <${TopicField} value=${draft.topic ?? ""} onChange=${change("topic")} />
      <button class="button primary"><${Icon} name="search" />Show</button>
    </div>
  </form>`;
}

/** @param {{trace: any}} props */
function History({ trace }) {
  const stands = standsOf(trace);
  return html`<${Card} title=${trace.keys.join(" ") || trace.uniqKey || "Message"} aside=${trace.tags && html`<${Badge}>${trace.tags}<//>`}>
    <div class="stack">
      ${trace.unreadable.length > 0 && html`<${Notice} kind="bad" title="A copy is damaged">${trace.unreadable.map((/** @type {any} */ each) => each.detail).join("; ")}<//>`}
      <ol class="timeline">
        ${stepsOf(trace).map((step, i) => html`<li key=${i} class=${step.kind}><${Step} step=${step} /></li>`)}
      </ol>
      <section aria-label="Groups" class="stack">
        <h3>Groups</h3>
        ${stands.length === 0
          ? html`<p class="muted">No group has an offset in its topics.</p>`
          : html`<ul class="row">${stands.map((each) => html`<li key=${each.group}><${Badge} kind=${each.isConsumed ? "good" : "warning"}><a href=${href("groups", { group: each.group })}>${each.group}</a>: ${each.isConsumed ? "has passed it" : "has not come to it"}<//></li>`)}</ul>`}
      </section>
    </div>
  <//>`;
}

/** @param {{step: import("./history.js").Step}} props */
function Step({ step: { atMs, title, text, after, copy } }) {
  return html`<div class="row"><strong>${title}</strong><span class="muted small"><${Time} ms=${atMs} />${after && `, ${after}`}</span></div>
    ${text && html`<p>${text}</p>`}
    ${copy?.dueAt && html`<p>Due <${Time} ms=${copy.dueAt} />.</p>`}
    ${copy &&
    html`<details>
      <summary>${copy.topic}, shard ${copy.shard}, queue ${copy.queueId}, offset ${count(copy.queueOffset)}</summary>
      <${Facts}
        of=${[
          ["Id", html`<a class="mono" href=${href("messages", { id: copy.offsetMsgId, message: copy.offsetMsgId })}>${copy.offsetMsgId}</a>`],
          ["Log", `${count(copy.physicalOffset)}, ${bytes(copy.size)}`, copy.segment === null ? "It has expired just now." : `Segment ${copy.segment}`],
          ["In its queue", copy.inQueue ? "yes" : "no", copy.inQueue ? undefined : "The queue does not name this record: groups do not get it."],
          ["Groups", copy.groups.map((/** @type {any} */ each) => `${each.group} at ${each.committed ?? "none"}`).join(", ") || "none"],
        ]}
      />
    </details>`}`;
}
