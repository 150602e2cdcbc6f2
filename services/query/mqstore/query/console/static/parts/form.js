// Parts of forms: each input has a label, and its error where a screen reader finds it.
import { html, useId } from "../lib/html.js";

/** @param {{label: string, help?: any, error?: string, class?: string, children: (attributes: object) => any}} props */
export function Field({ label, help, error, class: more = "", children }) {
  const id = useId();
  const described = [help && `${id}-help`, error && `${id}-error`].filter(Boolean).join(" ");
  const attributes = { id, "aria-describedby": described || undefined, "aria-invalid": error ? "true" : undefined };
  return html`<div class="field ${more}">
    <label for=${id}>${label}</label>
    ${children(attributes)}
    ${help && html`<div class="help" id="${id}-help">${help}</div>`}
    ${error && html`<div class="error" id="${id}-error">${error}</div>`}
  </div>`;
}

/** A line of text. `onChange` is called with each keystroke, `onCommit` when it is complete.
 * @param {{label: string, value: string, onChange?: (value: string) => void, onCommit?: (value: string) => void, [name: string]: any}} props
 */
export function TextField({ label, help, error, class: more, value, onChange, onCommit, ...rest }) {
  return html`<${Field} label=${label} help=${help} error=${error} class=${more}>
    ${(/** @type {object} */ attributes) => html`<input
      type="text"
      autocomplete="off"
      spellcheck=${false}
      value=${value}
      onInput=${onChange && ((/** @type {any} */ event) => onChange(event.currentTarget.value))}
      onChange=${onCommit && ((/** @type {any} */ event) => onCommit(event.currentTarget.value))}
      ...${attributes}
      ...${rest}
    />`}
  <//>`;
}

/** @param {{label: string, value: string, options: [value: string, text: string][], onChange: (value: string) => void, [name: string]: any}} props */
export function SelectField({ label, help, error, class: more, value, options, onChange, ...rest }) {
  return html`<${Field} label=${label} help=${help} error=${error} class=${more}>
    ${(/** @type {object} */ attributes) => html`<select
      value=${value}
      onChange=${(/** @type {any} */ event) => onChange(event.currentTarget.value)}
      ...${attributes}
      ...${rest}
    >
      ${options.map(([each, text]) => html`<option key=${each} value=${each} selected=${each === value}>${text}</option>`)}
    </select>`}
  <//>`;
}

/** A choice of few, all in sight. @param {{label: string, value: string, options: [value: string, text: string][], onChange: (value: string) => void}} props */
export const Segments = ({ label, value, options, onChange }) => html`<div class="segments" role="group" aria-label=${label}>
  ${options.map(
    ([each, text]) => html`<button type="button" key=${each} aria-pressed=${String(each === value)} onClick=${() => onChange(each)}>${text}</button>`,
  )}
</div>`;
