// From the state of the address to a reader, and what is wrong with the state.
import { Problem } from "../../lib/api.js";
import { shards } from "../../lib/shards.js";
import { parseTime } from "../../lib/times.js";
import { cursorReader, idReader, queueReader, rangesOf } from "./readers.js";

/** @typedef {import("../../lib/router.js").State} State */
/** @typedef {"time" | "key" | "id" | "queue"} By */

/** What is searched by. @param {State} state @returns {By} */
export function byOf(state) {
  if (state.by === "time" || state.by === "key" || state.by === "id" || state.by === "queue") return state.by;
  if (state.id) return "id";
  if (state.key) return "key";
  return state.queue ? "queue" : "time";
}

/** @param {string | undefined} text */
const isNumber = (text) => /^\d+$/.test(text ?? "") && Number.isSafeInteger(Number(text));

/** Errors of the state by its names; the search is not begun with one.
 * @param {State} state @returns {Record<string, string>}
 */
export function errorsOf(state) {
  const by = byOf(state);
  /** @type {Record<string, string>} */
  const found = {};
  if (by !== "id" && !state.topic) found.topic = "Choose a topic";
  if (by === "id" && !state.id) found.id = "Enter an id";
  if (by === "key" && !state.key) found.key = "Enter a key";
  if (by === "queue") {
    if (!isNumber(state.queue)) found.queue = "Enter the number of a queue";
    if (state.offset && !isNumber(state.offset)) found.offset = "Enter a number of 0 or more";
    if (state.shard && !shards.value.some((/** @type {number} */ each) => String(each) === state.shard)) found.shard = `There is no such shard: ${shards.value.join(", ")}`;
  }
  for (const name of ["from", "to"]) {
    if (state[name] && parseTime(state[name]) === undefined) found[name] = "As now-15m, 2026-11-27 12:00, or milliseconds";
  }
  const [from, to] = [parseTime(state.from ?? ""), parseTime(state.to ?? "")];
  if (from !== undefined && to !== undefined && from > to) found.to = "The end is before the beginning";
  return found;
}

/** @param {State} state without errors @param {import("./readers.js").Sizes} [sizes] @returns {import("./readers.js").Reader} */
export function readerOf(state, sizes) {
  const { topic = "", tags, sql } = state;
  const range = { from: parseTime(state.from ?? ""), to: parseTime(state.to ?? "") };
  switch (byOf(state)) {
    case "id":
      return idReader({ id: state.id ?? "", topic: state.topic });
    case "key":
      return cursorReader({ topic, key: state.key, ...range, include: state.include }, sizes);
    case "queue":
      return queueReader({ topic, tags, sql, ranges: (signal) => oneQueue(state, signal) }, sizes);
    default:
      if (tags || sql) return queueReader({ topic, tags, sql, ranges: (signal) => rangesOf({ topic, ...range }, signal) }, sizes);
      return cursorReader({ topic, ...range, order: state.order, include: state.include }, sizes);
  }
}

/** @param {State} state @param {AbortSignal} signal */
async function oneQueue(state, signal) {
  const found = await rangesOf({ topic: state.topic ?? "" }, signal);
  const ranges = found.ranges.filter((each) => each.queueId === Number(state.queue) && (!state.shard || each.shard === Number(state.shard)));
  if (!ranges.length && !Object.keys(found.missing).length) throw new Problem(404, { title: "No such queue", detail: `${state.topic} has no queue ${state.queue}${state.shard ? ` on shard ${state.shard}` : ""}` });
  const first = state.offset ? Number(state.offset) : 0;
  return { missing: found.missing, ranges: ranges.map((each) => ({ ...each, next: Math.max(first, each.next) })) };
}
