// Loading of a result part by part, as far as it is looked at.
import { useCallback, useEffect, useRef, useState } from "../../lib/html.js";

/**
 * @typedef {object} Result
 * @property {import("./readers.js").Message[]} messages
 * @property {any[]} unreadable
 * @property {Record<string, string>} missing
 * @property {boolean} isLoading
 * @property {boolean} isDone
 * @property {boolean} isComplete
 * @property {{searched: number, total: number} | undefined} progress
 * @property {any} error
 */

/** @type {Result} */
const NOTHING = { messages: [], unreadable: [], missing: {}, isLoading: false, isDone: false, isComplete: false, progress: undefined, error: null };

/** Reads the first part at once, and one more with each call of `more`. A part without messages is
 * followed by the next one, until `stop`.
 * @param {(() => import("./readers.js").Reader) | null} make null: there is nothing to read
 * @param {unknown[]} inputs
 */
export function useReading(make, inputs) {
  const [result, setResult] = useState(NOTHING);
  const current = useRef({ more: () => {}, stop: () => {} });
  useEffect(() => {
    setResult(NOTHING);
    if (!make) {
      current.current = { more: () => {}, stop: () => {} };
      return undefined;
    }
    const reader = make();
    const ending = new AbortController();
    let isReading = false;
    let isOver = false;
    let isStopped = false;
    const more = async () => {
      if (isReading || isOver || ending.signal.aborted) return;
      [isReading, isStopped] = [true, false];
      setResult((before) => ({ ...before, isLoading: true, error: null }));
      try {
        for (let found = 0; found === 0 && !isOver && !isStopped; ) {
          const part = await reader.next(ending.signal);
          if (ending.signal.aborted) return;
          found = part.messages.length + part.unreadable.length;
          isOver = part.isDone;
          setResult((before) => ({
            messages: part.messages.length ? [...before.messages, ...part.messages] : before.messages,
            unreadable: [...before.unreadable, ...part.unreadable],
            missing: { ...before.missing, ...part.missing },
            isLoading: true,
            isDone: part.isDone,
            isComplete: part.isComplete,
            progress: reader.progress?.(),
            error: null,
          }));
        }
      } catch (error) {
        if (!ending.signal.aborted) setResult((before) => ({ ...before, error }));
      }
      isReading = false;
      if (!ending.signal.aborted) setResult((before) => ({ ...before, isLoading: false }));
    };
    current.current = { more, stop: () => (isStopped = true) };
    more();
    return () => ending.abort();
  }, inputs);
  const more = useCallback(() => current.current.more(), []);
  const stop = useCallback(() => current.current.stop(), []);
  return { result, more, stop };
}
