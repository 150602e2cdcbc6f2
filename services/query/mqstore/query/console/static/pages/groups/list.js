// All groups as rows of one table: those that were created, and those that have committed.
import { ageOf, expiredOf } from "../../lib/lags.js";

/**
 * @typedef {object} Row
 * @property {string} group
 * @property {number} lag
 * @property {number} age in ms, of the oldest message to be consumed
 * @property {number} expired
 * @property {number} dead
 * @property {import("../../lib/lags.js").States | null} states
 * @property {number} topics
 * @property {boolean} isIdle it was created, and has not committed an offset
 */

const NONE = { waiting: 0, leased: 0, retrying: 0, acknowledged: 0, delayed: 0 };

/** @param {string[]} created @param {import("../../lib/lags.js").GroupSum[]} lags @returns {Row[]} by name */
export function mergeGroups(created, lags) {
  /** @type {Map<string, Row>} */
  const rows = new Map(created.map((group) => [group, { group, lag: 0, age: 0, expired: 0, dead: 0, states: NONE, topics: 0, isIdle: true }]));
  for (const each of lags) {
    const topics = each.topics.filter(({ topic }) => !topic.startsWith("%RETRY%"));
    rows.set(each.group, { group: each.group, lag: each.lag, age: ageOf(each), expired: expiredOf(each), dead: each.deadLetters, states: each.states, topics: topics.length, isIdle: false });
  }
  return [...rows.values()].sort((a, b) => (a.group < b.group ? -1 : 1));
}

const SYSTEM = /^(CID_RMQ_SYS_|CID_ONSAPI_|CID_ONS-|SELF_TEST_C_GROUP|TOOLS_CONSUMER|FILTERSRV_CONSUMER|__MONITOR_CONSUMER|SCHEDULE_CONSUMER)/;

/** Groups that RocketMQ makes for itself. @param {string} group */
export const isSystem = (group) => SYSTEM.test(group);

/** @type {Record<string, (row: Row) => number>} */
const VALUES = {
  lag: (row) => row.lag,
  age: (row) => row.age,
  expired: (row) => row.expired,
  dead: (row) => row.dead,
  waiting: (row) => row.states?.waiting ?? -1,
  leased: (row) => row.states?.leased ?? -1,
  retrying: (row) => row.states?.retrying ?? -1,
  delayed: (row) => row.states?.delayed ?? -1,
};

/** @param {Row[]} rows by name @param {{search: string, only: string, withSystem: boolean, sort: string}} how `only`: behind, dead or expired */
export function selectGroups(rows, { search, only, withSystem, sort }) {
  const wanted = search.toLowerCase();
  const shown = rows.filter(
    (row) =>
      row.group.toLowerCase().includes(wanted) &&
      (withSystem || !isSystem(row.group)) &&
      (only !== "behind" || row.lag > 0) &&
      (only !== "dead" || row.dead > 0) &&
      (only !== "expired" || row.expired > 0),
  );
  const value = VALUES[sort.replace("-", "")];
  if (!value) return sort.startsWith("-") ? shown.reverse() : shown;
  const direction = sort.startsWith("-") ? -1 : 1;
  return shown.sort((a, b) => direction * (value(a) - value(b)) || (a.group < b.group ? -1 : 1));
}
