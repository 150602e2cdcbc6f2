// The delay levels of all shards as one list.

/**
 * @typedef {object} Level
 * @property {number} level
 * @property {string} delay as in messageDelayLevel; of shards that differ, each
 * @property {number} pending
 * @property {number} delivered
 * @property {number | null} nextDueMs
 * @property {{shard: number, why: string}[]} waiting why messages that are due are not delivered
 */

/** Adds the levels of shards up; the earliest due message counts.
 * @param {Map<number, {levels: any[]}>} answers @returns {Level[]} ascending
 */
export function mergeLevels(answers) {
  /** @type {Map<number, Level & {delays: Set<string>}>} */
  const found = new Map();
  for (const [shard, { levels }] of answers) {
    for (const each of levels) {
      /** @type {Level & {delays: Set<string>}} */
      const level = found.get(each.level) ?? { level: each.level, delay: "", delays: new Set(), pending: 0, delivered: 0, nextDueMs: null, waiting: [] };
      found.set(each.level, level);
      level.delays.add(each.delay);
      level.pending += each.pending;
      level.delivered += each.deliveredUpTo - each.queueMin;
      level.nextDueMs = earliest(level.nextDueMs, each.nextDueMs);
      if (each.waiting) level.waiting.push({ shard, why: each.waiting });
    }
  }
  return [...found.values()].map(({ delays, ...level }) => ({ ...level, delay: [...delays].join(" or ") })).sort((a, b) => a.level - b.level);
}

/** The messages that wait for a time, of all shards. @param {Map<number, {timed: any}>} answers */
export function mergeTimed(answers) {
  const timed = { pending: 0, nextDueMs: /** @type {number | null} */ (null), waiting: /** @type {Level["waiting"]} */ ([]) };
  for (const [shard, reply] of answers) {
    timed.pending += reply.timed.pending;
    timed.nextDueMs = earliest(timed.nextDueMs, reply.timed.nextDueMs);
    if (reply.timed.waiting) timed.waiting.push({ shard, why: reply.timed.waiting });
  }
  return timed;
}

/** @param {number | null} one @param {number | null} other */
export function earliest(one, other) {
  if (one === null) return other;
  return other === null ? one : Math.min(one, other);
}

/** By how much the delivery of a due message is late, in ms: 0 if it is not.
 * @param {number | null} nextDueMs @param {number} nowMs
 */
export const lateness = (nextDueMs, nowMs) => (nextDueMs === null ? 0 : Math.max(0, nowMs - nextDueMs));
