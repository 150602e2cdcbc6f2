// Repairs the log of a shard, after it has shown the plan.
import { request } from "../../lib/api.js";
import { bytes, count, plural } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { SelectField } from "../../parts/form.js";
import { Failure, Loading, Notice } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { kindInWords } from "./findings.js";

/** @param {{shards: number[], onClose: () => void, onDone: () => void}} props */
export function RepairDialog({ shards, onClose, onDone }) {
  const [shard, setShard] = useState(String(shards[0]));
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const send = async (/** @type {boolean} */ dryRun) => {
    setBusy(true);
    setProblem(null);
    try {
      const report = await request({ service: "writer", method: "POST", path: "/v1/store/scrub:repair", params: { dryRun, shard } });
      if (dryRun) return setPlan(report.plan);
      announce(`${plural(report.plan.actions.length, "range")} of the log repaired`);
      onDone();
      onClose();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  const change = (/** @type {string} */ next) => {
    setShard(next);
    setPlan(null);
  };
  return html`<${Dialog} title="Repair the log" onClose=${onClose}>
    <div class="stack">
      <p>A plan reads the whole log, without a pause. Take a backup before a repair.</p>
      ${shards.length > 1 && html`<${SelectField} label="Shard" value=${shard} options=${shards.map((each) => [String(each), `Shard ${each}`])} onChange=${change} />`}
      ${isBusy && html`<${Loading} lines=${2} label=${plan ? "Repairing" : "Reading the log"} />`}
      ${problem && html`<${Failure} error=${problem} />`}
      ${plan && html`<${Plan} plan=${plan} />`}
      <footer>
        <button class="button" onClick=${onClose}>${plan && !plan.actions.length ? "Close" : "Cancel"}</button>
        ${!plan && html`<button class="button primary" disabled=${isBusy} onClick=${() => send(true)}>Preview</button>`}
        ${plan?.actions.length > 0 && html`<button class="button danger" disabled=${isBusy} onClick=${() => send(false)}>Repair</button>`}
      </footer>
    </div>
  <//>`;
}

const COLUMNS = /** @type {import("../../parts/table.js").Column<any>[]} */ ([
  { name: "Log offset", width: "130px", cell: (each) => count(each.offset) },
  { name: "Bytes", width: "70px", isNumber: true, cell: (each) => count(each.length) },
  { name: "What would be done", cell: (each) => kindInWords(each.kind), title: (each) => kindInWords(each.kind) },
]);

/** @param {{plan: any}} props */
function Plan({ plan }) {
  const read = `${bytes(plan.scannedBytes)} with ${plural(plan.records, "record")} were read.`;
  if (!plan.actions.length) {
    const left = plan.damagedBlockCount;
    return html`<${Notice} kind=${left ? "warning" : "good"} role="status" title=${left ? `Nothing can be repaired; ${plural(left, "block")} differ from their checksums` : "Nothing is damaged"}>${read}<//>`;
  }
  const lost = plan.actions.filter((/** @type {any} */ each) => each.kind === "place-tombstone").length;
  return html`<${Notice} kind=${lost ? "bad" : "warning"} role="status" title=${lost ? `${plural(lost, "message")} cannot be restored` : `${plural(plan.actions.length, "range")} can be restored`}>${read}${lost ? " A tombstone keeps the place of each; a replica may still have it." : ""}<//>
    <section class="card queues" aria-label="Plan">
      <${Table} label="Plan of the repair" rows=${plan.actions} columns=${COLUMNS} keyOf=${(/** @type {any} */ each) => `${each.kind} ${each.offset}`} width=${360} />
    </section>`;
}
