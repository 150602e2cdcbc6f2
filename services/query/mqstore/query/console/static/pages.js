// All pages. To add one: a folder in pages/ whose module has a default export, and an entry here.

/**
 * @typedef {object} PageEntry
 * @property {string} name in the address: /ui/NAME
 * @property {string} title in the navigation
 * @property {string} section of the navigation
 * @property {import("./parts/icon.js").IconName} icon
 * @property {import("./lib/session.js").Role} role that it needs; without it the page is not shown
 * @property {() => Promise<{default: import("./vendor/preact.js").ComponentType<{state: import("./lib/router.js").State}>}>} load
 */

/** @type {PageEntry[]} */
export const pages = [
  { name: "overview", title: "Overview", section: "Store", icon: "overview", role: "consume", load: () => import("./pages/overview/overview.js") },
  { name: "groups", title: "Groups", section: "Consumers", icon: "groups", role: "consume", load: () => import("./pages/groups/groups.js") },
  { name: "transactions", title: "Transactions", section: "Consumers", icon: "transactions", role: "consume", load: () => import("./pages/transactions/transactions.js") },
];
