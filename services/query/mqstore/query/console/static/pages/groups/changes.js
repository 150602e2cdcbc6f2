// The settings of a group that the console changes, and what a change does.

/** @typedef {Record<string, boolean | number>} Config by name, as the API has them */
/** @typedef {{name: string, before: string, after: string, why: string}} Change */

/** RocketMQ's defaults, which a new group has. @type {Config} */
export const DEFAULTS = {
  consumeEnable: true,
  consumeMessageOrderly: false,
  consumeBroadcastEnable: true,
  consumeFromMinEnable: true,
  retryTimesMax: 16,
  retryQueues: 1,
  consumeTimeoutMinutes: 15,
  notifyConsumerIdsChangedEnable: true,
};

export const COUNT_MAX = 2 ** 31 - 1;

/** @type {Record<string, string>} */
const LABELS = {
  consumeEnable: "Consume",
  consumeMessageOrderly: "Ordered",
  consumeBroadcastEnable: "Broadcast",
  consumeFromMinEnable: "Consume from the first message",
  retryTimesMax: "Retries",
  retryQueues: "Retry queues",
  consumeTimeoutMinutes: "Timeout of a delivery, in minutes",
  notifyConsumerIdsChangedEnable: "Notify of members",
};

/** @param {string} name */
export const labelOf = (name) => LABELS[name] ?? name;

/** A value as text. @param {boolean | number | undefined} value */
const textOf = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : String(value));

/** The effect of a value, in words. @param {string} name @param {boolean | number | undefined} value */
function effectOf(name, value) {
  if (name === "consumeEnable") return value ? "Consumers get messages." : "Consumers get no message until this is changed back.";
  if (name === "consumeMessageOrderly") return value ? "Each queue is delivered in order, to one member." : "Messages are shared by the members, in no order.";
  if (name === "retryTimesMax") return value ? `A message is a dead letter after ${value} retries.` : "A message that is rejected once is a dead letter.";
  return "";
}

/** The values that differ: the body of the request. @param {Config} before @param {Config} after @returns {Config} */
export const differing = (before, after) => Object.fromEntries(Object.entries(after).filter(([name, value]) => before[name] !== value));

/** The same in words. @param {Config} before @param {Config} after @returns {Change[]} */
export const changesOf = (before, after) =>
  Object.entries(differing(before, after)).map(([name, value]) => ({ name, before: textOf(before[name]), after: textOf(value), why: effectOf(name, value) }));

/** Why a text is no count; empty if it is one. @param {string} text */
export function countError(text) {
  if (!/^\d+$/.test(text.trim())) return "This is no whole number of 0 or more.";
  return Number(text) > COUNT_MAX ? `At most ${COUNT_MAX}.` : "";
}

/** Why a text is no name of a group; empty if it is one. @param {string} text */
export function nameError(text) {
  if (!text) return "A group needs a name.";
  if (text.length > 120) return "At most 120 characters.";
  return /^[%|a-zA-Z0-9_-]+$/.test(text) ? "" : "Only letters, digits, _, -, % and |.";
}
