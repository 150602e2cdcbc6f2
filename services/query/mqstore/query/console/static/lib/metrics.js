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

/** The sums of a metric by the values of a label. @param {Metrics} metrics @param {string} name @param {string} label */
export function sumBy(metrics, name, label) {
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const { labels, value } of metrics.get(name) ?? []) {
    const key = labels[label] ?? "";
    found.set(key, (found.get(key) ?? 0) + value);
  }
  return found;
}

/** The quantile of a histogram's new values between two readings, as Prometheus estimates it:
 * linear within a bucket. Returns undefined without values.
 * @param {Map<string, number>} before cumulative counts by upper bound @param {Map<string, number>} after @param {number} quantile of 1
 */
export function quantileOf(before, after, quantile) {
  const buckets = [...after]
    .map(([bound, value]) => ({ bound: bound === "+Inf" ? Infinity : Number(bound), count: value - (before.get(bound) ?? 0) }))
    .sort((a, b) => a.bound - b.bound);
  const total = buckets.at(-1)?.count ?? 0;
  if (total <= 0) return undefined;
  const rank = quantile * total;
  let lower = { bound: 0, count: 0 };
  for (const each of buckets) {
    if (each.count >= rank) {
      if (each.bound === Infinity) return lower.bound;
      const part = each.count === lower.count ? 1 : (rank - lower.count) / (each.count - lower.count);
      return lower.bound + (each.bound - lower.bound) * part;
    }
    lower = each;
  }
  return lower.bound;
}
