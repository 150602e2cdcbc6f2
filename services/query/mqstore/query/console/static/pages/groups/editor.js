// Creates a group, or changes its settings, after a preview.
import { path, request } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { navigate } from "../../lib/router.js";
import { missingOf } from "../../lib/shards.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { TextField } from "../../parts/form.js";
import { Empty, Failure, MissingShards, Notice } from "../../parts/states.js";
import { changesOf, countError, DEFAULTS, differing, labelOf, nameError } from "./changes.js";

/** @typedef {import("./changes.js").Config} Config */
/** @typedef {{name: string, before: Config, after: Config, isNew: boolean}} Plan */

const NAMES = Object.keys(DEFAULTS);
const isCount = (/** @type {string} */ name) => typeof DEFAULTS[name] === "number";

/** The settings of a group now; null for one that the store does not know. Throws Problem.
 * @param {string} group @returns {Promise<{configured: boolean, config: any} | null>}
 */
async function loadGroup(group) {
  try {
    return await request({ service: "writer", path: path`/v1/groups/${group}` });
  } catch (error) {
    if (/** @type {any} */ (error).name === "group-unknown") return null;
    throw error;
  }
}

/** Those settings of a group that can be changed here. @param {any} config @returns {Config} */
const own = (config) => Object.fromEntries(NAMES.map((name) => [name, config[name] ?? DEFAULTS[name]]));

/** @param {{group?: string, config?: any, onClose: () => void, onDone: () => void}} props group: the one that is changed */
export function GroupDialog({ group, config, onClose, onDone }) {
  const [name, setName] = useState(group ?? "");
  const [values, setValues] = useState(() => Object.fromEntries(Object.entries(own(config ?? DEFAULTS)).map(([each, value]) => [each, typeof value === "number" ? String(value) : value])));
  const [isChecked, setChecked] = useState(false);
  const [plan, setPlan] = useState(/** @type {Plan | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [missing, setMissing] = useState(/** @type {Record<string, string>} */ ({}));
  const errors = Object.fromEntries(NAMES.filter(isCount).map((each) => [each, countError(String(values[each]))]));
  const wrongName = group ? "" : nameError(name);
  const preview = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setChecked(true);
    setProblem(null);
    if (wrongName || Object.values(errors).some(Boolean)) return;
    try {
      const found = await loadGroup(name);
      const after = Object.fromEntries(Object.entries(values).map(([each, value]) => [each, typeof value === "string" ? Number(value) : value]));
      setPlan({ name, before: own(found?.config ?? DEFAULTS), after, isNew: !found?.configured });
    } catch (error) {
      setProblem(error);
    }
  };
  const save = async () => {
    const { before, after, isNew } = /** @type {Plan} */ (plan);
    setProblem(null);
    try {
      const done = await request({ service: "writer", method: "PUT", path: path`/v1/groups/${name}`, body: differing(before, after) });
      onDone();
      announce(isNew ? `Group ${name} was created` : `Group ${name} was changed`);
      setMissing(missingOf(done.shards));
      if (Object.keys(missingOf(done.shards)).length) return;
      onClose();
      if (!group) navigate("groups", { group: name, tab: "settings" });
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title=${group ? `Change ${group}` : "Create a group"} onClose=${onClose}>
    <div class="stack">
      ${problem && html`<${Failure} error=${problem} />`}
      <${MissingShards} missing=${missing} />
      ${plan
        ? html`<${Preview} plan=${plan} onBack=${() => (setPlan(null), setMissing({}))} onSave=${save} />`
        : html`<form class="stack" noValidate onSubmit=${preview}>
            ${!group && html`<${TextField} label="Name" value=${name} onChange=${setName} error=${isChecked ? wrongName : ""} help="Letters, digits, _ and -" />`}
            <div class="form">
              ${NAMES.map((each) =>
                isCount(each)
                  ? html`<${TextField} key=${each} label=${labelOf(each)} value=${values[each]} inputmode="numeric" error=${isChecked ? errors[each] : ""} onChange=${(/** @type {string} */ text) => setValues({ ...values, [each]: text })} />`
                  : html`<label class="check" key=${each}><input type="checkbox" checked=${values[each]} onChange=${(/** @type {any} */ event) => setValues({ ...values, [each]: event.currentTarget.checked })} />${labelOf(each)}</label>`,
              )}
            </div>
            <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary">Preview</button></footer>
          </form>`}
    </div>
  <//>`;
}

/** @param {{plan: Plan, onBack: () => void, onSave: () => void}} props */
function Preview({ plan, onBack, onSave }) {
  const { name, before, after, isNew } = plan;
  const changes = changesOf(before, after);
  const stops = after.consumeEnable === false && before.consumeEnable === true;
  const isNothing = !isNew && !changes.length;
  return html`
    <p>${isNew ? html`The group <strong>${name}</strong> is created on all shards${changes.length ? ", with" : " with RocketMQ's defaults."}` : html`The group <strong>${name}</strong> exists. On all shards${changes.length ? " this changes" : " nothing changes."}`}</p>
    ${isNothing && html`<${Empty} title="Nothing would change">Go back, and change a setting.<//>`}
    ${changes.length > 0 && html`<div class="table-box small-table" tabindex="0" role="region" aria-label="Changes">
      <table>
        <thead><tr><th scope="col" class="half">Setting</th><th scope="col">${isNew ? "Default" : "Now"}</th><th scope="col">Then</th></tr></thead>
        <tbody>${changes.map((each) => html`<tr key=${each.name}><td title=${each.name}>${labelOf(each.name)}</td><td>${each.before}</td><td><strong>${each.after}</strong></td></tr>`)}</tbody>
      </table>
    </div>`}
    ${changes.filter((each) => each.why).map((each) => html`<p class="small muted" key=${each.name}>${labelOf(each.name)}: ${each.why}</p>`)}
    ${stops && html`<${Notice} kind="warning" title="The group gets no messages from then on">Its lag grows, and retention deletes what it has not read in time.<//>`}
    <footer>
      <button type="button" class="button" onClick=${onBack}>Back</button>
      <button type="button" class="button ${stops ? "danger" : "primary"}" disabled=${isNothing} onClick=${onSave}>${isNew ? "Create group" : "Change group"}</button>
    </footer>`;
}
