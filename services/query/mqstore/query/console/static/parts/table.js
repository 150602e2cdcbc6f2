// A table that renders only the rows in sight: a million rows cost what thirty do.
import { html, useEffect, useRef, useState } from "../lib/html.js";

const ROW_PX = 36;
const EXTRA_ROWS = 8;
/** Above this height browsers place elements imprecisely: then the rows are scrolled in steps. */
const HEIGHT_MAX_PX = 8_000_000;

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} name
 * @property {(row: Row) => any} cell
 * @property {string} [width] of CSS
 * @property {boolean} [isNumber]
 * @property {string} [sort] the name by which `onSort` sorts
 * @property {(row: Row) => string | undefined} [title] shown by a pointer
 */

/**
 * @template Row
 * @param {object} props
 * @param {string} props.label for screen readers
 * @param {Row[]} props.rows
 * @param {Column<Row>[]} props.columns
 * @param {(row: Row) => string} props.keyOf
 * @param {string} [props.selected] key of the selected row
 * @param {(row: Row) => void} [props.onSelect] the first column is then a button
 * @param {string} [props.sorted] name of the sort, with "-" in front if it descends
 * @param {(sort: string) => void} [props.onSort]
 * @param {() => void} [props.onEnd] the last rows are in sight
 * @param {(rows: Row[]) => void} [props.onVisible] the rows in sight have changed
 * @param {boolean} [props.isPartial] there are more rows than `rows`
 * @param {number} [props.width] of the table at least, in px
 */
export function Table({ label, rows, columns, keyOf, selected, onSelect, sorted = "", onSort, onEnd, onVisible, isPartial = false, width = 560 }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    const read = () => setSeen({ top: element.scrollTop, height: element.clientHeight });
    const sizes = new ResizeObserver(read);
    sizes.observe(element);
    element.addEventListener("scroll", read, { passive: true });
    return () => {
      sizes.disconnect();
      element.removeEventListener("scroll", read);
    };
  }, []);
  const total = rows.length * ROW_PX;
  const scale = Math.max(1, total / HEIGHT_MAX_PX);
  const first = Math.max(0, Math.min(Math.floor((seen.top * scale) / ROW_PX), rows.length - 1) - EXTRA_ROWS);
  const last = Math.min(rows.length, first + Math.ceil(seen.height / ROW_PX) + 2 * EXTRA_ROWS);
  const above = scale === 1 ? first * ROW_PX : Math.max(0, seen.top - EXTRA_ROWS * ROW_PX);
  const below = Math.max(0, Math.min(total, HEIGHT_MAX_PX) - above - (last - first) * ROW_PX);
  const shown = rows.slice(first, last);
  useEffect(() => {
    if (onEnd && rows.length && last >= rows.length) onEnd();
  }, [last, rows.length, onEnd]);
  useEffect(() => onVisible?.(shown), [first, last, rows]);
  const span = columns.length;
  return html`<div class="table-box" ref=${box} tabindex="0" role="region" aria-label=${label} style=${{ "--table-width": `${width}px` }}>
    <table aria-rowcount=${isPartial ? -1 : rows.length + 1}>
      <colgroup>${columns.map((each) => html`<col key=${each.name} style=${{ width: each.width }} />`)}</colgroup>
      <thead>
        <tr aria-rowindex="1">
          ${columns.map((each) => html`<${Heading} key=${each.name} column=${each} sorted=${sorted} onSort=${onSort} />`)}
        </tr>
      </thead>
      <tbody>
        ${above > 0 && html`<tr class="spacer" aria-hidden="true" key="above"><td colspan=${span} style=${{ height: `${above}px` }}></td></tr>`}
        ${shown.map((row, i) => {
          const key = keyOf(row);
          return html`<tr
            key=${key}
            aria-rowindex=${first + i + 2}
            aria-selected=${onSelect ? String(key === selected) : undefined}
            class=${onSelect ? "is-link" : ""}
            onClick=${onSelect && ((/** @type {any} */ event) => event.target.closest("a, button, input") || onSelect(row))}
          >
            ${columns.map((column, at) => html`<td key=${column.name} class=${column.isNumber ? "number" : ""} title=${column.title?.(row)}>
              ${at === 0 && onSelect ? html`<button class="link" onClick=${() => onSelect(row)}>${column.cell(row)}</button>` : column.cell(row)}
            </td>`)}
          </tr>`;
        })}
        ${below > 0 && html`<tr class="spacer" aria-hidden="true" key="below"><td colspan=${span} style=${{ height: `${below}px` }}></td></tr>`}
      </tbody>
    </table>
  </div>`;
}

/** @param {{column: Column<any>, sorted: string, onSort?: (sort: string) => void}} props */
function Heading({ column, sorted, onSort }) {
  const { name, sort, isNumber } = column;
  const isSorted = sort !== undefined && sorted.replace("-", "") === sort;
  const isDown = sorted.startsWith("-");
  const order = isSorted ? (isDown ? "descending" : "ascending") : undefined;
  const next = isSorted ? (isDown ? sort : `-${sort}`) : isNumber ? `-${sort}` : sort;
  return html`<th scope="col" class=${isNumber ? "number" : ""} aria-sort=${order}>
    ${sort && onSort ? html`<button onClick=${() => onSort(/** @type {string} */ (next))}>${name}${isSorted ? (isDown ? " ↓" : " ↑") : ""}</button>` : name}
  </th>`;
}
