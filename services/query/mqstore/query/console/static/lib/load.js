// Loading of data for a component: once, again when its inputs change, and at an interval.
import { useEffect, useRef, useState } from "./html.js";

/**
 * @template T
 * @typedef {object} Loaded
 * @property {T | undefined} data the latest data, kept while newer data is loaded or fails to load
 * @property {any} error why the latest attempt failed
 * @property {boolean} isLoading
 * @property {() => void} reload
 */

/** A load that took long is repeated less often: at most a tenth of the time is spent in it. */
const PAUSE_RATIO = 10;

/** The pause before the next load, in ms. @param {number} everyS @param {number} tookMs time of the last load */
export const pauseMs = (everyS, tookMs) => Math.max(1000 * everyS, PAUSE_RATIO * tookMs);

/** Loads data. While the page is hidden nothing is loaded again.
 * @template T
 * @param {((signal: AbortSignal) => Promise<T>) | null} load null: nothing yet
 * @param {unknown[]} inputs it is loaded anew, without the old data, when one of them changes
 * @param {{everyS?: number}} [options] everyS: the pause between two loads, at least
 * @returns {Loaded<T>}
 */
export function useLoad(load, inputs, { everyS } = {}) {
  const [shown, setShown] = useState(/** @type {{data?: T, error?: any, isLoading: boolean}} */ ({ isLoading: load !== null }));
  const again = useRef(() => {});
  useEffect(() => {
    if (load === null) {
      setShown({ isLoading: false });
      return undefined;
    }
    const ending = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const run = async () => {
      clearTimeout(timer);
      const startedMs = performance.now();
      try {
        const data = await load(ending.signal);
        if (!ending.signal.aborted) setShown({ data, isLoading: false });
      } catch (error) {
        if (!ending.signal.aborted) setShown((before) => ({ ...before, error, isLoading: false }));
      }
      if (everyS && !ending.signal.aborted) timer = setTimeout(tick, pauseMs(everyS, performance.now() - startedMs));
    };
    const tick = () => {
      if (document.hidden) document.addEventListener("visibilitychange", tick, { once: true, signal: ending.signal });
      else run();
    };
    again.current = () => {
      setShown((before) => ({ ...before, isLoading: true }));
      run();
    };
    setShown({ isLoading: true });
    run();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, inputs);
  return { data: shown.data, error: shown.error, isLoading: shown.isLoading, reload: () => again.current() };
}
