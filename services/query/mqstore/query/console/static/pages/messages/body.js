// The body of a message, in the forms that it can be read in.
import { path, send } from "../../lib/api.js";
import { asHex, asJson, asText, fromBase64 } from "../../lib/bytes.js";
import { bytes as size } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { announce } from "../../parts/announce.js";
import { CopyButton } from "../../parts/calls.js";
import { Segments } from "../../parts/form.js";
import { Icon } from "../../parts/icon.js";
import { Notice } from "../../parts/states.js";
import { saveFile } from "./export.js";

const NAMES = /** @type {Record<string, string>} */ ({ json: "JSON", text: "Text", hex: "Hex" });

/** @param {{message: import("./readers.js").Message}} props with `bodyBase64` */
export function Body({ message }) {
  const [chosen, setChosen] = useState("");
  const forms = useMemo(() => {
    const content = fromBase64(message.bodyBase64 ?? "");
    const text = asText(content, Boolean(message.bodyTruncated));
    const json = text === undefined || message.bodyTruncated ? undefined : asJson(text);
    return { json, text, hex: asHex(content) };
  }, [message]);
  const available = Object.entries(forms).filter(([, value]) => value !== undefined);
  const form = available.some(([name]) => name === chosen) ? chosen : /** @type {string} */ (available[0]?.[0]);
  const shown = /** @type {Record<string, string | undefined>} */ (forms)[form] ?? "";
  const save = async () => {
    try {
      const response = await send({ path: `${path`/v1/messages/${message.offsetMsgId}`}/body`, params: { inflate: Boolean(message.compression) } });
      saveFile(await response.blob(), `${message.offsetMsgId}.bin`);
    } catch (error) {
      announce(error instanceof Error ? error.message : "The body could not be read");
    }
  };
  return html`<section class="stack" aria-label="Body">
    <div class="row">
      <h3>Body</h3>
      <span class="muted small">${size(message.bodySize)}${message.compression ? `, compressed by ${message.compression}` : ""}${message.inflatedSize ? `, ${size(message.inflatedSize)} inflated` : ""}</span>
      <${Segments} label="Form of the body" value=${form} options=${available.map(([name]) => [name, NAMES[name]])} onChange=${setChosen} />
      <${CopyButton} text=${shown} />
      <button class="button small" onClick=${save}><${Icon} name="download" />Save</button>
    </div>
    ${message.bodyTruncated && html`<${Notice} title="Only the beginning is shown">Save the body to see all of it.<//>`}
    ${message.bodyProblem && html`<${Notice} kind="warning" title="The body is shown as it is stored">${message.bodyProblem}<//>`}
    ${shown ? html`<pre class="code ${form}" tabindex="0" aria-label="Body">${shown}</pre>` : html`<p class="muted">The body is empty.</p>`}
  </section>`;
}
