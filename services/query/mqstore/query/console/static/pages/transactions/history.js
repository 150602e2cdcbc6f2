// The history of one transaction, and an operator's decision.
import { path, request } from "../../lib/api.js";
import { count, plural } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href, setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { formatTime } from "../../lib/times.js";
import { announce } from "../../parts/announce.js";
import { CopyButton } from "../../parts/calls.js";
import { Dialog } from "../../parts/dialog.js";
import { Segments, TextField } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Badge, Card, Facts } from "../../parts/page.js";
import { Failure, Notice, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";

/** @typedef {import("./transactions.js").Transaction} Transaction */

const KINDS = /** @type {Record<string, "accent" | "warning" | "good" | "plain">} */ ({ pending: "accent", "set-aside": "warning", committed: "good", "rolled-back": "plain" });

/** @param {{state: string}} props */
export const StateBadge = ({ state }) => html`<${Badge} kind=${KINDS[state] ?? "plain"}>${state}<//>`;

/** What happened to a transaction, oldest first. @param {Transaction} found @returns {{atMs: number, text: string, detail: string, kind: string}[]} */
export function eventsOf(found) {
  const begun = { atMs: found.bornTimestamp, text: `Begun by ${found.producerGroup}`, detail: plural(found.messages, "message"), kind: "" };
  const checks = found.checks.map(({ at, by, answer }) => ({ atMs: at, text: `Checked: ${answer ?? "no answer yet"}`, detail: `sent to ${by}`, kind: "" }));
  const unseen = found.checksSent - found.checks.length;
  if (unseen > 0) checks.unshift({ atMs: found.bornTimestamp, text: `${plural(unseen, "earlier check")}`, detail: "sent before the store was opened", kind: "" });
  const decided = found.decidedAt ? [{ atMs: found.decidedAt, text: ENDS[found.state] ?? found.state, detail: found.why, kind: KINDS[found.state] ?? "" }] : [];
  return [begun, ...checks, ...decided];
}

const ENDS = /** @type {Record<string, string>} */ ({ committed: "Committed", "rolled-back": "Rolled back", "set-aside": "Set aside: its producers are not called any more" });

/** @param {{id: string, onChanged: () => void}} props */
export function History({ id, onChanged }) {
  const [isResolving, setResolving] = useState(false);
  const found = useLoad((signal) => request({ service: "writer", path: path`/v1/transactions/${id}`, signal }), [id], { everyS: 5 });
  const close = html`<button class="button quiet square" aria-label="Close the transaction" onClick=${() => setState({ id: "" })}><${Icon} name="close" /></button>`;
  const onDone = () => {
    found.reload();
    onChanged();
  };
  return html`<${Card} title="Transaction" aside=${close}>
    <${Shown} of=${found}>
      ${(/** @type {Transaction} */ data) => html`<div class="stack">
        <div class="row">
          <${StateBadge} state=${data.state} />
          ${may("admin") && (data.state === "pending" || data.state === "set-aside") && html`<button class="button primary" onClick=${() => setResolving(true)}>Resolve</button>`}
        </div>
        <${Facts}
          of=${[
            ["Id", html`<span class="mono">${data.transactionId}</span> <${CopyButton} text=${data.transactionId} />`],
            ["Producer group", data.producerGroup],
            ["Begun", html`<${Time} ms=${data.bornTimestamp} />`],
            ["Messages", count(data.messages)],
            ["Checks sent", count(data.checksSent)],
            ["Shard", data.shard],
          ]}
        />
        <h3>What happened</h3>
        <ol class="timeline">
          ${eventsOf(data).map((each, i) => html`<li key=${i} class=${each.kind}><div class="row"><strong>${each.text}</strong><span class="muted small"><${Time} ms=${each.atMs} /></span></div>${each.detail && html`<p>${each.detail}</p>`}</li>`)}
        </ol>
        <${Halves} halves=${data.halves} shard=${data.shard} />
        ${isResolving && html`<${ResolveDialog} transaction=${data} onClose=${() => setResolving(false)} onDone=${onDone} />`}
      </div>`}
    <//>
  <//>`;
}

/** @param {{halves: Transaction["halves"], shard: number}} props */
function Halves({ halves, shard }) {
  return html`<h3>Half messages</h3>
    <div class="table-box small-table" tabindex="0" role="region" aria-label="Half messages">
      <table>
        <thead><tr><th scope="col" class="half">Unique key</th><th scope="col">Topic</th><th scope="col" class="number">Checks</th></tr></thead>
        <tbody>
          ${halves.map((each) => html`<tr key=${each.physicalOffset}>
            <td title=${`${each.uniqKey}\nstored ${formatTime(each.storeTimestamp)} on shard ${shard}, queue ${each.queueId} of the half topic, offset ${each.queueOffset}`}><a href=${href("trace", { topic: each.topic, key: each.uniqKey })}>${each.uniqKey}</a></td>
            <td title=${each.topic}>${each.topic}</td>
            <td class="number">${each.checkTimes}</td>
          </tr>`)}
        </tbody>
      </table>
    </div>`;
}

/** @param {{transaction: Transaction, onClose: () => void, onDone: () => void}} props */
function ResolveDialog({ transaction, onClose, onDone }) {
  const [decision, setDecision] = useState("");
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const resolve = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await request({ service: "writer", method: "POST", path: path`/v1/transactions/${transaction.transactionId}` + ":resolve", body: { decision, reason } });
      announce(decision === "commit" ? "The transaction was committed" : "The transaction was rolled back");
      onDone();
      onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Resolve the transaction" onClose=${onClose}>
    <form class="stack" onSubmit=${resolve}>
      <p>The producer group <strong>${transaction.producerGroup}</strong> has not decided it. Find out from the business what happened before you do.</p>
      <${Segments} label="Decision" value=${decision} options=${[["commit", "Commit"], ["rollback", "Roll back"]]} onChange=${setDecision} />
      ${decision === "commit" && html`<${Notice} kind="warning" title=${`${plural(transaction.messages, "message")} become visible`}>Consumers of ${[...new Set(transaction.halves.map((each) => each.topic))].join(", ")} get them.<//>`}
      ${decision === "rollback" && html`<${Notice} kind="warning" title=${`No consumer gets the ${plural(transaction.messages, "message")}`}>A later commit by the producer is refused.<//>`}
      <${TextField} label="Reason" value=${reason} onChange=${setReason} help="Kept with the decision." maxlength="1000" required />
      ${problem && html`<${Failure} error=${problem} />`}
      <footer>
        <button type="button" class="button" onClick=${onClose}>Cancel</button>
        <button class="button danger" disabled=${!decision || !reason.trim() || isBusy}>${decision === "commit" ? "Commit" : decision === "rollback" ? "Roll back" : "Resolve"}</button>
      </footer>
    </form>
  <//>`;
}
