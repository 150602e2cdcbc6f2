// Lists of store-writer, which come in pages, as a whole.
import { request } from "./api.js";

/** Pages of a thousand entries. */
const PAGES_MAX = 100;

/** Loads all entries of a list that `name` is the member of in each page.
 * @template {string} Name
 * @param {import("./api.js").Call} call @param {Name} name @returns {Promise<Record<Name, any[]>>}
 */
export async function requestAll(call, name) {
  /** @type {any[]} */
  const found = [];
  let cursor;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const reply = await request({ ...call, params: { ...call.params, cursor } });
    found.push(...reply[name]);
    cursor = reply.next;
    if (!cursor) break;
  }
  return /** @type {Record<Name, any[]>} */ ({ [name]: found });
}
