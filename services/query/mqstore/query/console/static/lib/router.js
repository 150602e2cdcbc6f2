// The page and its state are in the address, so that a view can be shared: /ui/PAGE?name=value.
import { forgetCalls, UI } from "./api.js";
import { signal } from "./html.js";

/** @typedef {Record<string, string>} State */

const read = () => ({
  page: decodeURIComponent(location.pathname.slice(new URL(UI).pathname.length)) || "overview",
  state: /** @type {State} */ (Object.fromEntries(new URLSearchParams(location.search))),
});

/** The page that is shown, and its state. */
export const route = signal(read());

/** The address of a page with a state; values that are empty are left out.
 * @param {string} page @param {Record<string, string | number | boolean | undefined | null>} [state]
 */
export function href(page, state = {}) {
  const pairs = Object.entries(state).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const query = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return new URL(page === "overview" ? "." : page, UI).pathname + (query ? `?${query}` : "");
}

/** @param {string} address @param {boolean} [isReplaced] whether it takes the place of the last entry of the history */
function go(address, isReplaced = false) {
  if (isReplaced) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  follow();
}

function follow() {
  const before = route.value.page;
  const next = read();
  if (next.page !== before) forgetCalls();
  route.value = next;
  if (next.page !== before) document.getElementById("main")?.focus({ preventScroll: false });
}

/** Shows a page. @param {string} page @param {Parameters<typeof href>[1]} [state] */
export const navigate = (page, state) => go(href(page, state));

/** Changes some values of the state of this page. An empty value is removed.
 * @param {Parameters<typeof href>[1]} changes @param {{isStep?: boolean}} [options] isStep: the back button undoes it
 */
export function setState(changes, { isStep = false } = {}) {
  const address = href(route.value.page, { ...route.value.state, ...changes });
  if (address !== location.pathname + location.search) go(address, !isStep);
}

addEventListener("popstate", follow);
addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (!link.pathname.startsWith(UI.pathname) || link.getAttribute("href")?.startsWith("#")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
