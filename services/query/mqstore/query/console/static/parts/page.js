import { html, useEffect } from "../lib/html.js";
import { CallsButton } from "./calls.js";

/** A page: its heading, its actions, and the calls behind it.
 * @param {{title: string, hint?: any, actions?: any, children: any}} props
 */
export function Page({ title, hint, actions, children }) {
  useEffect(() => {
    document.title = `${title} – mqstore`;
  }, [title]);
  return html`<div class="page-head">
      <div>
        <h1>${title}</h1>
        ${hint && html`<p class="muted">${hint}</p>`}
      </div>
      <div class="actions">${actions}<${CallsButton} /></div>
    </div>
    <div class="stack">${children}</div>`;
}

/** @param {{title: string, aside?: any, class?: string, isPlain?: boolean, children: any}} props isPlain: no padding */
export const Card = ({ title, aside, class: more = "", isPlain = false, children }) => html`<section class="card ${more}" aria-label=${title}>
  <header><h2>${title}</h2>${aside && html`<div>${aside}</div>`}</header>
  ${isPlain ? children : html`<div class="card-body">${children}</div>`}
</section>`;

/** One figure. @param {{label: string, value: any, note?: any}} props */
export const Tile = ({ label, value, note }) => html`<div class="card tile">
  <dl><dt>${label}</dt><dd>${value}</dd></dl>
  ${note && html`<p>${note}</p>`}
</div>`;

/** Names with values, and what they mean. @param {{of: [name: string, value: any, why?: any][]}} props */
export const Facts = ({ of }) => html`<dl class="facts">
  ${of.map(([name, value, why]) => html`<dt key=${`${name}-name`}>${name}</dt><dd key=${name}>${value}${why && html`<span class="why">${why}</span>`}</dd>`)}
</dl>`;

/** @param {{kind?: "" | "good" | "warning" | "bad" | "accent" | "plain", children: any}} props */
export const Badge = ({ kind = "plain", children }) => html`<span class="badge ${kind}">${children}</span>`;
