import { html, useEffect, useId, useRef } from "../lib/html.js";
import { Icon } from "./icon.js";

/** A modal dialog: it takes the focus, Esc closes it, and the focus returns.
 * @param {{title: string, onClose: () => void, children: any}} props
 */
export function Dialog({ title, onClose, children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  const onPointer = (/** @type {any} */ event) => event.target === element.current && onClose();
  return html`<dialog ref=${element} aria-labelledby=${id} onClose=${onClose} onMouseDown=${onPointer}>
    <header>
      <h2 id=${id}>${title}</h2>
      <button class="button quiet square" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
    </header>
    <div class="dialog-body">${children}</div>
  </dialog>`;
}
