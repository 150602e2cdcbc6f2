// A list that a cursor leads through: the first page is read again, further ones are kept.
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { useLoad } from "./load.js";

/**
 * @template Page, Row
 * @typedef {object} Pages
 * @property {import("./load.js").Loaded<Page>} first
 * @property {Row[]} rows of all pages that are loaded
 * @property {boolean} hasMore
 * @property {any} problem why the next page was not loaded
 * @property {() => void} loadNext
 * @property {() => void} retry
 */

/**
 * @template {{next: string | null}} Page
 * @template Row
 * @param {(cursor: string | null, signal?: AbortSignal) => Promise<Page>} load
 * @param {(page: Page) => Row[]} rowsOf
 * @param {unknown[]} inputs as of useLoad
 * @param {{everyS?: number}} [options] the first page is read again while it is the only one
 * @returns {Pages<Page, Row>}
 */
export function usePages(load, rowsOf, inputs, { everyS } = {}) {
  const held = useRef(/** @type {Page | undefined} */ (undefined));
  useEffect(() => {
    held.current = undefined;
  }, inputs);
  const first = useLoad(async (signal) => held.current ?? load(null, signal), inputs, { everyS });
  const [more, setMore] = useState({ of: /** @type {Page | undefined} */ (undefined), pages: /** @type {Page[]} */ ([]), problem: /** @type {any} */ (null) });
  const [isLoading, setLoading] = useState(false);
  useEffect(() => setMore({ of: first.data, pages: [], problem: null }), [first.data]);
  const pages = more.of === first.data ? more.pages : [];
  const next = (pages.at(-1) ?? first.data)?.next ?? null;
  const loadNext = useCallback(async () => {
    if (!next || isLoading || more.problem) return;
    setLoading(true);
    held.current = first.data;
    try {
      const page = await load(next);
      setMore((/** @type {typeof more} */ before) => (before.of === first.data ? { ...before, pages: [...before.pages, page] } : before));
    } catch (problem) {
      setMore((/** @type {typeof more} */ before) => ({ ...before, problem }));
    }
    setLoading(false);
  }, [next, isLoading, more.problem, first.data]);
  const reload = () => {
    held.current = undefined;
    first.reload();
  };
  const rows = first.data ? [first.data, ...pages].flatMap(rowsOf) : [];
  return { first: { ...first, reload }, rows, hasMore: next !== null, problem: more.problem, loadNext, retry: () => setMore({ ...more, problem: null }) };
}
