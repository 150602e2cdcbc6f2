// One group: how far it is behind, its dead letters, members and settings.
import { path, request } from "../../lib/api.js";
import { count } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { ageOf, ageText } from "../../lib/lags.js";
import { useLoad } from "../../lib/load.js";
import { href, setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { missingOf } from "../../lib/shards.js";
import { Segments, SelectField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Card, Page, Tile } from "../../parts/page.js";
import { Shares } from "../../parts/shares.js";
import { Empty, MissingShards, Notice, Shown } from "../../parts/states.js";
import { DeadLetters } from "./letters.js";
import { Members } from "./members.js";
import { Queues } from "./queues.js";
import { ResetDialog } from "./reset.js";
import { GroupSettings } from "./settings.js";
import { WriterState } from "./source.js";

const TABS = /** @type {[string, string][]} */ ([["", "Lag"], ["dead", "Dead letters"], ["members", "Members"], ["settings", "Settings"]]);

/** The lag of a group; null for a group that has not committed an offset. Throws Problem.
 * @param {string} group @param {string} topic of which the states are; empty: of all @param {AbortSignal} signal
 */
async function loadLag(group, topic, signal) {
  const of = (/** @type {string} */ each) => request({ path: path`/v1/groups/${group}/lag`, params: { topic: each }, signal });
  try {
    const [all, one] = await Promise.all([of(""), topic ? of(topic) : null]);
    return { ...all, states: (one ?? all).states };
  } catch (error) {
    if (/** @type {any} */ (error).name === "group-unknown") return null;
    throw error;
  }
}

/** @param {{name: string, state: import("../../lib/router.js").State}} props */
export function Group({ name, state }) {
  const [isResetting, setResetting] = useState(false);
  const { topic = "" } = state;
  const tab = TABS.find(([each]) => each === state.tab)?.[0] ?? "";
  const lag = useLoad((signal) => loadLag(name, topic, signal), [name, topic], { everyS: 5 });
  const actions = may("admin") && html`<button class="button" onClick=${() => setResetting(true)}><${Icon} name="refresh" />Reset offsets</button>`;
  return html`<${Page} title=${name} hint=${html`Group. <a href=${href("groups")}>All groups</a>`} actions=${actions}>
    <${Segments} label="View of the group" value=${tab} options=${TABS} onChange=${(/** @type {string} */ next) => setState({ tab: next, letter: "" }, { isStep: true })} />
    ${tab === "" && html`<${Shown} of=${lag} lines=${8}>${(/** @type {any} */ found) => html`<${Lag} name=${name} lag=${found} topic=${topic} />`}<//>`}
    ${tab === "dead" && html`<${DeadLetters} group=${name} state=${state} />`}
    ${tab === "members" && html`<${Members} group=${name} />`}
    ${tab === "settings" && html`<${GroupSettings} group=${name} />`}
    ${isResetting && html`<${ResetDialog} group=${name} topics=${topicsOf(lag.data)} onClose=${() => setResetting(false)} onDone=${lag.reload} />`}
  <//>`;
}

/** @param {any} lag @returns {string[]} */
const topicsOf = (lag) => (lag?.topics ?? []).map((/** @type {any} */ each) => each.topic);

/** @param {{name: string, lag: any, topic: string}} props */
function Lag({ name, lag, topic }) {
  if (!lag) {
    return html`<div class="card"><${Empty} title="This group has not committed an offset">
      A lag is shown once a consumer commits. Settings may exist before: see Settings. A group with another name may be meant: <a href=${href("groups")}>all groups</a>.
    <//></div>`;
  }
  const topics = lag.topics.filter((/** @type {any} */ each) => !topic || each.topic === topic);
  const sum = (/** @type {string} */ field) => topics.reduce((/** @type {number} */ total, /** @type {any} */ each) => total + each[field], 0);
  const oldest = ageOf({ topics });
  const names = topicsOf(lag);
  return html`<${MissingShards} missing=${missingOf(lag.shards)} />
    <${WriterState} source=${lag.offsets} />
    ${sum("expired") > 0 &&
    html`<${Notice} kind="bad" title=${`${count(sum("expired"))} messages expired before the group came to them`}>
      Retention deleted them. To keep the next ones, let the group catch up, or name it in keepForGroups. <a href=${href("retention")}>What goes next</a>
    <//>`}
    <div class="tiles">
      <${Tile} label="Lag" value=${count(sum("lag"))} note="messages to be consumed" />
      <${Tile} label="Oldest" value=${sum("lag") ? ageText(oldest) : "–"} note="since it was stored" />
      <${Tile} label="Delayed" value=${figure(lag.states?.delayed)} note="returned, not due yet; not in the lag" />
      <${Tile} label="Dead letters" value=${html`<a href=${href("groups", { group: name, tab: "dead" })}>${count(lag.deadLetters)}</a>`} note="no consumer gets them" />
      <${Tile} label="Expired" value=${count(sum("expired"))} note="deleted unread; not in the lag" />
    </div>
    <${Card} title="The lag by state" aside=${names.length > 1 && html`<${TopicChoice} topics=${names} value=${topic} />`}>
      <${States} states=${lag.states} />
    <//>
    <${Queues} group=${name} topics=${topics} />`;
}

const figure = (/** @type {number | null | undefined} */ value) => (value === null || value === undefined ? "–" : count(value));

/** @param {{topics: string[], value: string}} props */
const TopicChoice = ({ topics, value }) => html`<${SelectField}
  label="Topic"
  class="inline"
  value=${value}
  options=${[["", "All topics"], ...topics.map((each) => [each, each])]}
  onChange=${(/** @type {string} */ next) => setState({ topic: next })}
/>`;

/** @param {{states: import("../../lib/lags.js").States | null}} props */
function States({ states }) {
  if (!states) return html`<${Notice} title="The states are not known now">store-writer has the leases, and does not reply. The lag itself is right.<//>`;
  return html`<${Shares}
    label="Messages of the lag"
    of=${[
      { name: "Waiting", value: states.waiting, why: "to be delivered, for the first time or after a lease expired" },
      { name: "Leased", value: states.leased, why: "delivered, and not acknowledged yet" },
      { name: "Retrying", value: states.retrying, why: "returned by a consumer, and due to be delivered again" },
      { name: "Acknowledged", value: states.acknowledged, why: "done or filtered out, behind a message that is not: the committed offset is in front of them" },
    ]}
  />`;
}
