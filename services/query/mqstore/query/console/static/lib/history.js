// The last hour of the metrics of all shards, read while the console is open; the browser keeps it.
import { send } from "./api.js";
import { effect, signal } from "./html.js";
import { increase, newCounts, parseMetrics, quantileOf, sum, sumBy } from "./metrics.js";
import { clearSaved, loadSaved, save } from "./saved.js";
import { may } from "./session.js";
import { shards, storeId } from "./shards.js";

export const INTERVAL_S = 5;
const HIDDEN_INTERVAL_S = 30;
const KEPT_MS = 3_600_000;
const GAP_MS = 3 * 1000 * HIDDEN_INTERVAL_S;

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
/** @typedef {"writer" | "query"} Target */
/** Services that return messages: query to pulls, store-writer to receives. @type {Target[]} */
const READERS = ["query", "writer"];
const WANTED = new Set(Object.values(NAMES));

/** Searches and reads of messages, without those that wait for new ones. */
const SEARCHES = /^\/v1\/(messages|topics\/\{topic\}\/messages)/;

/** @typedef {"put" | "sync" | "search"} Operation */
/** @type {Record<Operation, {target: Target, metric: string, where?: (labels: Record<string, string>) => boolean}>} */
const HISTOGRAMS = {
  put: { target: "writer", metric: NAMES.puts },
  sync: { target: "writer", metric: NAMES.syncs },
  search: { target: "query", metric: NAMES.requests, where: ({ route }) => SEARCHES.test(route ?? "") },
};

/**
 * @typedef {object} Reading of one shard; a counter is undefined while its service does not reply
 * @property {import("./metrics.js").Metrics} [writer]
 * @property {import("./metrics.js").Metrics} [query]
 */
/** @typedef {{atMs: number, shards: Map<number, Reading>}} Sample */
/**
 * @typedef {object} Point what happened in the interval that ends at `atMs`; null: not known
 * @property {number} fromMs the begin of the interval
 * @property {number} atMs its end
 * @property {number | null} messagesIn a second, over all shards that were read twice
 * @property {number | null} bytesIn
 * @property {number | null} messagesOut
 * @property {number | null} bytesOut
 * @property {number | null} put99 seconds, of the slowest shard
 * @property {number | null} sync99
 * @property {number | null} search99
 * @property {Record<Operation, Map<number, import("./metrics.js").Counts>>} counts by duration in seconds, by shard
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
  let isAllowed = false;
  effect(() => {
    const was = isAllowed;
    isAllowed = may("consume");
    if (isAllowed) {
      if (!was) loadSaved(storeId.value, Date.now() - KEPT_MS).then(addSaved);
      run();
    } else {
      [last, points.value] = [undefined, []];
      if (was) clearSaved();
    }
  });
  document.addEventListener("visibilitychange", () => document.hidden || run());
}

/** Adds points that this tab, or another one, has read before. @param {Point[]} saved */
function addSaved(saved) {
  if (may("consume")) points.value = [...saved, ...points.value].sort((a, b) => a.atMs - b.atMs);
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
  if (!may("consume")) return; // the user has logged out meanwhile
  unread.value = missing;
  if (last) {
    const point = pointOf(last, sample);
    points.value = [...points.value.filter((/** @type {Point} */ each) => each.atMs > sample.atMs - KEPT_MS), point];
    save(storeId.value, point, sample.atMs - KEPT_MS);
    topicRates.value = { in: ratesBy(last, sample, ["writer"], NAMES.messagesIn), out: ratesBy(last, sample, READERS, NAMES.messagesOut) };
  }
  last = sample;
}

/** @param {Sample} before @param {Sample} after @returns {Point} */
export function pointOf(before, after) {
  const rate = (/** @type {Target[]} */ targets, /** @type {string} */ name) => {
    const seconds = (after.atMs - before.atMs) / 1000;
    return known(targets.flatMap((each) => pairs(before, after, each)), ([a, b]) => increase(sum(a, name, isNotSystem) ?? 0, sum(b, name, isNotSystem) ?? 0) / seconds);
  };
  const counts = /** @type {Point["counts"]} */ (Object.fromEntries(Object.entries(HISTOGRAMS).map(([operation, each]) => [operation, countsOf(before, after, each)])));
  const p99 = (/** @type {Operation} */ operation) => {
    const values = [...counts[operation].values()].flatMap((each) => quantileOf(each, 0.99) ?? []);
    return values.length ? Math.max(...values) : null;
  };
  const now = [...after.shards.values()];
  const queries = now.flatMap((each) => (each.query ? [each.query] : []));
  return {
    fromMs: before.atMs,
    atMs: after.atMs,
    messagesIn: rate(["writer"], NAMES.messagesIn),
    bytesIn: rate(["writer"], NAMES.bytesIn),
    messagesOut: rate(READERS, NAMES.messagesOut),
    bytesOut: rate(READERS, NAMES.bytesOut),
    put99: p99("put"),
    sync99: p99("sync"),
    search99: p99("search"),
    counts,
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

/** The sum over what is known; null if nothing is. @template T @param {T[]} all @param {(each: T) => number} value */
const known = (all, value) => (all.length ? all.reduce((total, each) => total + value(each), 0) : null);

/** Metrics of a service before and after, for each shard that has both.
 * @param {Sample} before @param {Sample} after @param {Target} target
 * @returns {[import("./metrics.js").Metrics, import("./metrics.js").Metrics, number][]}
 */
function pairs(before, after, target) {
  return [...after.shards].flatMap(([shard, reading]) => {
    const [a, b] = [before.shards.get(shard)?.[target], reading[target]];
    return a && b ? [/** @type {[typeof a, typeof b, number]} */ ([a, b, shard])] : [];
  });
}

/** The new values of a histogram, by shard. @param {Sample} before @param {Sample} after @param {typeof HISTOGRAMS[Operation]} histogram */
function countsOf(before, after, { target, metric, where }) {
  const all = pairs(before, after, target).map(([a, b, shard]) => [shard, newCounts(sumBy(a, metric, "le", where), sumBy(b, metric, "le", where))]);
  return new Map(/** @type {[number, import("./metrics.js").Counts][]} */ (all));
}

/** Values over time for a plot, with null where nothing was read for long.
 * @template T
 * @param {Point[]} all @param {((point: Point) => T)[]} values
 * @returns {{times: number[], series: (T | null)[][]}}
 */
export function seriesOf(all, values) {
  /** @type {(Point | null)[]} */
  const spaced = [];
  /** @type {number[]} */
  const times = [];
  all.forEach((each, i) => {
    const before = all[i - 1];
    if (before && each.fromMs - before.atMs > GAP_MS) [spaced[times.length], times[times.length]] = [null, before.atMs + 1];
    [spaced[times.length], times[times.length]] = [each, each.atMs];
  });
  return { times, series: values.map((value) => spaced.map((each) => each && value(each))) };
}

/** @param {Sample} before @param {Sample} after @param {Target[]} targets @param {string} name */
function ratesBy(before, after, targets, name) {
  const seconds = (after.atMs - before.atMs) / 1000;
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const [a, b] of targets.flatMap((each) => pairs(before, after, each))) {
    const earlier = sumBy(a, name, "topic");
    for (const [topic, value] of sumBy(b, name, "topic")) {
      found.set(topic, (found.get(topic) ?? 0) + increase(earlier.get(topic) ?? 0, value) / seconds);
    }
  }
  return found;
}
