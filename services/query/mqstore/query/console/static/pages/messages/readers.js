// Readers of messages: each `next` loads one more part, until `isDone`.
import { path, request } from "../../lib/api.js";
import { missingOf } from "../../lib/shards.js";

/** @typedef {Record<string, any>} Message as the API shows it */
/**
 * @typedef {object} Part
 * @property {Message[]} messages
 * @property {any[]} unreadable
 * @property {boolean} isDone nothing more can be loaded
 * @property {boolean} isComplete with `isDone`: nothing of the range is missing
 * @property {Record<string, string>} missing shards
 */
/** @typedef {{next: (signal: AbortSignal) => Promise<Part>, progress?: () => {searched: number, total: number}}} Reader */
/** @typedef {{limit?: number, bodyMax?: number}} Sizes */

/** Messages of the first part, which is to be there soon, and of each later one. */
const LIMIT = 100;
const LIMIT_LATER = 500;
const PREVIEW_BYTES = 1000;

/** Messages of a time range, or under a key, by cursors.
 * @param {{topic: string, key?: string, from?: number, to?: number, order?: string, include?: string}} what
 * @param {Sizes} [sizes] @returns {Reader}
 */
export function cursorReader({ topic, ...what }, { limit = LIMIT, bodyMax = PREVIEW_BYTES } = {}) {
  /** @type {string | undefined} */
  let cursor;
  return {
    async next(signal) {
      const params = { ...what, limit: cursor ? Math.max(limit, LIMIT_LATER) : limit, bodyMax: Number.isFinite(bodyMax) ? bodyMax : undefined, cursor };
      const found = await request({ path: path`/v1/topics/${topic}/messages`, params, signal });
      cursor = found.next ?? undefined;
      return { messages: found.messages, unreadable: found.unreadable, isDone: !cursor, isComplete: found.complete, missing: missingOf(found.shards) };
    },
  };
}

/** One message, by its id. @param {{id: string, topic?: string}} what @returns {Reader} */
export const idReader = ({ id, topic }) => ({
  async next(signal) {
    const message = await request({ path: path`/v1/messages/${id}`, params: { topic, bodyMax: PREVIEW_BYTES }, signal });
    return { messages: [message], unreadable: [], isDone: true, isComplete: true, missing: {} };
  },
});

/** @typedef {{shard: number, queueId: number, next: number, end: number}} QueueRange offsets: from `next` to in front of `end` */

/** The ranges of all queues of a topic in a range of time.
 * @param {{topic: string, from?: number, to?: number}} what @param {AbortSignal} signal
 * @returns {Promise<{ranges: QueueRange[], missing: Record<string, string>}>}
 */
export async function rangesOf({ topic, from, to }, signal) {
  const queues = await request({ path: path`/v1/topics/${topic}/queues`, signal });
  const at = (/** @type {number | undefined} */ timestamp) =>
    timestamp === undefined ? null : request({ method: "POST", path: "/v1/offsets:by-time", body: { timestamp: Math.round(timestamp), topics: [topic] }, signal });
  const [first, last] = await Promise.all([at(from), at(to === undefined ? undefined : to + 1)]);
  const offsetIn = (/** @type {any} */ found, /** @type {any} */ queue) =>
    found?.results.find((/** @type {any} */ each) => each.queueId === queue.queueId && each.shard === queue.shard)?.offset;
  const ranges = queues.queues.map((/** @type {any} */ queue) => ({
    shard: queue.shard,
    queueId: queue.queueId,
    next: offsetIn(first, queue) ?? queue.minOffset,
    end: offsetIn(last, queue) ?? queue.maxOffset,
  }));
  return { ranges, missing: missingOf(queues.shards, first?.shards, last?.shards) };
}

/** Messages of queues that a filter accepts, oldest first over all queues.
 * @param {{topic: string, tags?: string, sql?: string, ranges: (signal: AbortSignal) => Promise<{ranges: QueueRange[], missing: Record<string, string>}>}} what
 * @param {Sizes} [sizes] @returns {Reader}
 */
export function queueReader({ topic, tags, sql, ranges }, { limit = LIMIT, bodyMax = PREVIEW_BYTES } = {}) {
  /** @type {{range: QueueRange, buffer: Message[]}[] | undefined} */
  let queues;
  /** @type {Record<string, string>} */
  let missing = {};
  let [searched, total] = [0, 0];
  const pull = async (/** @type {{range: QueueRange, buffer: Message[]}} */ queue, /** @type {AbortSignal} */ signal) => {
    const { range } = queue;
    const params = { shard: range.shard, offset: range.next, max: Math.min(limit, range.end - range.next), tags, sql, bodyMax: Number.isFinite(bodyMax) ? bodyMax : undefined };
    const found = await request({ path: path`/v1/topics/${topic}/queues/${range.queueId}/messages`, params, signal });
    queue.buffer.push(...found.messages.filter((/** @type {Message} */ each) => each.queueOffset < range.end));
    const next = found.next > range.next ? found.next : range.end; // no progress: the rest has expired
    searched += Math.min(next, range.end) - range.next;
    range.next = next;
    return found.unreadable;
  };
  return {
    progress: () => ({ searched, total }),
    async next(signal) {
      if (!queues) {
        const found = await ranges(signal);
        missing = found.missing;
        queues = found.ranges.map((range) => ({ range: { ...range }, buffer: [] }));
        total = queues.reduce((sum, { range }) => sum + Math.max(0, range.end - range.next), 0);
      }
      const empty = queues.filter(({ range, buffer }) => !buffer.length && range.next < range.end);
      const unreadable = (await Promise.all(empty.slice(0, 6).map((each) => pull(each, signal)))).flat();
      const messages = mergeOldest(queues, limit);
      const isDone = queues.every(({ range, buffer }) => !buffer.length && range.next >= range.end);
      return { messages, unreadable, isDone, isComplete: !Object.keys(missing).length, missing };
    },
  };
}

/** Takes messages out of buffers, oldest first, while no queue can have an older one.
 * @param {{range: QueueRange, buffer: Message[]}[]} queues @param {number} limit @returns {Message[]}
 */
export function mergeOldest(queues, limit) {
  /** @type {Message[]} */
  const found = [];
  const active = queues.filter(({ range, buffer }) => buffer.length || range.next < range.end);
  while (found.length < limit && active.length && active.every(({ buffer }) => buffer.length)) {
    const oldest = active.reduce((a, b) => (timeOf(b) < timeOf(a) ? b : a));
    found.push(/** @type {Message} */ (oldest.buffer.shift()));
    if (!oldest.buffer.length && oldest.range.next >= oldest.range.end) active.splice(active.indexOf(oldest), 1);
  }
  return found;
}

const timeOf = (/** @type {{buffer: Message[]}} */ { buffer }) => buffer[0]?.storeTimestamp;
