// The form of a search: a draft of the state, which a button puts into the address.
import { html, useEffect, useState } from "../../lib/html.js";
import { setState } from "../../lib/router.js";
import { shards } from "../../lib/shards.js";
import { Segments, SelectField, TextField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { TopicField } from "../../parts/topicfield.js";
import { byOf, errorsOf } from "./search.js";

/** @typedef {import("../../lib/router.js").State} State */

const BY = /** @type {[string, string][]} */ ([["time", "Time"], ["key", "Key"], ["id", "Id"], ["queue", "Queue"]]);
const RANGES = /** @type {[string, string][]} */ ([
  ["", "All that is stored"],
  ["now-15m", "Last 15 minutes"],
  ["now-1h", "Last hour"],
  ["now-6h", "Last 6 hours"],
  ["now-24h", "Last 24 hours"],
  ["now-7d", "Last 7 days"],
  ["custom", "From … to …"],
]);
/** What the form can hold; a search begins with these and without the rest. */
const NAMES = ["by", "topic", "key", "id", "queue", "shard", "offset", "from", "to", "order", "tags", "sql", "include"];

/** @param {{state: State, onSearch: () => void}} props */
export function SearchForm({ state, onSearch }) {
  const [draft, setDraft] = useState(/** @type {State} */ (state));
  const [errors, setErrors] = useState(/** @type {Record<string, string>} */ ({}));
  const address = JSON.stringify(NAMES.map((name) => state[name]));
  useEffect(() => {
    setDraft(state);
    setErrors(NAMES.some((name) => name !== "by" && state[name]) ? errorsOf(state) : {});
  }, [address]);
  const by = byOf(draft);
  const change = (/** @type {State} */ changes) => setDraft((before) => ({ ...before, ...changes }));
  const text = (/** @type {string} */ name, /** @type {string} */ label, /** @type {object} */ more = {}) =>
    html`<${TextField} label=${label} value=${draft[name] ?? ""} error=${errors[name]} onChange=${(/** @type {string} */ value) => change({ [name]: value })} ...${more} />`;
  const search = (/** @type {Event} */ event) => {
    event.preventDefault();
    const found = errorsOf(draft);
    setErrors(found);
    if (Object.keys(found).length) return;
    setState({ ...Object.fromEntries(NAMES.map((name) => [name, draft[name]])), by: by === "time" ? "" : by, message: "", live: "" }, { isStep: true });
    onSearch();
  };
  return html`<form class="card" aria-label="Search for messages" onSubmit=${search}>
    <div class="filters">
      <div class="field by"><span class="label">Search by</span><${Segments} label="Search by" value=${by} options=${BY} onChange=${(/** @type {string} */ each) => change({ by: each })} /></div>
      <${TopicField} value=${draft.topic ?? ""} onChange=${(/** @type {string} */ topic) => change({ topic })} error=${errors.topic} />
      ${by === "key" && text("key", "Key or unique key")}
      ${by === "id" && text("id", "Message id, or unique key with its topic", { class: "long" })}
      ${by === "queue" && html`${(shards.value.length > 1 || draft.shard) && text("shard", "Shard", { inputmode: "numeric" })} ${text("queue", "Queue", { inputmode: "numeric" })} ${text("offset", "From offset", { inputmode: "numeric" })}`}
      ${(by === "time" || by === "key") && html`<${Range} draft=${draft} change=${change} text=${text} />`}
      ${by === "time" && !draft.tags && !draft.sql && html`<${SelectField} label="Order" value=${draft.order ?? "newest"} options=${[["newest", "Newest first"], ["oldest", "Oldest first"]]} onChange=${(/** @type {string} */ order) => change({ order: order === "newest" ? "" : order })} />`}
      ${(by === "time" || by === "queue") && html`<${Filter} draft=${draft} change=${change} text=${text} />`}
      <button class="button primary"><${Icon} name="search" />Search</button>
    </div>
  </form>`;
}

/** @typedef {{draft: State, change: (changes: State) => void, text: (name: string, label: string, more?: object) => any}} Part */

/** @param {Part} props */
function Range({ draft, change, text }) {
  const { from = "", to = "" } = draft;
  const isListed = !to && RANGES.some(([each]) => each === from);
  const [isCustom, setCustom] = useState(!isListed);
  const onChange = (/** @type {string} */ value) => {
    setCustom(value === "custom");
    if (value !== "custom") change({ from: value, to: "" });
  };
  const shown = isCustom || !isListed ? "custom" : from;
  return html`<${SelectField} label="Stored" value=${shown} options=${RANGES} onChange=${onChange} />
    ${shown === "custom" && html`${text("from", "From", { placeholder: "2026-11-27 12:00" })} ${text("to", "To", { placeholder: "now" })}`}`;
}

/** @param {Part} props */
function Filter({ draft, change, text }) {
  const [kind, setKind] = useState(draft.sql ? "sql" : draft.tags ? "tags" : "");
  const onChange = (/** @type {string} */ value) => {
    setKind(value);
    change({ tags: "", sql: "" });
  };
  return html`<${SelectField} label="Filter" value=${kind} options=${[["", "None"], ["tags", "Tags"], ["sql", "SQL"]]} onChange=${onChange} />
    ${kind === "tags" && text("tags", "Tags", { placeholder: "paid || created" })}
    ${kind === "sql" && text("sql", "Expression", { placeholder: "region = 'eu' AND amount > 5", class: "long" })}`;
}
