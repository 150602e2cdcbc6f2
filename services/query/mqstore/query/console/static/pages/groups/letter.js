// One dead letter.
import { count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { href, setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { Icon } from "../../parts/icon.js";
import { Card, Facts } from "../../parts/page.js";
import { Time } from "../../parts/time.js";
import { Body } from "../messages/body.js";

/**
 * @typedef {import("../messages/readers.js").Message & {
 *   deadSince: number,
 *   sourceTopic: string | null,
 *   originMessageId: string | null,
 *   reason: string | null,
 *   deliveryAttempts: number,
 * }} Letter sourceTopic: null if a producer sent it to %DLQ%GROUP
 */

/** @param {{letter: Letter, onAct: (kind: "resend" | "purge") => void}} props */
export function LetterPanel({ letter, onAct }) {
  const close = html`<button class="button quiet square" aria-label="Close the dead letter" onClick=${() => setState({ letter: "" })}><${Icon} name="close" /></button>`;
  return html`<${Card} title="Dead letter" aside=${close}>
    <div class="stack">
      <div class="row">
        ${may("admin") && html`<button class="button primary" onClick=${() => onAct("resend")}>Resend</button>`}
        ${may("admin") && html`<button class="button" onClick=${() => onAct("purge")}>Purge</button>`}
        <a class="button" href=${href("trace", { id: letter.originMessageId ?? letter.offsetMsgId })}><${Icon} name="trace" />Trace</a>
      </div>
      <${Facts}
        of=${[
          ["Reason", letter.reason || "none was given"],
          ["Dead since", html`<${Time} ms=${letter.deadSince} />`],
          ["Deliveries", count(letter.deliveryAttempts)],
          ["Source topic", letter.sourceTopic ?? "none", letter.sourceTopic ? undefined : "A producer sent it to this topic."],
          ["Born", html`<${Time} ms=${letter.bornTimestamp} />`, letter.bornHost],
          ["Keys", letter.keys.join(" ") || "none"],
          ["Tag", letter.tags || "none"],
          ["Id", html`<span class="mono">${letter.offsetMsgId}</span>`],
          ["First copy", html`<span class="mono">${letter.originMessageId ?? "unknown"}</span>`],
          ["Place", `shard ${letter.shard}, queue ${letter.queueId}, offset ${count(letter.queueOffset)}`],
        ]}
      />
      <${Body} message=${letter} />
      <h3>Properties</h3>
      <${Facts} of=${Object.entries(letter.properties)} />
    </div>
  <//>`;
}
