import { html, signal } from "../lib/html.js";

const shown = signal({ text: "", isVisible: false });
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** Says something to screen readers, and shows it for some seconds unless it `isQuiet`.
 * @param {string} text @param {{isQuiet?: boolean}} [options]
 */
export function announce(text, { isQuiet = false } = {}) {
  clearTimeout(timer);
  shown.value = { text, isVisible: !isQuiet };
  timer = setTimeout(() => (shown.value = { text: "", isVisible: false }), 5000);
}

export const Announcements = () => html`<div
  role="status"
  class=${shown.value.isVisible && shown.value.text ? "toast" : "visually-hidden"}
>
  ${shown.value.text}
</div>`;
