// Messages as they arrive: the ends of all queues, read each second.
import { useEffect, useRef, useState } from "../../lib/html.js";
import { queueReader, rangesOf } from "./readers.js";

const KEPT = 1000;
const INTERVAL_MS = 1000;

/**
 * @typedef {object} Live
 * @property {import("./readers.js").Message[]} messages newest first
 * @property {number} dropped messages that are no longer kept here
 * @property {Record<string, string>} missing
 * @property {boolean} isReady the ends of the queues are known: later messages are not missed
 * @property {any} error of the latest attempt; the next one goes on where it stopped
 */

/** Follows a topic while `isOn`; goes on where it stopped when it is on again.
 * @param {{topic?: string, tags?: string, sql?: string, isOn: boolean}} what @returns {Live}
 */
export function useLive({ topic, tags, sql, isOn }) {
  const [live, setLive] = useState(/** @type {Live} */ ({ messages: [], dropped: 0, missing: {}, isReady: false, error: null }));
  const ends = useRef(/** @type {Map<string, number> | null} */ (null));
  useEffect(() => {
    ends.current = null;
    setLive({ messages: [], dropped: 0, missing: {}, isReady: false, error: null });
  }, [topic, tags, sql]);
  useEffect(() => {
    if (!isOn || !topic) return undefined;
    const ending = new AbortController();
    const read = async () => {
      try {
        const { ranges, missing } = await rangesOf({ topic }, ending.signal);
        const known = ends.current;
        const keyOf = (/** @type {any} */ each) => `${each.shard} ${each.queueId}`;
        const fresh = ranges.map((each) => ({ ...each, next: known ? Math.max(each.next, known.get(keyOf(each)) ?? each.next) : each.end })).filter((each) => each.next < each.end);
        const found = await readAll({ topic, tags, sql, fresh }, ending.signal);
        if (ending.signal.aborted) return;
        ends.current = new Map([...(known ?? []), ...ranges.map((each) => /** @type {[string, number]} */ ([keyOf(each), each.end]))]);
        setLive((before) => {
          const all = found.length ? [...found.reverse(), ...before.messages] : before.messages;
          return { messages: all.slice(0, KEPT), dropped: before.dropped + Math.max(0, all.length - KEPT), missing, isReady: true, error: null };
        });
      } catch (error) {
        if (!ending.signal.aborted) setLive((before) => ({ ...before, error }));
      }
    };
    /** @type {ReturnType<typeof setTimeout>} */
    let timer;
    const run = async () => {
      if (!document.hidden) await read();
      if (!ending.signal.aborted) timer = setTimeout(run, INTERVAL_MS);
    };
    run();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [topic, tags, sql, isOn]);
  return live;
}

/** @param {{topic: string, tags?: string, sql?: string, fresh: import("./readers.js").QueueRange[]}} what @param {AbortSignal} signal */
async function readAll({ topic, tags, sql, fresh }, signal) {
  const reader = queueReader({ topic, tags, sql, ranges: async () => ({ ranges: fresh, missing: {} }) }, { limit: KEPT });
  const found = [];
  for (let isDone = fresh.length === 0; !isDone; ) {
    const part = await reader.next(signal);
    found.push(...part.messages);
    isDone = part.isDone;
  }
  return found;
}
