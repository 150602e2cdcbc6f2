// Latencies over time as counts by interval and bucket.
import { mergeCounts, totalOf } from "../../lib/metrics.js";

/** @typedef {import("../../lib/history.js").Point} Point */
/** @typedef {import("../../lib/history.js").Operation} Operation */
/** @typedef {import("../../lib/metrics.js").Counts} Counts */

/** The values of an operation in an interval. @param {Point} point @param {Operation} operation @param {number | null} shard null: all */
export function countsAt({ counts }, operation, shard) {
  const found = counts[operation];
  return shard === null ? mergeCounts(found.values()) : (found.get(shard) ?? new Map());
}

/** The values of an operation in all intervals. @param {Point[]} all @param {Operation} operation @param {number | null} shard */
export const countsOfAll = (all, operation, shard) => mergeCounts(all.map((each) => countsAt(each, operation, shard)));

/**
 * @typedef {object} Heat
 * @property {number} fromMs
 * @property {number} toMs
 * @property {number[]} bounds of the rows, ascending, in seconds; only those between the least and the greatest value
 * @property {number[][]} cells numbers of values, by interval and row
 * @property {number} greatest of the cells
 */

/** Counts in `columns` intervals of equal length; a point is in that of its end. Null without values.
 * @param {Point[]} all @param {Operation} operation @param {number | null} shard @param {number} fromMs @param {number} toMs @param {number} columns
 * @returns {Heat | null}
 */
export function heatOf(all, operation, shard, fromMs, toMs, columns) {
  const sum = countsOfAll(all, operation, shard);
  if (!totalOf(sum)) return null;
  const known = [...sum.keys()];
  const isUsed = (/** @type {number} */ bound) => (sum.get(bound) ?? 0) > 0;
  const bounds = known.slice(known.findIndex(isUsed), known.findLastIndex(isUsed) + 1);
  const cells = Array.from({ length: columns }, () => bounds.map(() => 0));
  for (const point of all) {
    const column = cells[Math.min(columns - 1, Math.floor(((point.atMs - fromMs) / (toMs - fromMs)) * columns))];
    const counts = countsAt(point, operation, shard);
    if (column) bounds.forEach((bound, row) => (column[row] = /** @type {number} */ (column[row]) + (counts.get(bound) ?? 0)));
  }
  return { fromMs, toMs, bounds, cells, greatest: Math.max(...cells.flat()) };
}

/** How strong a cell is painted, of 1: few values are seen beside many. @param {number} number @param {number} greatest */
export const strengthOf = (number, greatest) => (number ? 0.12 + (0.88 * Math.log1p(number)) / Math.log1p(greatest) : 0);
