// Search for messages, and follow a topic.
import { count, percent, plural } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { setState } from "../../lib/router.js";
import { shards } from "../../lib/shards.js";
import { formatTime, zone } from "../../lib/times.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Page } from "../../parts/page.js";
import { Empty, Failure, Loading, MissingShards, Notice } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Time } from "../../parts/time.js";
import { ExportDialog } from "./exporter.js";
import { SearchForm } from "./form.js";
import { useLive } from "./live.js";
import { MessagePanel } from "./panel.js";
import { useReading } from "./reading.js";
import { byOf, errorsOf, readerOf } from "./search.js";

/** @typedef {import("./readers.js").Message} Message */
/** @typedef {import("../../lib/router.js").State} State */

/** @param {{state: State}} props */
export default function Messages({ state }) {
  const [searches, setSearches] = useState(0);
  const [isExporting, setExporting] = useState(false);
  const isLive = state.live === "1";
  const isReady = Object.keys(errorsOf(state)).length === 0;
  const canExport = isReady && !isLive && byOf(state) !== "id";
  const canFollow = Boolean(state.topic) && byOf(state) === "time";
  const actions = html`
    ${canFollow && html`<button class="button" aria-pressed=${String(isLive)} onClick=${() => setState({ live: isLive ? "" : "1", message: "" })}><${Icon} name=${isLive ? "close" : "play"} />${isLive ? "End live" : "Live"}</button>`}
    ${canExport && html`<button class="button" onClick=${() => setExporting(true)}><${Icon} name="download" />Export</button>`}`;
  return html`<${Page} title="Messages" actions=${actions}>
    <${SearchForm} state=${state} onSearch=${() => setSearches(searches + 1)} />
    ${!isReady && html`<div class="card"><${Empty} title="Which messages?">Choose a topic, and a time, a key or a queue; or enter an id.<//></div>`}
    ${isReady &&
    html`<div class="split ${state.message ? "is-open" : ""}">
      ${isLive ? html`<${LiveResult} state=${state} />` : html`<${FoundResult} state=${state} searches=${searches} />`}
      ${state.message && html`<${MessagePanel} key=${state.message} id=${state.message} />`}
    </div>`}
    ${isExporting && html`<${ExportDialog} state=${state} onClose=${() => setExporting(false)} />`}
  <//>`;
}

/** The search that a state is of: what does not belong to it is left out. @param {State} state */
const searchOf = ({ message: _, live: __, ...search }) => JSON.stringify(search);

/** @param {{state: State, searches: number}} props */
function FoundResult({ state, searches }) {
  const { result, more, stop } = useReading(() => readerOf(state), [searchOf(state), searches]);
  const { messages, unreadable, missing, isLoading, isDone, error, progress } = result;
  const isEmpty = isDone && !messages.length && !unreadable.length;
  return html`<section class="card" aria-label="Messages found">
    <${MissingShards} missing=${missing} />
    ${error && html`<${Failure} error=${error} retry=${more} />`}
    ${unreadable.length > 0 && html`<${Unreadable} all=${unreadable} />`}
    ${isEmpty && html`<${Empty} title="No message was found">${emptyHint(state)}<//>`}
    ${messages.length > 0
      ? html`<${List} messages=${messages} state=${state} onEnd=${isDone || error ? undefined : more} isPartial=${!isDone} />`
      : isLoading && html`<${Loading} lines=${8} />`}
    <p class="table-foot" role="status">
      <${Verdict} result=${result} />
      ${isLoading && progress && progress.total > 0 && html`<span>${percent(progress.searched / progress.total)} of ${count(progress.total)} searched</span><button class="button small" onClick=${stop}>Stop</button>`}
      ${!isLoading && !isDone && !error && html`<button class="button small" onClick=${more}>Load more</button>`}
    </p>
  </section>`;
}

/** Whether all that was searched for is here. @param {{result: import("./reading.js").Result}} props */
function Verdict({ result: { messages, isDone, isComplete, isLoading, error } }) {
  if (error) return html`<${Badge} kind="bad">Not complete<//> ${count(messages.length)} until the error`;
  if (!isDone) return html`<span>${count(messages.length)} so far${isLoading ? ", loading…" : "; there are more"}</span>`;
  if (!isComplete) return html`<${Badge} kind="warning">Not complete<//><span>${plural(messages.length, "message")} found; some may be missing</span>`;
  return html`<${Badge} kind="good">Complete<//><span>${plural(messages.length, "message")}</span>`;
}

/** @param {State} state */
function emptyHint(state) {
  if (state.tags || state.sql) return "No message of this range passes the filter.";
  if (byOf(state) === "key") return "A key is found as it was sent, upper and lower case included. Delayed messages are found once they are delivered.";
  return "The topic has none in this range. Choose a longer one; old messages expire.";
}

/** @param {{all: any[]}} props */
const Unreadable = ({ all }) => html`<${Notice} kind="bad" title=${`${plural(all.length, "message is", "messages are")} damaged`} role="alert">
  <ul>${all.slice(0, 5).map((each) => html`<li key=${each.physicalOffset}>At ${count(each.physicalOffset)}: ${each.detail}</li>`)}</ul>
<//>`;

/** @param {{state: State}} props */
function LiveResult({ state }) {
  const [isOn, setOn] = useState(true);
  const { messages, dropped, missing, isReady, error } = useLive({ topic: state.topic, tags: state.tags, sql: state.sql, isOn });
  return html`<section class="card" aria-label="Live messages">
    <${MissingShards} missing=${missing} />
    ${error && html`<${Failure} error=${error} isStale=${messages.length > 0} />`}
    ${!isReady && !error && html`<${Loading} label="Reading the ends of the queues" />`}
    ${messages.length > 0 ? html`<${List} messages=${messages} state=${state} isPartial />` : isReady && html`<${Empty} title="Waiting for messages">Each message that is stored in ${state.topic} from now on appears here.<//>`}
    <p class="table-foot">
      <button class="button small" onClick=${() => setOn(!isOn)}><${Icon} name=${isOn ? "pause" : "play"} />${isOn ? "Pause" : "Go on"}</button>
      <${Badge} kind=${isOn ? "good" : "warning"}>${isOn ? "Live" : "Paused"}<//>
      <span>${plural(messages.length + dropped, "message")}${dropped ? `; the oldest ${count(dropped)} are no longer shown` : ""}</span>
      ${!isOn && html`<span>It goes on where it paused.</span>`}
    </p>
  </section>`;
}

/** @param {{messages: Message[], state: State, onEnd?: () => void, isPartial: boolean}} props */
const List = ({ messages, state, onEnd, isPartial }) => html`<${Table}
  label="Messages"
  rows=${messages}
  columns=${state.message ? FEW_COLUMNS : COLUMNS}
  keyOf=${(/** @type {Message} */ each) => each.offsetMsgId}
  selected=${state.message}
  onSelect=${(/** @type {Message} */ each) => setState({ message: each.offsetMsgId })}
  onEnd=${onEnd}
  isPartial=${isPartial}
  width=${state.message ? 420 : 820}
/>`;

const COLUMNS = /** @type {import("../../parts/table.js").Column<Message>[]} */ ([
  { name: "Stored", width: "196px", cell: (each) => html`<${Time} ms=${each.storeTimestamp} />`, title: (each) => formatTime(each.storeTimestamp, zone.value) },
  { name: "Key", width: "22%", cell: (each) => each.keys.join(" ") || html`<span class="muted">${each.uniqKey ?? "–"}</span>`, title: (each) => each.keys.join(" ") },
  { name: "Tag", width: "110px", cell: (each) => each.tags ?? html`<span class="muted">–</span>`, title: (each) => each.tags ?? undefined },
  { name: "Queue", width: "130px", isNumber: true, cell: (each) => html`${shards.value.length > 1 ? `${each.shard} · ` : ""}${each.queueId}<span class="muted"> @ </span>${count(each.queueOffset)}` },
  { name: "Body", cell: (each) => html`<span class="mono">${preview(each)}</span>` },
]);

/** Those beside an opened message. */
const FEW_COLUMNS = COLUMNS.slice(0, 3).map((each) => (each.name === "Key" ? { ...each, width: undefined } : each));

/** @param {Message} message */
function preview(message) {
  if (message.body !== undefined && message.body !== "") return message.body.slice(0, 200);
  return html`<span class="muted">${message.bodySize ? `${count(message.bodySize)} bytes` : "empty"}</span>`;
}
