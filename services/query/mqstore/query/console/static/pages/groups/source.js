// Where the offsets of groups come from.
import { duration } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Notice } from "../../parts/states.js";

/** Says where offsets come from, if not from store-writer. @param {{source: any}} props */
export function WriterState({ source }) {
  if (source.source === "writer") return null;
  const title = "store-writer does not reply: commits since the last save are not counted";
  if (source.source === "none") return html`<${Notice} kind="warning" title=${title}>There is no file of offsets. Check that store-writer runs.<//>`;
  return html`<${Notice} kind="warning" title=${title}>
    The offsets are those of ${source.source === "backup" ? "the backup of a damaged file" : "a file"}${source.ageMs === null ? "" : `, saved ${duration(source.ageMs)} ago`}. Check that store-writer runs.
  <//>`;
}
