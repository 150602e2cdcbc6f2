// What a view shows while there is no data, or not all of it.
import { html } from "../lib/html.js";
import { Icon } from "./icon.js";

/** @param {{lines?: number, label?: string}} props */
export const Loading = ({ lines = 4, label = "Loading" }) => html`<div class="skeleton" role="status" aria-label=${label}>
  ${Array.from({ length: lines }, (_, i) => html`<i key=${i}></i>`)}
</div>`;

/** Nothing was found: what that means, and what to do. @param {{title: string, children?: any}} props */
export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2><div>${children}</div></div>`;

/** @param {{kind?: "" | "good" | "warning" | "bad", title?: string, children?: any, role?: string}} props */
export const Notice = ({ kind = "", title, children, role }) => html`<div class="notice ${kind}" role=${role}>
  <${Icon} name=${kind === "good" ? "good" : kind ? "warning" : "info"} />
  <div>${title && html`<strong>${title}</strong>`} ${children && html`<div>${children}</div>`}</div>
</div>`;

/** A request that failed: what is wrong, and a way to try again.
 * @param {{error: any, retry?: () => void, isStale?: boolean}} props isStale: older data is shown beside it
 */
export const Failure = ({ error, retry, isStale = false }) => html`<${Notice}
  kind=${isStale ? "warning" : "bad"}
  title=${isStale ? `Not up to date: ${error.title ?? "an error"}` : error.title ?? "An error of the console"}
  role="alert"
>
  <p>${error.detail || error.message}</p>
  ${error.requestId && html`<p class="small muted">Request ${error.requestId}; the log of the service has it.</p>`}
  ${retry && html`<p class="row"><button class="button small" onClick=${retry}>Try again</button></p>`}
<//>`;

/** Names the shards whose data is not in a view. @param {{missing: Record<string, string>}} props */
export function MissingShards({ missing }) {
  const all = Object.entries(missing);
  if (!all.length) return null;
  const title = all.length === 1 ? `Shard ${all[0]?.[0]} is missing here` : `${all.length} shards are missing here`;
  return html`<${Notice} kind="warning" title=${title} role="alert">
    <ul>${all.map(([shard, why]) => html`<li key=${shard}>Shard ${shard}: ${why}</li>`)}</ul>
  <//>`;
}

/** Shows data, or why there is none yet.
 * @template T
 * @param {{of: import("../lib/load.js").Loaded<T>, lines?: number, children: (data: T) => any}} props
 */
export function Shown({ of, lines, children }) {
  if (of.data === undefined) {
    return of.error ? html`<${Failure} error=${of.error} retry=${of.reload} />` : html`<${Loading} lines=${lines} />`;
  }
  return html`${of.error && html`<${Failure} error=${of.error} retry=${of.reload} isStale />`} ${children(of.data)}`;
}
