// One dead letter.
import { bytes, count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { href, setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { CopyButton } from "../../parts/calls.js";
import { Icon } from "../../parts/icon.js";
import { Card, Facts } from "../../parts/page.js";
import { Time } from "../../parts/time.js";

/**
 * @typedef {object} Letter
 * @property {string} offsetMsgId
 * @property {number} deadSince
 * @property {string | null} sourceTopic null: a producer sent it to %DLQ%GROUP
 * @property {string | null} originMessageId
 * @property {string | null} reason
 * @property {number} deliveryAttempts
 * @property {string[]} keys
 * @property {string | null} tags
 * @property {Record<string, string>} properties
 * @property {number} bornTimestamp
 * @property {string} bornHost
 * @property {number} bodySize
 * @property {string} [body]
 * @property {string} [bodyBase64]
 * @property {boolean} [bodyTruncated]
 * @property {string} [bodyProblem]
 * @property {number} shard
 * @property {number} queueId
 * @property {number} queueOffset
 */

/** The body as people read it: JSON indented, other text unchanged, the rest in base64. @param {Letter} letter */
export function bodyOf(letter) {
  if (letter.body === undefined) return { form: "base64", text: letter.bodyBase64 ?? "" };
  try {
    return { form: "JSON", text: JSON.stringify(JSON.parse(letter.body), null, 2) };
  } catch {
    return { form: "text", text: letter.body };
  }
}

/** @param {{letter: Letter, onAct: (kind: "resend" | "purge") => void}} props */
export function LetterPanel({ letter, onAct }) {
  const close = html`<button class="button quiet square" aria-label="Close the dead letter" onClick=${() => setState({ letter: "" })}><${Icon} name="close" /></button>`;
  const { form, text } = bodyOf(letter);
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
      <div class="call-head"><h3>Body</h3><span class="muted small">${bytes(letter.bodySize)}, ${form}${letter.bodyTruncated ? ", cut here" : ""}</span><${CopyButton} text=${text} /></div>
      ${letter.bodyProblem && html`<p class="muted small">${letter.bodyProblem}</p>`}
      <pre class="code" tabindex="0" aria-label="Body">${text || " "}</pre>
      <h3>Properties</h3>
      <${Facts} of=${Object.entries(letter.properties)} />
    </div>
  <//>`;
}
