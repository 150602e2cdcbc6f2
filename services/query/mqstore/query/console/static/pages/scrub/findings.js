// Findings and repairs of all shards.

/** @typedef {{scrub: any, quarantine: {bytes: number, entries: any[]}, store: any}} ShardState */

/** @param {Map<number, ShardState>} answers the lists, by shard @param {"findings" | "repairs"} name */
const listed = (answers, name) => [...answers].flatMap(([shard, { scrub }]) => scrub[name].map((/** @type {any} */ each) => ({ shard, ...each })));

/** @param {Map<number, ShardState>} answers @returns {any[]} by place */
export const findingsOf = (answers) => listed(answers, "findings").sort((a, b) => a.shard - b.shard || a.offset - b.offset);

/** @param {Map<number, ShardState>} answers @returns {any[]} the newest first */
export const repairsOf = (answers) => listed(answers, "repairs").sort((a, b) => b.repairedAtMs - a.repairedAtMs);

/** @param {Map<number, ShardState>} answers */
export function summaryOf(answers) {
  const sum = { findings: 0, repairs: 0, tombstones: 0, checkedBytes: 0, quarantined: 0, passes: /** @type {{shard: number, isRunning: boolean, percent: number, beganMs: number, endedMs: number | null}[]} */ ([]) };
  for (const [shard, { scrub, quarantine, store }] of answers) {
    sum.findings += scrub.findingCount;
    sum.repairs += scrub.repairCount;
    sum.tombstones += scrub.tombstoneCount;
    sum.checkedBytes += scrub.checkedBytes;
    sum.quarantined += quarantine.bytes;
    const length = Math.max(1, store.flushedOffset - store.minOffset);
    const done = scrub.position === null ? 0 : scrub.position - store.minOffset;
    sum.passes.push({
      shard,
      isRunning: scrub.position !== null,
      percent: Math.min(100, Math.max(0, Math.floor((100 * done) / length))),
      beganMs: scrub.beganAtMs,
      endedMs: scrub.lastPassEndedAtMs,
    });
  }
  return sum;
}

const KINDS = /** @type {Record<string, string>} */ ({
  "restore-bytes": "the written bytes were restored: a checksum proves them",
  "fetch-bytes": "the record was taken from the replica",
  "place-tombstone": "a tombstone keeps the place of a lost message",
  "close-segment": "the end of the segment was written again",
});

/** @param {string} kind */
export const kindInWords = (kind) => KINDS[kind] ?? kind;
