// From the fields of the form to a message of the API.

/** @typedef {Record<string, string>} Fields topic, body, form, tags, keys, properties, delay, orderingKey, durability */

/** Bytes of a body: query forwards requests of 64 KiB. */
export const BODY_MAX = 60_000;

/** @param {Fields} fields @returns {Record<string, string>} what is wrong, by field */
export function errorsOf(fields) {
  /** @type {Record<string, string>} */
  const found = {};
  if (!fields.topic) found.topic = "Choose a topic";
  if (new TextEncoder().encode(fields.body).length > BODY_MAX) found.body = "At most 60,000 bytes can be sent from here; larger ones by the API";
  if (fields.form === "json" && !isJson(fields.body ?? "")) found.body = "This is not JSON";
  if (fields.form === "base64" && !/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test((fields.body ?? "").replace(/\s/g, ""))) found.body = "This is not base64";
  const wrong = linesOf(fields.properties).find((line) => !/^[^=\s][^=]*=/.test(line));
  if (wrong !== undefined) found.properties = `“${wrong}” is not NAME=VALUE`;
  if (fields.delay && !/^\d{1,9}(\.\d+)?$/.test(fields.delay.trim())) found.delay = "Enter a number of seconds";
  return found;
}

/** @param {Fields} fields without errors */
export function messageOf(fields) {
  const properties = Object.fromEntries(linesOf(fields.properties).map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]));
  /** @type {Record<string, unknown>} */
  const message = fields.form === "base64" ? { bodyBase64: (fields.body ?? "").replace(/\s/g, "") } : { body: fields.body ?? "" };
  if (fields.tags) message.tags = fields.tags;
  if (fields.keys?.trim()) message.keys = fields.keys.trim().split(/\s+/);
  if (Object.keys(properties).length) message.properties = properties;
  if (fields.delay) message.delayS = Number(fields.delay);
  if (fields.orderingKey) message.orderingKey = fields.orderingKey;
  return message;
}

/** @param {string | undefined} text */
const linesOf = (text = "") => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** @param {string} text */
function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
