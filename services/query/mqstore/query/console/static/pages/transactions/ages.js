// Undecided transactions by producer group and age.

const MINUTE_MS = 60_000;

/** Ages, youngest first: from an age on, in ms. */
export const AGES = /** @type {{name: string, fromMs: number}[]} */ ([
  { name: "under 1 min", fromMs: 0 },
  { name: "1 to 10 min", fromMs: MINUTE_MS },
  { name: "10 to 60 min", fromMs: 10 * MINUTE_MS },
  { name: "1 to 24 h", fromMs: 60 * MINUTE_MS },
  { name: "over 1 d", fromMs: 24 * 60 * MINUTE_MS },
]);

/** @typedef {{group: string, counts: number[], total: number, oldestMs: number, setAside: number}} GroupAges */

/** Counts transactions by group and age; the group with the oldest one is first.
 * @param {{producerGroup: string, bornTimestamp: number, state: string}[]} transactions @param {number} nowMs
 * @returns {GroupAges[]}
 */
export function byGroup(transactions, nowMs) {
  /** @type {Map<string, GroupAges>} */
  const groups = new Map();
  for (const { producerGroup, bornTimestamp, state } of transactions) {
    const found = groups.get(producerGroup) ?? { group: producerGroup, counts: AGES.map(() => 0), total: 0, oldestMs: Infinity, setAside: 0 };
    groups.set(producerGroup, found);
    const at = Math.max(0, AGES.findLastIndex((each) => nowMs - bornTimestamp >= each.fromMs));
    found.counts[at] = (found.counts[at] ?? 0) + 1;
    found.total += 1;
    found.oldestMs = Math.min(found.oldestMs, bornTimestamp);
    if (state === "set-aside") found.setAside += 1;
  }
  return [...groups.values()].sort((a, b) => a.oldestMs - b.oldestMs);
}
