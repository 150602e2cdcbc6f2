// The settings in force, and where each comes from.
import { path, request } from "../../lib/api.js";
import { count, plural } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { setState } from "../../lib/router.js";
import { eachShard, shards } from "../../lib/shards.js";
import { Segments, SelectField, TextField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Card, Facts, Page } from "../../parts/page.js";
import { Empty, Failure, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { differs, mergeSettings, selectSettings, valueText } from "./merge.js";

/** @typedef {import("./merge.js").Setting} Setting */
/** @typedef {import("../../lib/shards.js").OfShards<any>} Replies */

const SOURCES = /** @type {Record<string, {kind: "accent" | "plain" | "good" | "warning", text: string}>} */ ({
  environment: { kind: "accent", text: "An environment variable, also one that mqstore run sets." },
  file: { kind: "good", text: "The settings file." },
  store: { kind: "plain", text: "Recorded in the store, or a consequence of another setting." },
  command: { kind: "accent", text: "The program that started the service." },
  default: { kind: "plain", text: "No source has it." },
});

const SERVICES = /** @type {[string, string][]} */ ([["", "store-writer"], ["query", "query"], ["coordinator", "transaction-coordinator"]]);

/** The service of the address, as requests name it. @param {import("../../lib/router.js").State} state */
const serviceOf = ({ of }) => /** @type {import("../../lib/api.js").Service} */ (of === "query" || of === "coordinator" ? of : "writer");

/** The settings of a service on each shard; coordinators serve all shards and have one configuration.
 * @param {import("../../lib/api.js").Service} service @param {AbortSignal} signal @returns {Promise<Replies>}
 */
async function load(service, signal) {
  if (service !== "coordinator") return eachShard((shard) => request({ service, path: "/v1/settings", params: { shard }, signal }));
  return { answers: new Map([[0, await request({ service, path: "/v1/settings", signal })]]), missing: {} };
}

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Settings({ state }) {
  const service = serviceOf(state);
  const loaded = useLoad((signal) => load(service, signal), [service]);
  return html`<${Page} title="Settings" hint="As the service read them at its start: a change needs a restart.">
    <${Segments} label="Service" value=${state.of ?? ""} options=${SERVICES} onChange=${(/** @type {string} */ of) => setState({ of, setting: "" })} />
    <${Shown} of=${loaded} lines=${10}>
      ${(/** @type {Replies} */ replies) => html`
        <${MissingShards} missing=${replies.missing} />
        <${List} replies=${replies} state=${state} />`}
    <//>
  <//>`;
}

/** @param {{replies: Replies, state: import("../../lib/router.js").State}} props */
function List({ replies, state }) {
  const { search = "", only = "" } = state;
  const settings = useMemo(() => mergeSettings(replies.answers), [replies]);
  const shown = useMemo(() => selectSettings(settings, { search, only }), [settings, search, only]);
  const different = settings.filter(differs);
  const opened = settings.find((each) => each.name === state.setting);
  const files = [...new Set([...replies.answers.values()].map((each) => each.configFile).filter(Boolean))];
  const options = [["", "All"], ["changed", "Not the default"], ...(shards.value.length > 1 ? [["differs", "Shards differ"]] : []), ...Object.keys(SOURCES).map((each) => [each, `From ${each}`])];
  return html`
    ${different.length > 0 && html`<${Notice} kind="warning" title=${`Shards have different values of ${plural(different.length, "setting")}`}>${different.slice(0, 8).map((each) => each.name).join(", ")}<//>`}
    <div class="split ${opened ? "is-open" : ""}">
      <section class="card" aria-label="Settings in force">
        <div class="filters">
          <${TextField} label="Name contains" type="search" value=${search} onChange=${(/** @type {string} */ text) => setState({ search: text })} />
          <${SelectField} label="Show" value=${only} options=${options} onChange=${(/** @type {string} */ next) => setState({ only: next })} />
        </div>
        ${shown.length === 0
          ? html`<${Empty} title="No setting is like this">Shorten the name, or show all.<//>`
          : html`<${Table}
              label="Settings"
              rows=${shown}
              columns=${COLUMNS}
              keyOf=${(/** @type {Setting} */ each) => each.name}
              selected=${state.setting}
              onSelect=${(/** @type {Setting} */ each) => setState({ setting: each.name }, { isStep: true })}
            />`}
        <p class="table-foot" role="status">${count(shown.length)} of ${plural(settings.length, "setting")}. ${files.length ? `Settings file: ${files.join(", ")}` : "There is no settings file."}</p>
      </section>
      ${opened && html`<${One} key=${opened.name} setting=${opened} service=${serviceOf(state)} />`}
    </div>`;
}

const COLUMNS = /** @type {import("../../parts/table.js").Column<Setting>[]} */ ([
  { name: "Setting", width: "34%", cell: (each) => each.name, title: (each) => each.name },
  {
    name: "Value",
    cell: (each) => html`<span class=${each.value === null || each.value === "" ? "muted" : "mono"}>${valueText(each.value)}</span> ${differs(each) && html`<${Badge} kind="warning">shards differ<//>`}`,
    title: (each) => valueText(each.value),
  },
  { name: "Default", width: "20%", cell: (each) => (each.source === "default" ? html`<span class="muted">the same</span>` : html`<span class="muted">${valueText(each.fallback)}</span>`), title: (each) => valueText(each.fallback) },
  { name: "Source", width: "128px", cell: (each) => html`<${Badge} kind=${SOURCES[each.source]?.kind ?? "plain"}>${each.source}<//>` },
]);

/** @param {{setting: Setting, service: import("../../lib/api.js").Service}} props */
function One({ setting, service }) {
  const close = html`<button class="button quiet square" aria-label="Close the setting" onClick=${() => setState({ setting: "" })}><${Icon} name="close" /></button>`;
  return html`<${Card} title=${setting.name} aside=${close}>
    <div class="stack">
      <${Facts}
        of=${[
          ["Value", html`<span class="mono">${valueText(setting.value)}</span>`],
          ["Default", html`<span class="mono">${valueText(setting.fallback)}</span>`],
          ["Source", setting.source, SOURCES[setting.source]?.text],
          ["Variable", html`<span class="mono">${setting.variable}</span>`, "The environment variable that sets it."],
          ...setting.others.map((each) => [`Shard ${each.shard}`, html`<span class="mono">${valueText(each.value)}</span>`, `from ${each.source}`]),
        ]}
      />
      <p class="muted small">The page “Settings” of the documentation says what it does.</p>
      <${Check} setting=${setting} service=${service} />
    </div>
  <//>`;
}

/** Finds out whether a setting can have another value; nothing is changed.
 * @param {{setting: Setting, service: import("../../lib/api.js").Service}} props
 */
function Check({ setting, service }) {
  const [value, setValue] = useState("");
  const [result, setResult] = useState(/** @type {{text?: string, problem?: any} | null} */ (null));
  const check = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const found = await request({ service, path: path`/v1/settings/${setting.name}`, params: { value } });
      setResult({ text: valueText(found.value) });
    } catch (problem) {
      setResult({ problem });
    }
  };
  return html`<form class="stack" onSubmit=${check}>
    <div class="row">
      <${TextField} label="Check another value" class="grow" value=${value} onChange=${(/** @type {string} */ text) => (setValue(text), setResult(null))} help="Nothing is changed." />
      <button class="button" disabled=${!value}>Check</button>
    </div>
    <div role="status">
      ${result?.problem && html`<${Failure} error=${result.problem} />`}
      ${result?.text !== undefined && html`<${Notice} kind="good" title=${`It can be ${result.text}`}>Set ${setting.variable} to it, and restart the service.<//>`}
    </div>
  </form>`;
}
