// Numbers of messages of topics in sight, loaded a few at a time.
import { path, request } from "../../lib/api.js";
import { signal } from "../../lib/html.js";

const AT_ONCE = 4;
const AGE_MAX_MS = 15_000;

/** Messages by topic; null: it could not be loaded. */
export const counts = signal(/** @type {Map<string, number | null>} */ (new Map()));

/** @type {Map<string, number>} */
const loadedAt = new Map();
/** @type {string[]} */
let wanted = [];
let running = 0;

/** Loads the numbers of some topics, in place of those that were wanted before.
 * @param {string[]} topics
 */
export function want(topics) {
  wanted = topics.filter((each) => Date.now() - (loadedAt.get(each) ?? 0) > AGE_MAX_MS);
  while (running < AT_ONCE && wanted.length) loadNext();
}

async function loadNext() {
  const topic = /** @type {string} */ (wanted.shift());
  running += 1;
  loadedAt.set(topic, Date.now());
  let found = null;
  try {
    const { queues } = await request({ path: path`/v1/topics/${topic}/queues` });
    found = queues.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.maxOffset - each.minOffset, 0);
  } catch {
    loadedAt.delete(topic);
  }
  counts.value = new Map(counts.value).set(topic, found);
  running -= 1;
  if (wanted.length) loadNext();
}
