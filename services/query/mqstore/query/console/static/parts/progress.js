import { html } from "../lib/html.js";

/** How far something is, as a bar and as a number. @param {{label: string, percent: number, note?: string}} props */
export const Progress = ({ label, percent, note }) => html`<div class="progress">
  <div class="meter" role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${percent}>
    <i style=${{ width: `${percent}%` }}></i>
  </div>
  <span class="small">${percent} %${note && html` <span class="muted">${note}</span>`}</span>
</div>`;
