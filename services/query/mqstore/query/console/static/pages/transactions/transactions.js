// Transactions: the undecided ones by group and age, lists by state, and the history of one.
import { request } from "../../lib/api.js";
import { count, duration, plural } from "../../lib/format.js";
import { html, useMemo } from "../../lib/html.js";
import { usePages } from "../../lib/paging.js";
import { setState } from "../../lib/router.js";
import { shards } from "../../lib/shards.js";
import { SelectField, TextField } from "../../parts/form.js";
import { Badge, Card, Page } from "../../parts/page.js";
import { Empty, Failure, MissingShards, Shown } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Time } from "../../parts/time.js";
import { AGES, byGroup } from "./ages.js";
import { StateBadge, History } from "./history.js";

/**
 * @typedef {object} Transaction
 * @property {string} transactionId
 * @property {number} shard
 * @property {"pending" | "committed" | "rolled-back" | "set-aside"} state
 * @property {string} producerGroup
 * @property {number} messages
 * @property {number} bornTimestamp
 * @property {number} checksSent
 * @property {{at: number, by: string, answer: string | null}[]} checks
 * @property {number | null} decidedAt
 * @property {string} why
 * @property {{uniqKey: string, topic: string, queueId: number, queueOffset: number, physicalOffset: number, storeTimestamp: number, checkTimes: number, opOffset: number | null}[]} halves
 */
/** @typedef {{transactions: Transaction[], next: string | null, missing: number[]}} Reply */

const STATES = /** @type {[string, string][]} */ ([
  ["", "Undecided"],
  ["pending", "Pending"],
  ["set-aside", "Set aside"],
  ["committed", "Committed"],
  ["rolled-back", "Rolled back"],
]);

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Transactions({ state }) {
  const { of = "", group = "", age = "" } = state;
  const listed = usePages(
    (cursor, signal) => request({ service: "writer", path: "/v1/transactions", params: { state: of, group, olderThan: age, limit: 200, cursor }, signal }),
    (/** @type {Reply} */ page) => page.transactions,
    [of, group, age],
    { everyS: 10 },
  );
  return html`<${Page} title="Transactions">
    <div class="split ${state.id ? "is-open" : ""}">
      <div class="stack">
        <section class="card" aria-label="Filter">
          <div class="filters">
            <${SelectField} label="State" value=${of} options=${STATES} onChange=${(/** @type {string} */ next) => setState({ of: next })} />
            <${TextField} label="Producer group" value=${group} onCommit=${(/** @type {string} */ next) => setState({ group: next.trim() })} />
            <${SelectField}
              label="Age"
              value=${age}
              options=${[["", "Any"], ["60", "Over 1 minute"], ["600", "Over 10 minutes"], ["3600", "Over 1 hour"], ["86400", "Over 1 day"]]}
              onChange=${(/** @type {string} */ next) => setState({ age: next })}
            />
          </div>
        </section>
        <${Shown} of=${listed.first}>
          ${() => html`<${List} listed=${listed} isUndecided=${of === "" || of === "pending" || of === "set-aside"} hasFilter=${Boolean(of || group || age)} selected=${state.id} />`}
        <//>
      </div>
      ${state.id && html`<${History} key=${state.id} id=${state.id} onChanged=${listed.first.reload} />`}
    </div>
  <//>`;
}

/** @param {{listed: import("../../lib/paging.js").Pages<Reply, Transaction>, isUndecided: boolean, hasFilter: boolean, selected?: string}} props */
function List({ listed, isUndecided, hasFilter, selected }) {
  const missing = Object.fromEntries((listed.first.data?.missing ?? []).map((each) => [each, "it did not reply"]));
  if (listed.rows.length === 0) {
    return html`<${MissingShards} missing=${missing} />
      <div class="card"><${Empty} title=${hasFilter ? "No transaction matches" : "No transaction waits for a decision"}>
        ${hasFilter ? "Change the filter. Decided transactions are remembered as far as the newest 50,000 of each shard." : "All half messages are committed or rolled back. Choose another state to see them."}
      <//></div>`;
  }
  return html`<${MissingShards} missing=${missing} />
    ${isUndecided && html`<${Ages} rows=${listed.rows} isPartial=${listed.hasMore} />`}
    <section class="card" aria-label="Transactions">
      <${Table}
        label="Transactions"
        rows=${listed.rows}
        columns=${columns()}
        keyOf=${(/** @type {Transaction} */ each) => each.transactionId}
        selected=${selected}
        onSelect=${(/** @type {Transaction} */ each) => setState({ id: each.transactionId }, { isStep: true })}
        onEnd=${listed.loadNext}
        isPartial=${listed.hasMore}
        width=${640}
      />
      ${listed.problem && html`<${Failure} error=${listed.problem} retry=${listed.retry} />`}
      <p class="table-foot" role="status">${plural(listed.rows.length, "transaction")}, oldest first${listed.hasMore ? "; more are loaded as you scroll" : ""}</p>
    </section>`;
}

/** @param {{rows: Transaction[], isPartial: boolean}} props */
function Ages({ rows, isPartial }) {
  const groups = useMemo(() => byGroup(rows, Date.now()), [rows]);
  return html`<${Card} title="By group and age" aside=${isPartial && html`<span class="muted small">of the ${count(rows.length)} that are loaded</span>`} isPlain>
    <div class="table-box ages" tabindex="0" role="region" aria-label="Transactions by group and age">
      <table>
        <thead>
          <tr>
            <th scope="col">Producer group</th>
            ${AGES.map((each) => html`<th scope="col" class="number" key=${each.name}>${each.name}</th>`)}
            <th scope="col" class="number">Oldest</th>
          </tr>
        </thead>
        <tbody>
          ${groups.map((each) => html`<tr key=${each.group}>
            <th scope="row"><button class="link" onClick=${() => setState({ group: each.group })}>${each.group}</button> ${each.setAside > 0 && html`<${Badge} kind="warning">${count(each.setAside)} set aside<//>`}</th>
            ${each.counts.map((value, i) => html`<td class="number ${value && i > 1 ? "is-old" : ""}" key=${i}>${value ? count(value) : html`<span class="muted">0</span>`}</td>`)}
            <td class="number">${duration(Math.max(0, Date.now() - each.oldestMs))}</td>
          </tr>`)}
        </tbody>
      </table>
    </div>
  <//>`;
}

/** @param {Transaction} each */
const topicsOf = (each) => [...new Set(each.halves.map((half) => half.topic))].join(", ");

const COLUMNS = /** @type {import("../../parts/table.js").Column<Transaction>[]} */ ([
  { name: "Begun", width: "200px", cell: (each) => html`<${Time} ms=${each.bornTimestamp} />` },
  { name: "State", width: "116px", cell: (each) => html`<${StateBadge} state=${each.state} />` },
  { name: "Producer group", cell: (each) => each.producerGroup, title: (each) => each.producerGroup },
  { name: "Topic", cell: topicsOf, title: topicsOf },
  { name: "Messages", width: "88px", isNumber: true, cell: (each) => count(each.messages) },
  { name: "Checks", width: "76px", isNumber: true, cell: (each) => count(each.checksSent) },
]);

/** @returns {typeof COLUMNS} */
const columns = () => (shards.value.length > 1 ? [...COLUMNS, { name: "Shard", width: "64px", isNumber: true, cell: (each) => each.shard }] : COLUMNS);
