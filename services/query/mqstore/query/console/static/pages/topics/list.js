// The topics of all shards as one list, and its order.

/**
 * @typedef {object} Topic
 * @property {string} topic
 * @property {number} readQueues
 * @property {number} writeQueues
 * @property {number} perm
 * @property {boolean} order
 * @property {string} filterType
 * @property {Record<string, string>} attributes
 * @property {number[]} absent shards that do not have it
 * @property {boolean} differs whether shards have different settings of it
 */

/** @param {Map<number, {topics: any[]}>} answers by shard @returns {Topic[]} by name */
export function mergeTopics(answers) {
  /** @type {Map<string, {first: any, shards: Set<number>, differs: boolean}>} */
  const found = new Map();
  for (const [shard, { topics }] of answers) {
    for (const topic of topics) {
      const known = found.get(topic.topic);
      if (!known) {
        found.set(topic.topic, { first: topic, shards: new Set([shard]), differs: false });
        continue;
      }
      known.shards.add(shard);
      known.differs ||= ["readQueues", "writeQueues", "perm", "order"].some((name) => topic[name] !== known.first[name]);
    }
  }
  return [...found.values()]
    .map(({ first, shards, differs }) => ({ ...first, differs, absent: [...answers.keys()].filter((each) => !shards.has(each)) }))
    .sort((a, b) => (a.topic < b.topic ? -1 : 1));
}

const SYSTEM = /^(%RETRY%|%DLQ%|rmq_sys_|RMQ_SYS_|SCHEDULE_TOPIC_XXXX|TBW102|OFFSET_MOVED_EVENT|SELF_TEST_TOPIC|BenchmarkTest|TRANS_CHECK_MAX_TIME_TOPIC)/;

/** Topics that the store and groups make for themselves. @param {string} name */
export const isSystem = (name) => SYSTEM.test(name);

/** @param {Topic[]} topics @param {{search: string, withSystem: boolean, sort: string, rates: {in: Map<string, number>, out: Map<string, number>}}} how */
export function selectTopics(topics, { search, withSystem, sort, rates }) {
  const wanted = search.toLowerCase();
  const shown = topics.filter((each) => (withSystem || !isSystem(each.topic)) && each.topic.toLowerCase().includes(wanted));
  const by = sort.replace("-", "");
  const value = (/** @type {Topic} */ each) =>
    by === "queues" ? each.writeQueues : by === "in" ? rates.in.get(each.topic) ?? 0 : by === "out" ? rates.out.get(each.topic) ?? 0 : 0;
  const direction = sort.startsWith("-") ? -1 : 1;
  if (by === "name") return direction === 1 ? shown : shown.reverse();
  return shown.sort((a, b) => direction * (value(a) - value(b)) || (a.topic < b.topic ? -1 : 1));
}

const PERMISSIONS = /** @type {Record<number, string>} */ ({ 2: "write", 4: "read", 6: "read and write" });

/** @param {number} perm */
export const permission = (perm) => PERMISSIONS[perm] ?? String(perm);
