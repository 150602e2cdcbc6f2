// The lags of all groups.
import { request } from "./api.js";
import { duration } from "./format.js";
import { missingOf } from "./shards.js";

/** Pages of a thousand groups: then the search stops, and says so. */
const PAGES_MAX = 10;
export const GROUPS_MAX = PAGES_MAX * 1000;

/**
 * @typedef {object} GroupSum
 * @property {string} group
 * @property {number} lag
 * @property {number} deadLetters
 * @property {States | null} states null while store-writer does not reply
 * @property {{topic: string, lag: number, expired: number, expiredTotal?: number, lagMs: number | null}[]} topics
 */
/** @typedef {{waiting: number, leased: number, retrying: number, acknowledged: number, delayed: number | null}} States */
/** @typedef {{groups: GroupSum[], missing: Record<string, string>, isCut: boolean, atMs: number, source: any}} Lags */

/** Loads the lags of all groups, up to GROUPS_MAX. @param {AbortSignal} signal @returns {Promise<Lags>} */
export async function loadLags(signal) {
  /** @type {GroupSum[]} */
  const groups = [];
  let cursor;
  let last;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    last = await request({ path: "/v1/lag", params: { limit: 1000, cursor }, signal });
    groups.push(...last.groups);
    cursor = last.next;
    if (!cursor) break;
  }
  return { groups, missing: missingOf(last.shards), isCut: Boolean(cursor), atMs: Date.now(), source: last.offsets };
}

/** How long the oldest message that is to be consumed has been stored: 0 without any, Infinity if one cannot be read.
 * @param {{topics: {lag: number, lagMs: number | null}[]}} group
 */
export const ageOf = (group) => Math.max(0, ...group.topics.map((each) => each.lagMs ?? (each.lag ? Infinity : 0)));

/** @param {number} age as `ageOf` */
export const ageText = (age) => (age === Infinity ? "unknown" : duration(age));

/** Messages that expired before the group came to them, also those that it has passed since. @param {GroupSum} group */
export const expiredOf = (group) => group.topics.reduce((sum, each) => sum + (each.expiredTotal ?? each.expired), 0);
