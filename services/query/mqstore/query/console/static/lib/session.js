// The token, and what it allows. The token is kept for the tab, or for the browser if the user
// chooses so; it is never part of an address.
import { computed, signal } from "./html.js";

const NAME = "mqstore.token";

/** @typedef {"produce" | "consume" | "admin" | "system"} Role */
/** @typedef {{tokenNeeded: boolean, roles: Role[], allows: Role[]}} Access */

export const token = signal(sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "");

/** What the token allows; null until it is known. */
export const access = signal(/** @type {Access | null} */ (null));

/** Why the log-in view is shown again, for instance because the token was rotated. */
export const ended = signal("");

const allowed = computed(() => new Set(access.value?.allows ?? []));

/** Returns whether the token allows the operations of a role.
 * @param {Role | undefined} role undefined: of any
 */
export const may = (role) => role === undefined || allowed.value.has(role);

/** @param {string} given @param {boolean} isKept whether it is kept after the tab is closed */
export function keepToken(given, isKept) {
  token.value = given;
  sessionStorage.setItem(NAME, given);
  if (isKept) localStorage.setItem(NAME, given);
}

/** Forgets the token. @param {string} [why] */
export function signOut(why = "") {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
  token.value = "";
  access.value = null;
  ended.value = why;
}
