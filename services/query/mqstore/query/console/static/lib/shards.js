// The shards, and requests that each of them replies to by itself.
import { request } from "./api.js";
import { signal } from "./html.js";

/** Numbers of all shards, ascending. */
export const shards = signal([0]);
/** Id of the store that query has. */
export const storeId = signal("");

/** Reads the list of shards. Throws Problem. */
export async function loadShards() {
  const store = await request({ path: "/v1/store" });
  const listed = store.shards.map((/** @type {{shard: number}} */ each) => each.shard);
  storeId.value = store.storeId;
  shards.value = listed.length ? listed.sort((/** @type {number} */ a, /** @type {number} */ b) => a - b) : [store.shard];
}

/**
 * @template T
 * @typedef {object} OfShards
 * @property {Map<number, T>} answers by number of the shard
 * @property {Record<string, string>} missing by number of a shard without a reply, the reason
 */

/** Calls a function for each shard at one time. If all fail, throws the error of the first.
 * @template T
 * @param {(shard: number) => Promise<T>} load
 * @returns {Promise<OfShards<T>>}
 */
export async function eachShard(load) {
  const numbers = shards.value;
  const results = await Promise.allSettled(numbers.map(load));
  /** @type {OfShards<T>} */
  const found = { answers: new Map(), missing: {} };
  results.forEach((result, i) => {
    const number = /** @type {number} */ (numbers[i]);
    if (result.status === "fulfilled") found.answers.set(number, result.value);
    else found.missing[number] = String(result.reason?.detail || result.reason?.message);
  });
  if (!found.answers.size && results[0]?.status === "rejected") throw results[0].reason;
  return found;
}

/** Merges what replies and requests by shard say of missing shards.
 * @param {...({missing?: number[], why?: Record<string, string>} | Record<string, string> | undefined)} all
 * @returns {Record<string, string>}
 */
export function missingOf(...all) {
  return Object.assign({}, ...all.map((each) => (each && "why" in each ? each.why : each) ?? {}));
}
