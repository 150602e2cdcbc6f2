// Deletes what has expired now, after it has shown what that is.
import { request } from "../../lib/api.js";
import { bytes, plural } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { Facts } from "../../parts/page.js";
import { Failure, Notice } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { deletedByRun, inWords, stretches, unreadIn } from "./plan.js";

/** @param {{shard: number, plan: any, readers: import("./plan.js").Reader[], isWhole: boolean, onClose: () => void, onDone: () => void}} props */
export function RunDialog({ shard, plan, readers, isWhole, onClose, onDone }) {
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const segments = stretches(plan);
  const deleted = deletedByRun(plan, segments);
  const last = deleted.at(-1);
  const losing = last ? unreadIn(last, readers) : [];
  const stays = segments[deleted.length];
  const run = async () => {
    setBusy(true);
    setProblem(null);
    try {
      await request({ service: "writer", method: "POST", path: "/v1/store/retention:run", params: { shard } });
      announce("The deletion runs; this page shows its progress");
      onDone();
      onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Delete expired segments of shard ${shard}`} onClose=${onClose}>
    <div class="stack">
      ${last
        ? html`<${Facts}
            of=${[
              ["Segments", plural(deleted.length, "segment")],
              ["Bytes", bytes(deleted.reduce((sum, each) => sum + each.size, 0))],
              ["Messages until", html`<${Time} ms=${last.modifiedMs} />`, "About: messages are deleted with their segments."],
            ]}
          />`
        : html`<${Notice} title="Nothing would be deleted">${stays ? `The oldest segment stays: ${inWords(stays.why)}.` : "The log is empty."}<//>`}
      ${losing.length > 0 && html`<${Notice} kind="bad" title=${`${plural(losing.length, "group")} may lose unread messages`}>${losing.slice(0, 8).map((each) => each.group).join(", ")}<//>`}
      ${last && !isWhole && html`<${Notice} kind="warning" title="Who has not read them is not known">The lags of all groups could not be loaded: groups may lose unread messages.<//>`}
      ${last && html`<p class="muted">The messages are gone for good. Later segments that expire within the next minutes go too.</p>`}
      ${problem && html`<${Failure} error=${problem} />`}
      <footer>
        <button class="button" onClick=${onClose}>${last ? "Cancel" : "Close"}</button>
        ${last && html`<button class="button danger" disabled=${isBusy} onClick=${run}>Delete now</button>`}
      </footer>
    </div>
  <//>`;
}
