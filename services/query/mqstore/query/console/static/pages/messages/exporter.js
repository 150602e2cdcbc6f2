import { count } from "../../lib/format.js";
import { html, useRef, useState } from "../../lib/html.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { SelectField } from "../../parts/form.js";
import { Failure } from "../../parts/states.js";
import { exportAll, saveFile } from "./export.js";
import { readerOf } from "./search.js";

/** Saves the whole result of a search. @param {{state: import("../../lib/router.js").State, onClose: () => void}} props */
export function ExportDialog({ state, onClose }) {
  const [format, setFormat] = useState(/** @type {import("./export.js").Format} */ ("jsonl"));
  const [read, setRead] = useState(/** @type {number | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const ending = useRef(new AbortController());
  const begin = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setRead(0);
    setProblem(null);
    ending.current = new AbortController();
    try {
      const found = await exportAll(readerOf(state, { limit: 1000, bodyMax: Infinity }), format, ending.current.signal, setRead);
      saveFile(found.file, `${state.topic || "messages"}.${format}`);
      announce(`${count(found.count)} messages were saved${found.isComplete ? "" : ", but not all of the result"}`);
      onClose();
    } catch (error) {
      setRead(null);
      setProblem(error);
    }
  };
  const close = () => {
    ending.current.abort();
    onClose();
  };
  return html`<${Dialog} title="Export messages" onClose=${close}>
    <form class="stack" onSubmit=${begin}>
      ${problem && html`<${Failure} error=${problem} />`}
      <p>All messages of this search are read, with whole bodies, and saved as one file.</p>
      <${SelectField} label="Format" value=${format} options=${[["jsonl", "JSON lines, as the API returns them"], ["csv", "CSV, for spreadsheets"]]} onChange=${setFormat} disabled=${read !== null} />
      ${read !== null && html`<p role="status">${count(read)} messages read</p>`}
      <footer>
        ${read === null
          ? html`<button type="button" class="button" onClick=${close}>Cancel</button><button class="button primary">Export</button>`
          : html`<button type="button" class="button" onClick=${() => ending.current.abort()}>Stop, and save these</button>`}
      </footer>
    </form>
  <//>`;
}
