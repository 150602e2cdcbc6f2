// A list that a cursor leads through: the first page is read again, further ones are kept.
import { useCallback, useEffect, useState } from "./html.js";
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
  const [more, setMore] = useState({ of: /** @type {Page | undefined} */ (undefined), pages: /** @type {Page[]} */ ([]), problem: /** @type {any} */ (null) });
  const [isLoading, setLoading] = useState(false);
  const hasPages = more.pages.length > 0;
  const first = useLoad((signal) => load(null, signal), inputs, { everyS: hasPages ? undefined : everyS });
  useEffect(() => setMore({ of: first.data, pages: [], problem: null }), [first.data]);
  const pages = more.of === first.data ? more.pages : [];
  const last = pages.at(-1) ?? first.data;
  const next = last?.next ?? null;
  const loadNext = useCallback(async () => {
    if (!next || isLoading || more.problem) return;
    setLoading(true);
    try {
      const page = await load(next);
      setMore((before) => (before.of === first.data ? { ...before, pages: [...before.pages, page] } : before));
    } catch (problem) {
      setMore((before) => ({ ...before, problem }));
    }
    setLoading(false);
  }, [next, isLoading, more.problem, first.data]);
  const rows = first.data ? [first.data, ...pages].flatMap(rowsOf) : [];
  return { first, rows, hasMore: next !== null, problem: more.problem, loadNext, retry: () => setMore({ ...more, problem: null }) };
}
