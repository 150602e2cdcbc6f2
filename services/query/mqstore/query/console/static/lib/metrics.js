// Prometheus' text format, as far as the services write it.

/** @typedef {{labels: Record<string, string>, value: number}} Sample */
/** @typedef {Map<string, Sample[]>} Metrics */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES = /** @type {Record<string, string>} */ ({ "\\n": "\n", '\\"': '"', "\\\\": "\\" });

/** @param {string} text @param {Set<string>} names the metrics that are wanted @returns {Metrics} */
export function parseMetrics(text, names) {
  /** @type {Metrics} */
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (!match || !names.has(/** @type {string} */ (match[1]))) continue;
    /** @type {Record<string, string>} */
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) {
      labels[/** @type {string} */ (name)] = /** @type {string} */ (value).replace(/\\[n"\\]/g, (each) => ESCAPES[each] ?? each);
    }
    const name = /** @type {string} */ (match[1]);
    const samples = found.get(name) ?? [];
    samples.push({ labels, value: Number(match[3]) });
    found.set(name, samples);
  }
  return found;
}

/** The sum of a metric over samples that `where` accepts; undefined without the metric.
 * @param {Metrics} metrics @param {string} name @param {(labels: Record<string, string>) => boolean} [where]
 */
export function sum(metrics, name, where = () => true) {
  const samples = metrics.get(name)?.filter((each) => where(each.labels));
  return samples?.reduce((total, each) => total + each.value, 0);
}

/** The sums of a metric by the values of a label.
 * @param {Metrics} metrics @param {string} name @param {string} label @param {(labels: Record<string, string>) => boolean} [where]
 */
export function sumBy(metrics, name, label, where = () => true) {
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const { labels, value } of metrics.get(name) ?? []) {
    if (!where(labels)) continue;
    const key = labels[label] ?? "";
    found.set(key, (found.get(key) ?? 0) + value);
  }
  return found;
}

/** The growth of a counter, which begins anew at zero with its process. @param {number} before @param {number} after */
export const increase = (before, after) => (after >= before ? after - before : after);

/** @typedef {Map<number, number>} Counts numbers of values by the upper bound of their bucket */

/** The values that a histogram got between two readings. If a count has fallen, its process was
 * started anew, and all values of the later reading are new.
 * @param {Map<string, number>} before cumulative counts by upper bound @param {Map<string, number>} after @returns {Counts}
 */
export function newCounts(before, after) {
  const isAnew = [...before].some(([bound, value]) => (after.get(bound) ?? 0) < value);
  const ascending = [...after].map(([bound, value]) => ({ bound: bound === "+Inf" ? Infinity : Number(bound), total: value - (isAnew ? 0 : before.get(bound) ?? 0) })).sort((a, b) => a.bound - b.bound);
  return new Map(ascending.map(({ bound, total }, i) => [bound, total - (ascending[i - 1]?.total ?? 0)]));
}

/** @param {Iterable<Counts>} all @returns {Counts} with ascending bounds */
export function mergeCounts(all) {
  /** @type {Counts} */
  const found = new Map();
  for (const each of all) for (const [bound, number] of each) found.set(bound, (found.get(bound) ?? 0) + number);
  return new Map([...found].sort(([a], [b]) => a - b));
}

/** The number of values. @param {Counts} counts */
export const totalOf = (counts) => [...counts.values()].reduce((total, each) => total + each, 0);

/** A quantile, as Prometheus estimates it: linear within a bucket, and the greatest bound for values
 * above it. Returns undefined without values.
 * @param {Counts} counts with ascending bounds @param {number} quantile of 1
 */
export function quantileOf(counts, quantile) {
  const total = totalOf(counts);
  if (total <= 0) return undefined;
  const rank = quantile * total;
  let [lower, below] = [0, 0];
  for (const [bound, number] of counts) {
    if (number && below + number >= rank) return bound === Infinity ? lower : lower + ((bound - lower) * (rank - below)) / number;
    [lower, below] = [bound, below + number];
  }
  return lower;
}
