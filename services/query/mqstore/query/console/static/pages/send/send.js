// Sends one test message.
import { path, request } from "../../lib/api.js";
import { count } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { href, setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { announce } from "../../parts/announce.js";
import { Field, Segments, SelectField, TextField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Card, Page } from "../../parts/page.js";
import { Empty, Failure } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { TopicField } from "../../parts/topicfield.js";
import { errorsOf, messageOf } from "./message.js";

/** @typedef {{atMs: number, topic: string, placed: any}} Sent */

const FORMS = [["text", "Text"], ["json", "JSON"], ["base64", "Base64"]];
const DURABILITIES = [["", "As the store is set"], ["sync", "On disk before the reply"], ["async", "In memory of the system"], ["replicated", "On a replica too"]];

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Send({ state }) {
  const [fields, setFields] = useState(/** @type {Record<string, string>} */ ({ form: "text", body: "", topic: state.topic ?? "" }));
  const [errors, setErrors] = useState(/** @type {Record<string, string>} */ ({}));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isSending, setSending] = useState(false);
  const [sent, setSent] = useState(/** @type {Sent[]} */ ([]));
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => setFields((before) => ({ ...before, [name]: value }));
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const found = errorsOf(fields);
    setErrors(found);
    setProblem(null);
    if (Object.keys(found).length) return;
    const topic = /** @type {string} */ (fields.topic);
    setState({ topic });
    setSending(true);
    try {
      const body = { messages: [messageOf(fields)], durability: fields.durability || undefined };
      const reply = await request({ service: "writer", method: "POST", path: path`/v1/topics/${topic}/messages`, body });
      setSent((before) => [{ atMs: Date.now(), topic, placed: reply.messages[0] }, ...before]);
      announce("The message is stored");
    } catch (error) {
      setProblem(error);
    }
    setSending(false);
  };
  const text = (/** @type {string} */ name, /** @type {string} */ label, /** @type {object} */ more = {}) =>
    html`<${TextField} label=${label} value=${fields[name] ?? ""} error=${errors[name]} onChange=${set(name)} ...${more} />`;
  return html`<${Page} title="Send" hint="One message, to try a topic, a filter or a consumer.">
    <div class="grid send">
      <${Card} title="Message">
        <form class="stack" onSubmit=${send}>
          ${problem && html`<${Failure} error=${problem} />`}
          <div class="form">
            <${TopicField} value=${fields.topic ?? ""} onChange=${set("topic")} error=${errors.topic} />
            ${text("tags", "Tag")} ${text("keys", "Keys", { help: "Separated by spaces" })}
          </div>
          <div class="row"><${Segments} label="Form of the body" value=${fields.form} options=${FORMS} onChange=${set("form")} /></div>
          <${Area} label="Body" name="body" fields=${fields} errors=${errors} set=${set} />
          <${Area} label="Properties" name="properties" fields=${fields} errors=${errors} set=${set} help="One on each line, as region=eu" />
          <div class="form">
            ${text("delay", "Delay in seconds", { inputmode: "decimal", help: "Empty: deliver at once" })}
            ${text("orderingKey", "Ordering key", { help: "Messages under one key stay in order" })}
            <${SelectField} label="Durability" value=${fields.durability ?? ""} options=${DURABILITIES} onChange=${set("durability")} />
          </div>
          <div class="row"><button class="button primary" disabled=${isSending}><${Icon} name="send" />Send message</button></div>
        </form>
      <//>
      <${Card} title="Sent from here" isPlain><${SentList} all=${sent} /><//>
    </div>
  <//>`;
}

/** @param {{label: string, name: string, fields: Record<string, string>, errors: Record<string, string>, set: (name: string) => (value: string) => void, help?: string}} props */
const Area = ({ label, name, fields, errors, set, help }) => html`<${Field} label=${label} error=${errors[name]} help=${help}>
  ${(/** @type {object} */ attributes) => html`<textarea
    rows=${name === "body" ? 8 : 3}
    spellcheck=${false}
    value=${fields[name] ?? ""}
    onInput=${(/** @type {any} */ event) => set(name)(event.currentTarget.value)}
    ...${attributes}
  ></textarea>`}
<//>`;

/** @param {{all: Sent[]}} props */
function SentList({ all }) {
  if (!all.length) return html`<${Empty} title="Nothing yet">Each message that you send is listed here until you leave the page.<//>`;
  return html`<ol class="events">
    ${all.map(({ atMs, topic, placed }) => html`<li key=${atMs}>
      <${Time} ms=${atMs} />
      <span>
        ${placed.waitsIn ? html`<${Waiting} topic=${topic} placed=${placed} />` : html`<${Stored} topic=${topic} placed=${placed} />`}
        ${placed.repeat && " (it had been stored before)"}
      </span>
    </li>`)}
  </ol>`;
}

/** @param {{topic: string, placed: any}} props */
function Stored({ topic, placed }) {
  const text = `${topic}, queue ${placed.queueId}, offset ${count(placed.queueOffset)}`;
  return may("consume") ? html`<a href=${href("messages", { id: placed.offsetMsgId, message: placed.offsetMsgId })}>${text}</a>` : text;
}

/** A delayed message: its place in the topic is not known before it is delivered; its trace finds it.
 * @param {{topic: string, placed: any}} props
 */
function Waiting({ topic, placed }) {
  const text = `${topic}, delayed`;
  return html`${may("consume") ? html`<a href=${href("trace", { topic, key: placed.uniqKey })}>${text}</a>` : text}, due <${Time} ms=${placed.dueAt} />; until then in ${placed.waitsIn}`;
}
