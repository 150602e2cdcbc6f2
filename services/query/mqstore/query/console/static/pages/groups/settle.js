// Resends or purges dead letters, after it has counted them.
import { path, request } from "../../lib/api.js";
import { count, plural } from "../../lib/format.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { Failure, Loading, MissingShards, Notice } from "../../parts/states.js";
import { settle } from "./settling.js";

/** @typedef {import("./settling.js").Outcome} Outcome */

const DESTINATIONS = /** @type {[string, string, string][]} */ ([
  ["group", "Only this group", "The letter goes to the group's retry topic."],
  ["topic", "The source topic", "Each group of the topic gets it again."],
]);

/** @param {{group: string, kind: "resend" | "purge", ids?: string[], filter: Record<string, any>, onClose: () => void, onDone: () => void}} props */
export function SettleDialog({ group, kind, ids, filter, onClose, onDone }) {
  const [to, setTo] = useState("group");
  const [plan, setPlan] = useState(/** @type {Outcome | null} */ (null));
  const [done, setDone] = useState(/** @type {Outcome | null} */ (null));
  const [step, setStep] = useState(/** @type {"counting" | "ready" | "running" | "ended"} */ ("counting"));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const stopped = useRef(false);
  const run = async (/** @type {boolean} */ dryRun) => {
    stopped.current = false;
    setProblem(null);
    setStep(dryRun ? "counting" : "running");
    const send = (/** @type {object} */ body, /** @type {string | null} */ cursor) =>
      request({ service: "writer", method: "POST", path: path`/v1/groups/${group}/dead-letters:` + kind, params: { cursor }, body });
    try {
      const outcome = await settle(send, { ids, filter, to: kind === "resend" ? to : undefined, dryRun }, dryRun ? setPlan : setDone, () => stopped.current);
      setStep(dryRun ? "ready" : "ended");
      if (dryRun) return;
      announce(`${plural(outcome.done, "dead letter")} ${kind === "resend" ? "resent" : "purged"}`);
      onDone();
      if (outcome.refused + outcome.unreachable === 0 && !Object.keys(outcome.missing).length) onClose();
    } catch (error) {
      setProblem(error);
      setStep(dryRun ? "counting" : "ended");
      if (!dryRun) onDone();
    }
  };
  useEffect(() => {
    setPlan(null);
    run(true);
    return () => {
      stopped.current = true;
    };
  }, [to]);
  const verb = kind === "resend" ? "Resend" : "Purge";
  return html`<${Dialog} title=${`${verb} dead letters of ${group}`} onClose=${onClose}>
    <div class="stack">
      ${kind === "resend" && step !== "running" && step !== "ended" && html`<${Destination} value=${to} onChange=${setTo} />`}
      ${kind === "purge" && html`<p>Purged letters are not listed any more. Their messages stay in <code>%DLQ%${group}</code> until retention deletes them.</p>`}
      <p class="muted">${ids ? `${plural(ids.length, "picked letter")}.` : Object.keys(filter).length ? `All that match: ${Object.entries(filter).map(([name, value]) => `${name} ${value}`).join(", ")}.` : "All dead letters of the group."}</p>
      ${problem && html`<${Failure} error=${problem} retry=${() => run(step === "counting")} />`}
      ${!plan && !problem && html`<${Loading} lines=${2} label="Counting" />`}
      ${plan && !done && html`<${Counted} outcome=${plan} isCounting=${step === "counting"} verb=${kind === "resend" ? "resent" : "purged"} />`}
      ${done && html`<${Ended} outcome=${done} of=${plan?.done ?? 0} isRunning=${step === "running"} verb=${kind === "resend" ? "resent" : "purged"} />`}
      <footer>
        ${step === "running" && html`<button class="button" onClick=${() => (stopped.current = true)}>Stop after this step</button>`}
        ${step !== "running" && html`<button class="button" onClick=${onClose}>${step === "ended" ? "Close" : "Cancel"}</button>`}
        ${(step === "counting" || step === "ready") &&
        html`<button class="button ${kind === "purge" ? "danger" : "primary"}" disabled=${step !== "ready" || !plan?.done} onClick=${() => run(false)}>${verb} ${plan ? count(plan.done) : ""}</button>`}
      </footer>
    </div>
  <//>`;
}

/** @param {{value: string, onChange: (value: string) => void}} props */
const Destination = ({ value, onChange }) => html`<fieldset class="stack">
  <legend class="visually-hidden">Where to</legend>
  ${DESTINATIONS.map(
    ([each, name, why]) => html`<label class="check" key=${each}>
      <input type="radio" name="destination" value=${each} checked=${each === value} onChange=${() => onChange(each)} />
      <span>${name}<span class="muted small"> – ${why}</span></span>
    </label>`,
  )}
</fieldset>`;

/** @param {{outcome: Outcome, isCounting: boolean, verb: string}} props */
function Counted({ outcome, isCounting, verb }) {
  const kind = outcome.refused ? "warning" : "";
  return html`<${MissingShards} missing=${outcome.missing} />
    <${Notice} kind=${kind} role="status" title=${`${plural(outcome.done, "dead letter")} would be ${verb}${isCounting ? " so far…" : ""}`}><${Rest} outcome=${outcome} /><//>`;
}

/** @param {{outcome: Outcome, of: number, isRunning: boolean, verb: string}} props */
function Ended({ outcome, of, isRunning, verb }) {
  const isWhole = !isRunning && outcome.refused + outcome.unreachable === 0;
  return html`<${MissingShards} missing=${outcome.missing} />
    <${Notice} kind=${isRunning ? "" : isWhole ? "good" : "warning"} role="status" title=${`${count(outcome.done)} of ${count(of)} ${verb}${isRunning ? "…" : ""}`}><${Rest} outcome=${outcome} /><//>`;
}

/** @param {{outcome: Outcome}} props */
function Rest({ outcome }) {
  const rest = [
    outcome.settled && `${count(outcome.settled)} were resent or purged before`,
    outcome.unknown && `${count(outcome.unknown)} are unknown or expired`,
    outcome.refused && `${count(outcome.refused)} cannot be resent`,
    outcome.unreachable && `${count(outcome.unreachable)} are on a shard that does not reply; repeat it later`,
  ].filter(Boolean);
  if (!rest.length && !outcome.details.length) return null;
  return html`${rest.length > 0 && html`<p>${rest.join("; ")}.</p>`}
    <ul>${outcome.details.map((each) => html`<li key=${each}>${each}</li>`)}</ul>`;
}
