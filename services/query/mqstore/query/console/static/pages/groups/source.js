// Where the offsets of groups come from.
import { duration } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Notice } from "../../parts/states.js";

/** Says where offsets come from, if not from store-writer. @param {{source: any}} props */
export function WriterState({ source }) {
  if (source.source === "writer" || source.writer === "alive") return null;
  return html`<${Notice} kind="warning" title="store-writer does not reply: commits since the last save are not counted">
    The offsets are those of a file${source.ageMs === null ? "" : `, saved ${duration(source.ageMs)} ago`}. Check that store-writer runs.
  <//>`;
}
