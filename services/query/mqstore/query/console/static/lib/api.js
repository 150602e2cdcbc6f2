// Requests to query, and through it to store-writer.
import { signOut, token } from "./session.js";

export const UI = new URL("..", import.meta.url);
/** Addresses of the services, as the page reaches them. */
const BASES = {
  query: new URL("..", UI).href.replace(/\/$/, ""),
  writer: new URL("writer", UI).href,
  coordinator: new URL("coordinator", UI).href,
  metrics: new URL("metrics", UI).href,
};

/** @typedef {keyof typeof BASES} Service */
/** @typedef {Record<string, string | number | boolean | null | undefined>} Params */
/**
 * @typedef {object} Call
 * @property {Service} [service] default: query
 * @property {string} [method] default: GET
 * @property {string} path as `path` makes it
 * @property {Params} [params] those that are null, undefined or "" are left out
 * @property {unknown} [body] sent as JSON
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 */

/** An error reply (RFC 9457), or a service that cannot be reached (status 0). */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} members */
  constructor(status, members) {
    super(members.detail || members.title || `status ${status}`);
    this.status = status;
    this.members = members;
    this.title = String(members.title ?? "The request failed");
    this.detail = String(members.detail ?? "");
    this.name = String(members.type ?? "").replace("urn:mqstore:problem:", "");
    this.requestId = String(members.requestId ?? "");
  }
}

/** Makes a path; each value is one percent-encoded segment. */
export const path = (/** @type {TemplateStringsArray} */ texts, /** @type {(string | number)[]} */ ...values) =>
  texts.reduce((sum, text, i) => sum + encodeURIComponent(String(values[i - 1])) + text);

/** @param {Call} call */
export function addressOf({ service = "query", path, params = {} }) {
  const pairs = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return BASES[service] + path + (query ? `?${query}` : "");
}

/** @type {Map<string, Call>} */
const made = new Map();
/** The latest call of each operation since the page was opened, the newest last. */
export const recordedCalls = () => [...made.values()];
export const forgetCalls = () => made.clear();

/** Sends a request, with the token, and returns the response. Throws Problem, or AbortError.
 * @param {Call} call @returns {Promise<Response>}
 */
export async function send(call) {
  const { method = "GET", body, signal } = call;
  if (call.service !== "metrics") {
    const key = `${method} ${call.service} ${call.path}`;
    made.delete(key);
    made.set(key, call);
    if (made.size > 12) made.delete(/** @type {string} */ (made.keys().next().value));
  }
  /** @type {Record<string, string>} */
  const headers = { ...call.headers };
  if (token.value) headers.authorization = `Bearer ${token.value}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const content = body === undefined ? undefined : JSON.stringify(body);
  let response;
  try {
    response = await fetch(addressOf(call), { method, headers, body: content, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, {
      title: "query cannot be reached",
      detail: "No reply came from this console's own address. Check that the query service runs, and the network.",
    });
  }
  if (response.ok) return response;
  const members = await response.json().catch(() => ({ title: `Status ${response.status}` }));
  if (response.status === 401) signOut(token.value ? "The token is not valid, or no longer." : "");
  throw new Problem(response.status, members);
}

/** Sends a request and returns its reply in JSON; null for a reply without content.
 * @param {Call} call @returns {Promise<any>}
 */
export async function request(call) {
  const response = await send(call);
  return response.status === 204 ? null : response.json();
}

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The command that sends a call, with the token in a variable of the shell.
 * @param {Call} call
 */
export function curlOf(call) {
  const parts = ["curl"];
  if (call.method && call.method !== "GET") parts.push(`-X ${call.method}`);
  if (token.value) parts.push('-H "Authorization: Bearer $MQSTORE_TOKEN"');
  for (const [name, value] of Object.entries(call.headers ?? {})) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (call.body !== undefined) parts.push("-H 'content-type: application/json'", `-d ${quoted(JSON.stringify(call.body))}`);
  return [...parts, quoted(addressOf(call))].join(" \\\n  ");
}
