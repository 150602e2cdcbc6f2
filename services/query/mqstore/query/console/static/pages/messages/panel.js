// One message with all its fields.
import { path, request } from "../../lib/api.js";
import { bytes, count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href, setState } from "../../lib/router.js";
import { CopyButton } from "../../parts/calls.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Card, Facts } from "../../parts/page.js";
import { Notice, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { Body } from "./body.js";
import { blocksMeaning, FLAGS, PROPERTIES } from "./meanings.js";

const BODY_MAX = 256 << 10;

/** @param {{id: string, topic?: string}} props topic: of a unique key */
export function MessagePanel({ id, topic }) {
  const params = { body: "base64", inflate: true, bodyMax: BODY_MAX, topic };
  const loaded = useLoad((signal) => request({ path: path`/v1/messages/${id}`, params, signal }), [id, topic]);
  const close = html`<button class="button quiet square" aria-label="Close the message" onClick=${() => setState({ message: "" })}><${Icon} name="close" /></button>`;
  return html`<${Card} title="Message" aside=${close} class="message">
    <${Shown} of=${loaded}>${(/** @type {any} */ message) => html`<${Details} message=${message} />`}<//>
  <//>`;
}

/** @param {{message: any}} props */
function Details({ message }) {
  const { offsetMsgId: id, properties } = message;
  return html`<div class="stack">
    <div class="row">
      <a class="button" href=${href("trace", { id })}><${Icon} name="trace" />Trace</a>
      ${message.keys.map((/** @type {string} */ key) => html`<a key=${key} class="badge accent plain" href=${href("messages", { topic: message.topic, key })} title="All messages with this key">${key}</a>`)}
      ${message.tags && html`<${Badge}>${message.tags}<//>`}
    </div>
    <${Body} message=${message} />
    ${message.checkedBy === "record" && html`<${Notice} kind="warning" title="The disk has changed near this message">Only its own checks vouch for it. The how-to page “Repair damage” says what to do.<//>`}
    <section class="stack" aria-label="Properties">
      <h3>Properties</h3>
      <${Facts} of=${Object.entries(properties).map(([name, value]) => [name, value, PROPERTIES[name]])} />
    </section>
    <section class="stack" aria-label="Place and times">
      <h3>Place and times</h3>
      <${Facts} of=${placeOf(message)} />
      <div class="row"><${CopyButton} text=${id} label="Copy id" /><${CopyButton} text=${JSON.stringify(message, null, 2)} label="Copy as JSON" /></div>
    </section>
  </div>`;
}

/** @param {any} message @returns {[string, any, any?][]} */
function placeOf(message) {
  const flags = message.sysFlagNames;
  const { queueEntry: entry, checksum } = message;
  const { topic, queueId: queue, shard, queueOffset: offset } = message;
  return [
    ["Topic", html`<a href=${href("topics", { topic })}>${topic}</a>`],
    ["Queue", html`<a href=${href("messages", { topic, queue, shard, offset })}>queue ${queue} of shard ${shard}, offset ${count(offset)}</a>`],
    ["Stored", html`<${Time} ms=${message.storeTimestamp} />`, `by ${message.storeHost}`],
    ["Born", html`<${Time} ms=${message.bornTimestamp} />`, `the producer's clock; ${message.bornHost}`],
    ["Offset id", html`<span class="mono">${message.offsetMsgId}</span>`, "Address of the store, and offset in the log"],
    ["Unique key", html`<span class="mono">${message.uniqKey ?? "none"}</span>`],
    ["Log", `${count(message.physicalOffset)}, ${bytes(message.size)}`, `Offset and size of its record; segment ${message.segment}`],
    ["Flag", String(message.flag), "The application's own"],
    ["System flags", `${message.sysFlag}${flags.length ? ` (${flags.join(", ")})` : ""}`, flags.map((/** @type {string} */ each) => FLAGS[each] ?? each).join(" ") || "None is set."],
    ["Returned", `${message.reconsumeTimes} times`, "by consumers"],
    ["Half message at", message.preparedTransactionOffset ? count(message.preparedTransactionOffset) : "none", "Offset of the half message of its transaction"],
    ["Queue entry", entry === null ? "none" : entry.namesIt ? "names this record" : "names another record", entry === null ? "The queue has no entry at its offset." : `Hash of its tag: ${entry.tagsCode}`],
    ["Checksums", checksum.blocks, blocksMeaning(checksum.blocks)],
    ["Body CRC", String(checksum.bodyCrc), "It fits the body."],
  ];
}
