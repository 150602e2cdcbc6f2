// The jobs of all shards, as far as the stores know them.

/** @typedef {{operations: any[], rebuilds: {running: any, last: any}, report: any, backups: {created: any, whole: any, verified: any}, archive: any, pins: any[], store: any}} ShardJobs */
/** @typedef {{shard: number, name: string, stage: string, percent: number, done: number, total: number, startedMs: number, endedMs: number | null}} LongOperation */

const NAMES = /** @type {Record<string, string>} */ ({ opening: "Opening the store", index: "Indexing the log" });

/** Long operations: those that run first, then the newest. @param {Map<number, ShardJobs>} answers @returns {LongOperation[]} */
export const operationsOf = (answers) =>
  [...answers]
    .flatMap(([shard, { operations }]) => operations.map((each) => ({ shard, ...each, name: NAMES[each.name] ?? each.name })))
    .sort((a, b) => Number(a.endedMs !== null) - Number(b.endedMs !== null) || b.startedMs - a.startedMs);

/** The part of a rebuild that is received, in percent; null until its plan is there. @param {{parts: number, partsPlanned: number}} rebuild */
export const rebuildPercent = ({ parts, partsPlanned }) => (partsPlanned ? Math.floor((100 * parts) / partsPlanned) : null);

const OUTCOMES = /** @type {Record<string, {kind: "good" | "warning" | "bad", text: string}>} */ ({
  published: { kind: "good", text: "The new files are the index." },
  "given-up": { kind: "warning", text: "The job gave it up." },
  lapsed: { kind: "bad", text: "The job did not renew its lease: see its log." },
  failed: { kind: "bad", text: "See the log of the job." },
  closed: { kind: "warning", text: "The store was closed meanwhile." },
});

/** @param {string} outcome @returns {{kind: "good" | "warning" | "bad", text: string}} */
export const outcomeInWords = (outcome) => OUTCOMES[outcome] ?? { kind: "warning", text: "" };

/** The sums of a report by the rule in force, by horizon. @param {any} report @returns {any[]} */
export const horizonsOf = (report) => report.expiring.filter((/** @type {any} */ each) => each.isInForce).sort((/** @type {any} */ a, /** @type {any} */ b) => a.horizonHours - b.horizonHours);

/** The part of the log that is archived, of 1. @param {{offset: number}} mark @param {{minOffset: number, maxOffset: number}} store */
export const archivedPart = (mark, { minOffset, maxOffset }) => Math.min(1, Math.max(0, mark.offset - minOffset) / Math.max(1, maxOffset - minOffset));
