// The settings of all shards as one list.

/**
 * @typedef {object} Setting
 * @property {string} name
 * @property {string} variable
 * @property {string | number | boolean | null} value of the first shard
 * @property {string | number | boolean | null} fallback the value without any source
 * @property {string} source
 * @property {{shard: number, value: any, source: string}[]} others shards with another value or source
 */

/** @param {Map<number, {settings: any[]}>} answers @returns {Setting[]} by name */
export function mergeSettings(answers) {
  /** @type {Map<string, Setting>} */
  const found = new Map();
  for (const [shard, { settings }] of answers) {
    for (const each of settings) {
      const known = found.get(each.name);
      if (!known) found.set(each.name, { name: each.name, variable: each.variable, value: each.value, fallback: each.default, source: each.source, others: [] });
      else if (known.value !== each.value || known.source !== each.source) known.others.push({ shard, value: each.value, source: each.source });
    }
  }
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Settings that each shard has to have for itself: that they differ means nothing. */
const OWN = new Set(["brokerName", "haMasterAddress", "host", "masterAddress", "replicaName", "shard", "store", "storeHost", "storeId", "storePathCommitLog", "terminationMessagePath", "writerPort"]);

/** @param {Setting} setting */
export const differs = (setting) => setting.others.length > 0 && !OWN.has(setting.name);

/** @param {Setting[]} settings @param {{search: string, only: string}} how `only`: a source, "changed" or "differs" */
export function selectSettings(settings, { search, only }) {
  const wanted = search.toLowerCase();
  return settings.filter(
    (each) =>
      (each.name.toLowerCase().includes(wanted) || each.variable.toLowerCase().includes(wanted)) &&
      (only === "" || (only === "changed" ? each.source !== "default" : only === "differs" ? differs(each) : each.source === only)),
  );
}

/** @param {any} value */
export const valueText = (value) => (value === null ? "not set" : value === "" ? "empty" : String(value));
