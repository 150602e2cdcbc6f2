// All topics, and one of them with its queues and settings.
import { requestAll } from "../../lib/all.js";
import { compact, count, plural } from "../../lib/format.js";
import { topicRates } from "../../lib/history.js";
import { html, useCallback, useMemo, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { eachShard } from "../../lib/shards.js";
import { TextField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Page } from "../../parts/page.js";
import { Empty, MissingShards, Shown } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { counts, want } from "./counts.js";
import { TopicDialog } from "./editor.js";
import { mergeTopics, selectTopics } from "./list.js";
import { TopicPanel } from "./panel.js";

/** @typedef {import("./list.js").Topic} Topic */
/** @typedef {{topics: Topic[], missing: Record<string, string>}} Listed */

async function loadTopics(/** @type {AbortSignal} */ signal) {
  const { answers, missing } = await eachShard((shard) => requestAll({ service: "writer", path: "/v1/topics", params: { shard }, signal }, "topics"));
  return { topics: mergeTopics(answers), missing };
}

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Topics({ state }) {
  const listed = useLoad(loadTopics, [], { everyS: 30 });
  const [isCreating, setCreating] = useState(false);
  const create = html`<button class="button primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />Create topic</button>`;
  const opened = listed.data?.topics.find((each) => each.topic === state.topic);
  return html`<${Page} title="Topics" actions=${may("admin") && create}>
    <${Shown} of=${listed} lines=${10}>
      ${(/** @type {Listed} */ { topics, missing }) => html`
        <${MissingShards} missing=${missing} />
        <div class="split ${state.topic ? "is-open" : ""}">
          <${List} topics=${topics} state=${state} />
          ${state.topic && html`<${TopicPanel} key=${state.topic} name=${state.topic} topic=${opened} onChanged=${listed.reload} />`}
        </div>`}
    <//>
    ${isCreating && html`<${TopicDialog} onClose=${() => setCreating(false)} onDone=${listed.reload} />`}
  <//>`;
}

const COLUMNS = /** @type {import("../../parts/table.js").Column<Topic>[]} */ ([
  {
    name: "Topic",
    sort: "name",
    width: "40%",
    cell: (each) => html`${each.topic} ${each.absent.length > 0 && html`<${Badge} kind="warning">not on ${plural(each.absent.length, "shard")}<//>`}`,
    title: (each) => each.topic,
  },
  { name: "Queues", sort: "queues", isNumber: true, cell: (each) => count(each.writeQueues) },
  { name: "Messages", isNumber: true, cell: (each) => html`<${Count} topic=${each.topic} />` },
  { name: "In", sort: "in", isNumber: true, cell: (each) => html`<${Rate} of="in" topic=${each.topic} />` },
  { name: "Out", sort: "out", isNumber: true, cell: (each) => html`<${Rate} of="out" topic=${each.topic} />` },
]);

/** @param {{topics: Topic[], state: import("../../lib/router.js").State}} props */
function List({ topics, state }) {
  const { search = "", sort = "name" } = state;
  const withSystem = state.system === "1";
  const rates = sort.endsWith("in") || sort.endsWith("out") ? topicRates.value : null;
  const shown = useMemo(
    () => selectTopics(topics, { search, withSystem, sort, rates: rates ?? { in: new Map(), out: new Map() } }),
    [topics, search, withSystem, sort, rates],
  );
  const onVisible = useCallback((/** @type {Topic[]} */ rows) => want(rows.map((each) => each.topic)), []);
  return html`<section class="card" aria-label="All topics">
    <div class="filters">
      <${TextField} label="Name contains" value=${search} type="search" onChange=${(/** @type {string} */ text) => setState({ search: text })} />
      <label class="check">
        <input type="checkbox" checked=${withSystem} onChange=${(/** @type {any} */ event) => setState({ system: event.currentTarget.checked ? "1" : "" })} />
        System topics
      </label>
    </div>
    ${shown.length === 0
      ? html`<${Empty} title=${topics.length ? "No topic has this name" : "There are no topics yet"}>
          ${topics.length ? "Shorten the text, or show system topics." : "A topic is created by a button above, or by the first message that is sent to it."}
        <//>`
      : html`<${Table}
          label="Topics"
          rows=${shown}
          columns=${COLUMNS}
          keyOf=${(/** @type {Topic} */ each) => each.topic}
          selected=${state.topic}
          onSelect=${(/** @type {Topic} */ each) => setState({ topic: each.topic }, { isStep: true })}
          sorted=${sort}
          onSort=${(/** @type {string} */ next) => setState({ sort: next === "name" ? "" : next })}
          onVisible=${onVisible}
        />`}
    <p class="table-foot" role="status">${count(shown.length)} of ${plural(topics.length, "topic")}</p>
  </section>`;
}

/** @param {{topic: string}} props */
function Count({ topic }) {
  const found = counts.value.get(topic);
  return found === undefined ? html`<span class="muted">…</span>` : found === null ? html`<span class="muted">–</span>` : count(found);
}

/** @param {{of: "in" | "out", topic: string}} props */
function Rate({ of, topic }) {
  const rate = topicRates.value[of].get(topic);
  return rate ? `${compact(rate)}/s` : html`<span class="muted">–</span>`;
}
