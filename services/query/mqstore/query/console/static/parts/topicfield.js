import { requestAll } from "../lib/all.js";
import { html, useId } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { may } from "../lib/session.js";
import { TextField } from "./form.js";

const SUGGESTED = 50;

/** A topic, with suggestions of those that there are.
 * @param {{value: string, onChange: (value: string) => void, error?: string}} props
 */
export function TopicField({ value, onChange, error }) {
  const id = useId();
  const listed = useLoad(may("consume") ? (signal) => requestAll({ service: "writer", path: "/v1/topics", signal }, "topics") : null, []);
  const wanted = value.toLowerCase();
  const names = (listed.data?.topics ?? []).map((/** @type {any} */ each) => each.topic).filter((/** @type {string} */ each) => each.toLowerCase().includes(wanted));
  return html`<${TextField} label="Topic" value=${value} onChange=${onChange} error=${error} list=${id} />
    <datalist id=${id}>${names.slice(0, SUGGESTED).map((/** @type {string} */ each) => html`<option key=${each} value=${each} />`)}</datalist>`;
}
