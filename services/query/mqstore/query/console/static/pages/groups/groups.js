// All consumer groups, or one of them.
import { requestAll } from "../../lib/all.js";
import { count, plural } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { ageText, GROUPS_MAX, loadLags } from "../../lib/lags.js";
import { useLoad } from "../../lib/load.js";
import { href, setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { SelectField, TextField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Page, Tile } from "../../parts/page.js";
import { Empty, Failure, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { GroupDialog } from "./editor.js";
import { Group } from "./group.js";
import { isSystem, mergeGroups, selectGroups } from "./list.js";
import { WriterState } from "./source.js";

/** @typedef {import("./list.js").Row} Row */
/** @typedef {import("../../lib/lags.js").Lags} Lags */

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Groups({ state }) {
  if (state.group) return html`<${Group} key=${state.group} name=${state.group} state=${state} />`;
  return html`<${AllGroups} state=${state} />`;
}

/** Names of the groups that were created or have offsets. @param {AbortSignal} signal @returns {Promise<string[]>} */
async function loadNames(signal) {
  const { groups } = await requestAll({ service: "writer", path: "/v1/groups", signal }, "groups");
  return groups.map((/** @type {any} */ each) => each.group);
}

/** @param {{state: import("../../lib/router.js").State}} props */
function AllGroups({ state }) {
  const lags = useLoad(loadLags, [], { everyS: 10 });
  const names = useLoad(loadNames, [], { everyS: 60 }); // long for many groups, and seldom another
  const [isCreating, setCreating] = useState(false);
  const create = html`<button class="button primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />Create group</button>`;
  return html`<${Page} title="Groups" actions=${may("admin") && create}>
    <${Shown} of=${lags} lines=${10}>
      ${(/** @type {Lags} */ found) => html`
        ${names.error && html`<${Failure} error=${names.error} retry=${names.reload} isStale=${names.data !== undefined} />`}
        <${MissingShards} missing=${found.missing} />
        <${WriterState} source=${found.source} />
        ${found.isCut && html`<${Notice} kind="warning" title=${`Only the first ${count(GROUPS_MAX)} groups are shown`}>Open another group by its name in the address: …/groups?group=NAME.<//>`}
        <${List} lags=${found} names=${names.data} state=${state} />`}
    <//>
    ${isCreating && html`<${GroupDialog} onClose=${() => setCreating(false)} onDone=${names.reload} />`}
  <//>`;
}

const NO_NAMES = /** @type {string[]} */ ([]);

/** @param {{lags: Lags, names: string[] | undefined, state: import("../../lib/router.js").State}} props names: undefined until they are loaded */
function List({ lags, names = NO_NAMES, state }) {
  const { search = "", only = "", sort = "-lag" } = state;
  const withSystem = state.system === "1";
  const rows = useMemo(() => mergeGroups(names, lags.groups), [names, lags]);
  const shown = useMemo(() => selectGroups(rows, { search, only, withSystem, sort }), [rows, search, only, withSystem, sort]);
  const own = rows.filter((each) => !isSystem(each.group));
  const sum = (/** @type {(row: Row) => number} */ value) => own.reduce((total, each) => total + value(each), 0);
  const behind = own.filter((each) => each.lag > 0);
  return html`<div class="tiles">
      <${Tile} label="Groups" value=${count(own.length)} note=${behind.length ? `${count(behind.length)} behind` : "none is behind"} />
      <${Tile} label="To be consumed" value=${count(sum((each) => each.lag))} note="over all groups" />
      <${Tile} label="Oldest of them" value=${ageText(Math.max(0, ...own.map((each) => each.age)))} note="since it was stored" />
      <${Tile} label="Dead letters" value=${count(sum((each) => each.dead))} note="not resent or purged" />
      <${Tile} label="Expired unread" value=${count(sum((each) => each.expired))} note="deleted before a group came to them" />
    </div>
    <section class="card" aria-label="All groups">
      <div class="filters">
        <${TextField} label="Name contains" value=${search} type="search" onChange=${(/** @type {string} */ text) => setState({ search: text })} />
        <${SelectField}
          label="Show"
          value=${only}
          options=${[["", "All groups"], ["behind", "Only those behind"], ["dead", "With dead letters"], ["expired", "With expired messages"]]}
          onChange=${(/** @type {string} */ value) => setState({ only: value })}
        />
        <label class="check">
          <input type="checkbox" checked=${withSystem} onChange=${(/** @type {any} */ event) => setState({ system: event.currentTarget.checked ? "1" : "" })} />
          System groups
        </label>
      </div>
      ${shown.length === 0
        ? html`<${Empty} title=${own.length ? "No group is like this" : "There are no groups yet"}>
            ${own.length ? "Shorten the name, or show all groups." : "A group appears once it is created, or once a consumer commits an offset."}
          <//>`
        : html`<${Table}
            label="Groups"
            rows=${shown}
            columns=${COLUMNS}
            keyOf=${(/** @type {Row} */ each) => each.group}
            sorted=${sort}
            onSort=${(/** @type {string} */ next) => setState({ sort: next === "-lag" ? "" : next })}
            width=${900}
          />`}
      <p class="table-foot" role="status">${count(shown.length)} of ${plural(withSystem ? rows.length : own.length, "group")}</p>
    </section>`;
}

const unknown = html`<span class="muted" title="store-writer does not reply">–</span>`;
const number = (/** @type {number} */ value) => (value ? count(value) : html`<span class="muted">0</span>`);
const ofState = (/** @type {"waiting" | "leased" | "retrying" | "delayed"} */ name) => (/** @type {Row} */ row) => {
  const value = row.states?.[name];
  return value === undefined || value === null ? unknown : number(value);
};

const COLUMNS = /** @type {import("../../parts/table.js").Column<Row>[]} */ ([
  { name: "Group", sort: "name", width: "26%", cell: (row) => html`<a href=${href("groups", { group: row.group })}>${row.group}</a> ${row.isIdle && html`<${Badge}>no offset yet<//>`}`, title: (row) => row.group },
  { name: "Lag", sort: "lag", isNumber: true, cell: (row) => (row.lag ? html`<strong>${count(row.lag)}</strong>` : number(0)) },
  { name: "Oldest", sort: "age", isNumber: true, cell: (row) => (row.lag ? ageText(row.age) : html`<span class="muted">–</span>`) },
  { name: "Waiting", sort: "waiting", isNumber: true, cell: ofState("waiting") },
  { name: "Leased", sort: "leased", isNumber: true, cell: ofState("leased") },
  { name: "Retrying", sort: "retrying", isNumber: true, cell: ofState("retrying") },
  { name: "Delayed", sort: "delayed", isNumber: true, cell: ofState("delayed") },
  { name: "Dead", sort: "dead", isNumber: true, cell: (row) => (row.dead ? html`<${Badge} kind="warning">${count(row.dead)}<//>` : number(0)) },
  { name: "Expired", sort: "expired", isNumber: true, cell: (row) => (row.expired ? html`<${Badge} kind="bad">${count(row.expired)}<//>` : number(0)) },
]);
