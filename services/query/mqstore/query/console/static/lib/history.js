// The last hour of the metrics of all shards, read while the console is open and kept in the page.
import { send } from "./api.js";
import { effect, signal } from "./html.js";
import { parseMetrics, quantileOf, sum, sumBy } from "./metrics.js";
import { may } from "./session.js";
import { shards } from "./shards.js";

export const INTERVAL_S = 5;
const HIDDEN_INTERVAL_S = 30;
const KEPT_MS = 3_600_000;

const NAMES = {
  messagesIn: "rocketmq_messages_in_total",
  bytesIn: "rocketmq_throughput_in_total",
  messagesOut: "rocketmq_messages_out_total",
  bytesOut: "rocketmq_throughput_out_total",
  puts: "mqstore_put_seconds_bucket",
  syncs: "mqstore_sync_wait_seconds_bucket",
  requests: "mqstore_http_request_seconds_bucket",
  disk: "mqstore_disk_bytes",
  lag: "rocketmq_consumer_lag_messages",
  refused: "mqstore_problems_total",
};
const WANTED = new Set(Object.values(NAMES));

/**
 * @typedef {object} Reading of one shard; a counter is undefined while its service does not reply
 * @property {import("./metrics.js").Metrics} [writer]
 * @property {import("./metrics.js").Metrics} [query]
 */
/** @typedef {{atMs: number, shards: Map<number, Reading>}} Sample */
/**
 * @typedef {object} Point what happened in the interval that ends at `atMs`; null: not known
 * @property {number} atMs
 * @property {number | null} messagesIn a second, over all shards that were read twice
 * @property {number | null} bytesIn
 * @property {number | null} messagesOut
 * @property {number | null} bytesOut
 * @property {number | null} put99 seconds
 * @property {number | null} sync99
 * @property {number | null} request99
 * @property {number | null} lag messages
 * @property {Map<number, number>} diskUsed bytes, by shard
 */

export const points = signal(/** @type {Point[]} */ ([]));
/** Messages a second by topic, between the last two readings. */
export const topicRates = signal(/** @type {{in: Map<string, number>, out: Map<string, number>}} */ ({ in: new Map(), out: new Map() }));
/** By shard, why its metrics are missing. */
export const unread = signal(/** @type {Record<string, string>} */ ({}));

/** @type {Sample | undefined} */
let last;
let isStarted = false;

/** Begins to read, once there is a token that may. */
export function startHistory() {
  if (isStarted) return;
  isStarted = true;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const run = async () => {
    clearTimeout(timer);
    if (may("consume")) await readAll();
    timer = setTimeout(run, (document.hidden ? HIDDEN_INTERVAL_S : INTERVAL_S) * 1000);
  };
  effect(() => {
    if (may("consume")) run();
    else [last, points.value] = [undefined, []];
  });
  document.addEventListener("visibilitychange", () => document.hidden || run());
}

async function readAll() {
  /** @type {Record<string, string>} */
  const missing = {};
  /** @type {Sample} */
  const sample = { atMs: Date.now(), shards: new Map() };
  const one = async (/** @type {number} */ shard, /** @type {"writer" | "query"} */ target) => {
    try {
      const response = await send({ service: "metrics", path: `/${target}`, params: { shard } });
      return parseMetrics(await response.text(), WANTED);
    } catch (error) {
      missing[shard] = error instanceof Error ? error.message : String(error);
      return undefined;
    }
  };
  await Promise.all(
    shards.value.map(async (shard) => {
      const [writer, query] = await Promise.all([one(shard, "writer"), one(shard, "query")]);
      sample.shards.set(shard, { writer, query });
    }),
  );
  unread.value = missing;
  if (last) {
    const point = pointOf(last, sample);
    points.value = [...points.value.filter((/** @type {Point} */ each) => each.atMs > sample.atMs - KEPT_MS), point];
    topicRates.value = { in: ratesBy(last, sample, "writer", NAMES.messagesIn), out: ratesBy(last, sample, "query", NAMES.messagesOut) };
  }
  last = sample;
}

/** @param {Sample} before @param {Sample} after @returns {Point} */
export function pointOf(before, after) {
  const rate = (/** @type {"writer" | "query"} */ target, /** @type {string} */ name) => {
    const seconds = (after.atMs - before.atMs) / 1000;
    return known(pairs(before, after, target), ([a, b]) => increase(sum(a, name, isNotSystem) ?? 0, sum(b, name, isNotSystem) ?? 0) / seconds);
  };
  const p99 = (/** @type {"writer" | "query"} */ target, /** @type {string} */ name) => {
    const found = pairs(before, after, target).map(([a, b]) => quantileOf(sumBy(a, name, "le"), sumBy(b, name, "le"), 0.99));
    const values = found.filter((each) => each !== undefined);
    return values.length ? Math.max(...values) : null;
  };
  const now = [...after.shards.values()];
  const queries = now.flatMap((each) => (each.query ? [each.query] : []));
  return {
    atMs: after.atMs,
    messagesIn: rate("writer", NAMES.messagesIn),
    bytesIn: rate("writer", NAMES.bytesIn),
    messagesOut: rate("query", NAMES.messagesOut),
    bytesOut: rate("query", NAMES.bytesOut),
    put99: p99("writer", NAMES.puts),
    sync99: p99("writer", NAMES.syncs),
    request99: p99("query", NAMES.requests),
    lag: known(queries, (each) => sum(each, NAMES.lag) ?? 0),
    diskUsed: new Map(
      [...after.shards].flatMap(([shard, { writer }]) => {
        const used = writer && sum(writer, NAMES.disk, (labels) => labels.kind === "used");
        return used === undefined ? [] : [/** @type {[number, number]} */ ([shard, used])];
      }),
    ),
  };
}

const isNotSystem = (/** @type {Record<string, string>} */ labels) => labels.is_system !== "true";

/** The growth of a counter, which begins anew at zero with its process. @param {number} before @param {number} after */
const increase = (before, after) => (after >= before ? after - before : after);

/** The sum over what is known; null if nothing is. @template T @param {T[]} all @param {(each: T) => number} value */
const known = (all, value) => (all.length ? all.reduce((total, each) => total + value(each), 0) : null);

/** Metrics of a service before and after, for each shard that has both.
 * @param {Sample} before @param {Sample} after @param {"writer" | "query"} target
 * @returns {[import("./metrics.js").Metrics, import("./metrics.js").Metrics][]}
 */
function pairs(before, after, target) {
  return [...after.shards].flatMap(([shard, reading]) => {
    const [a, b] = [before.shards.get(shard)?.[target], reading[target]];
    return a && b ? [/** @type {[typeof a, typeof b]} */ ([a, b])] : [];
  });
}

/** @param {Sample} before @param {Sample} after @param {"writer" | "query"} target @param {string} name */
function ratesBy(before, after, target, name) {
  const seconds = (after.atMs - before.atMs) / 1000;
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const [a, b] of pairs(before, after, target)) {
    const earlier = sumBy(a, name, "topic");
    for (const [topic, value] of sumBy(b, name, "topic")) {
      found.set(topic, (found.get(topic) ?? 0) + increase(earlier.get(topic) ?? 0, value) / seconds);
    }
  }
  return found;
}
