// The points of the plots in IndexedDB, for a reload and for other tabs: numbers, no names, no token.
// Without it, as in some private windows, they are kept in the page alone.
import { UI } from "./api.js";

/** @typedef {import("./history.js").Point} Point */

/** One for each console of an origin. */
const DATABASE = `mqstore ${UI.pathname}`;
const TABLE = "points";
/** More than an hour of them at five seconds. */
const POINTS_MAX = 1000;
/** Readings of tabs differ by so much. */
const SLACK_MS = 1000;

/** Whether a point covers time that the newest saved one does not: another tab may have saved it.
 * @param {number | undefined} newestMs @param {{fromMs: number}} point
 */
export const isNew = (newestMs, { fromMs }) => newestMs === undefined || fromMs >= newestMs - SLACK_MS;

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
const resultOf = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** Does something with the table; returns undefined if there is none.
 * @template T
 * @param {IDBTransactionMode} mode @param {(table: IDBObjectStore) => Promise<T>} act
 * @returns {Promise<T | undefined>}
 */
async function withTable(mode, act) {
  try {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(TABLE);
    const database = await resultOf(opening);
    try {
      return await act(database.transaction(TABLE, mode).objectStore(TABLE));
    } finally {
      database.close();
    }
  } catch {
    return undefined;
  }
}

/** The saved points of a store, oldest first. @param {string} store @param {number} sinceMs @returns {Promise<Point[]>} */
export async function loadSaved(store, sinceMs) {
  const all = await withTable("readonly", (table) => resultOf(table.getAll(IDBKeyRange.bound(sinceMs, Date.now()), POINTS_MAX)));
  return (all ?? []).flatMap((each) => (each.store === store ? [each.point] : []));
}

/** Saves a point, and removes those before a time and those of a clock that was ahead.
 * @param {string} store @param {Point} point @param {number} sinceMs
 */
export async function save(store, point, sinceMs) {
  await withTable("readwrite", async (table) => {
    await resultOf(table.delete(IDBKeyRange.upperBound(sinceMs)));
    await resultOf(table.delete(IDBKeyRange.lowerBound(Date.now() + SLACK_MS)));
    const keys = await resultOf(table.getAllKeys());
    const newest = /** @type {number | undefined} */ (keys.at(-1));
    if (keys.length < POINTS_MAX && isNew(newest, point)) await resultOf(table.put({ store, point }, point.atMs));
  });
}

/** Removes all points. */
export const clearSaved = () => withTable("readwrite", (table) => resultOf(table.clear()));
