// The API calls behind a view, as commands.
import { curlOf, recordedCalls } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { token } from "../lib/session.js";
import { announce } from "./announce.js";
import { Dialog } from "./dialog.js";
import { Icon } from "./icon.js";

/** @param {{text: string, label?: string}} props */
export function CopyButton({ text, label = "Copy" }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce("Copied");
    } catch {
      announce("The browser did not allow to copy: select the text instead");
    }
  };
  return html`<button type="button" class="button small" onClick=${copy}><${Icon} name="copy" />${label}</button>`;
}

/** The button that every page has: it lists the latest call of each operation. */
export function CallsButton() {
  const [isOpen, setOpen] = useState(false);
  return html`<button class="button" onClick=${() => setOpen(true)}><${Icon} name="code" />curl</button>
    ${isOpen && html`<${CallsDialog} onClose=${() => setOpen(false)} />`}`;
}

/** @param {{onClose: () => void}} props */
function CallsDialog({ onClose }) {
  const calls = recordedCalls().reverse();
  return html`<${Dialog} title="API calls of this view" onClose=${onClose}>
    ${token.value && html`<p class="muted small">Set <code>MQSTORE_TOKEN</code> to a token in your shell.</p>`}
    ${calls.length === 0 && html`<p>This view has sent no request yet.</p>`}
    ${calls.map((call) => {
      const text = curlOf(call);
      const target = call.service === "writer" ? "store-writer" : "query";
      return html`<div class="call" key=${text}>
        <div class="call-head">
          <strong>${call.method ?? "GET"} ${call.path}</strong><span class="badge plain">${target}</span>
          <${CopyButton} text=${text} />
        </div>
        <pre class="code" tabindex="0" aria-label="Command">${text}</pre>
      </div>`;
    })}
    ${calls.some((call) => call.service === "writer") &&
    html`<p class="muted small call">
      Below <code>/ui/writer</code> query forwards to store-writer. Programs send the same path to store-writer's own address.
    </p>`}
  <//>`;
}
