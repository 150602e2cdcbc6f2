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
  { name: "latencies", title: "Latencies", section: "Store", icon: "latencies", role: "consume", load: () => import("./pages/latencies/latencies.js") },
  { name: "topics", title: "Topics", section: "Messages", icon: "topics", role: "consume", load: () => import("./pages/topics/topics.js") },
  { name: "messages", title: "Messages", section: "Messages", icon: "messages", role: "consume", load: () => import("./pages/messages/messages.js") },
  { name: "trace", title: "Trace", section: "Messages", icon: "trace", role: "consume", load: () => import("./pages/trace/trace.js") },
  { name: "send", title: "Send", section: "Messages", icon: "send", role: "produce", load: () => import("./pages/send/send.js") },
  { name: "groups", title: "Groups", section: "Consumers", icon: "groups", role: "consume", load: () => import("./pages/groups/groups.js") },
  { name: "transactions", title: "Transactions", section: "Consumers", icon: "transactions", role: "consume", load: () => import("./pages/transactions/transactions.js") },
  { name: "retention", title: "Retention", section: "Storage", icon: "retention", role: "consume", load: () => import("./pages/retention/retention.js") },
  { name: "delayed", title: "Delayed", section: "Storage", icon: "delayed", role: "consume", load: () => import("./pages/delayed/delayed.js") },
  { name: "jobs", title: "Jobs", section: "Storage", icon: "jobs", role: "consume", load: () => import("./pages/jobs/jobs.js") },
  { name: "scrub", title: "Scrub and repair", section: "Storage", icon: "scrub", role: "consume", load: () => import("./pages/scrub/scrub.js") },
  { name: "settings", title: "Settings", section: "Storage", icon: "settings", role: "admin", load: () => import("./pages/settings/settings.js") },
];
