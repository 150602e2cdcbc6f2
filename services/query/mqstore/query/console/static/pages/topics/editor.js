// Creates a topic, or changes one.
import { path, request } from "../../lib/api.js";
import { count } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { setState } from "../../lib/router.js";
import { missingOf } from "../../lib/shards.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { SelectField, TextField } from "../../parts/form.js";
import { Failure, MissingShards, Notice } from "../../parts/states.js";

/** @param {{topic?: import("./list.js").Topic, onClose: () => void, onDone: () => void}} props topic: the one that is changed */
export function TopicDialog({ topic, onClose, onDone }) {
  const [name, setName] = useState(topic?.topic ?? "");
  const [readQueues, setReadQueues] = useState(String(topic?.readQueues ?? 4));
  const [writeQueues, setWriteQueues] = useState(String(topic?.writeQueues ?? 4));
  const [perm, setPerm] = useState(String(topic?.perm ?? 6));
  const [isOrdered, setOrdered] = useState(topic?.order ?? false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [missing, setMissing] = useState(/** @type {Record<string, string>} */ ({}));
  /** What a change would hide, until it is confirmed. */
  const [hidden, setHidden] = useState(/** @type {any} */ (null));
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem(null);
    const body = { readQueues: Number(readQueues), writeQueues: Number(writeQueues), perm: Number(perm), order: isOrdered };
    const put = (/** @type {any} */ more) => request({ service: "writer", method: "PUT", path: path`/v1/topics/${name}`, body: { ...body, ...more } });
    const isFewer = topic && Math.max(body.readQueues, body.writeQueues) < Math.max(topic.readQueues, topic.writeQueues);
    try {
      if (isFewer && !hidden) {
        const plan = await put({ dryRun: true });
        if (plan.hiddenMessages) {
          setHidden(plan);
          return;
        }
      }
      const found = await put(hidden ? { allowUnread: true } : {});
      onDone();
      setState({ topic: name });
      announce(topic ? `Topic ${name} was changed` : `Topic ${name} was created`);
      if (Object.keys(missingOf(found.shards)).length) setMissing(missingOf(found.shards));
      else onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  const changing = (/** @type {(value: string) => void} */ set) => (/** @type {string} */ value) => {
    setHidden(null);
    set(value);
  };
  const number = { type: "number", min: 1, required: true, inputmode: "numeric" };
  return html`<${Dialog} title=${topic ? `Change ${topic.topic}` : "Create a topic"} onClose=${onClose}>
    <form class="stack" onSubmit=${save}>
      ${problem && html`<${Failure} error=${problem} />`}
      <${MissingShards} missing=${missing} />
      ${hidden && html`<${Hidden} plan=${hidden} writeQueues=${writeQueues} />`}
      <div class="form">
        ${!topic && html`<${TextField} class="wide" label="Name" value=${name} onChange=${setName} required pattern="[%\\|a-zA-Z0-9_\\-]+" maxlength="127" help="Letters, digits, _ and -" />`}
        <${TextField} label="Write queues" value=${writeQueues} onChange=${changing(setWriteQueues)} help="On each shard" ...${number} />
        <${TextField} label="Read queues" value=${readQueues} onChange=${changing(setReadQueues)} help="As many as write queues, but while their number is changed" ...${number} />
        <${SelectField} label="Permission" value=${perm} onChange=${setPerm} options=${[["6", "Read and write"], ["4", "Read only"], ["2", "Write only"]]} />
        <label class="check"><input type="checkbox" checked=${isOrdered} onChange=${(/** @type {any} */ event) => setOrdered(event.currentTarget.checked)} />Ordered topic</label>
      </div>
      <footer>
        <button type="button" class="button" onClick=${onClose}>${Object.keys(missing).length ? "Close" : "Cancel"}</button>
        <button class="button primary">${hidden ? "Hide these messages" : topic ? "Change topic" : "Create topic"}</button>
      </footer>
    </form>
  <//>`;
}

/** The messages that a change would hide, the groups that have not consumed them, and how to drain the queues instead.
 * @param {{plan: any, writeQueues: string}} props
 */
function Hidden({ plan, writeQueues }) {
  const title = `${count(plan.hiddenMessages)} messages in ${count(plan.hiddenQueues)} queues could be received no more`;
  return html`<${Notice} kind="warning" title=${title} role="alert">
    ${plan.unread.length
      ? html`<ul>${plan.unread.map((/** @type {any} */ each) => html`<li key=${each.group}>${each.group ? `${each.group} has not consumed ${count(each.messages)}` : "No group consumes the topic"}</li>`)}</ul>
        <p>To drain them, leave the read queues as they are and lower the write queues to ${writeQueues}. Lower the read queues when the lag is 0.</p>`
      : html`<p>All groups have consumed them.</p>`}
  <//>`;
}
