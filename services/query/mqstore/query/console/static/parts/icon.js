import { html } from "../lib/html.js";

const PATHS = {
  overview: "M3 12h4l3 8 4-16 3 8h4",
  latencies: "M4 20h16M6 16v-3M10 16V6M14 16v-6M18 16v-2",
  topics: "M4 6h16M4 12h16M4 18h10",
  messages: "M4 5h16v11H9l-5 4z",
  trace: "M6 4v10a4 4 0 0 0 4 4h8M15 15l3 3-3 3M6 4a0 0 0 0 1 0 0M6 4h.01M12 8h6",
  send: "M4 12 20 4l-5 16-3-7z",
  groups: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7M2.5 20a6.5 6.5 0 0 1 13 0M16 4.5a3.5 3.5 0 0 1 0 6.5M18 14.5a6.5 6.5 0 0 1 3.5 5.5",
  transactions: "M4 8h13l-3-3M20 16H7l3 3",
  delayed: "M12 21a8.5 8.5 0 1 0 0-17 8.5 8.5 0 0 0 0 17M12 8v5l3 2",
  retention: "M5 8h14l-1 12H6zM9 8V4h6v4M10 12v4M14 12v4",
  jobs: "M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6M12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.2 2.2M16.2 16.2l2.2 2.2M18.4 5.6l-2.2 2.2M7.8 16.2l-2.2 2.2",
  scrub: "M12 3l7 3v6c0 4.5-3 7.5-7 9-4-1.5-7-4.5-7-9V6zM9 12l2 2 4-4",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5M8 19.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14M20 20l-4-4",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M19 5l-1.4 1.4M6.4 17.6 5 19",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M12 7v5l3 3",
  code: "M8 7l-5 5 5 5M16 7l5 5-5 5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  close: "M6 6l12 12M18 6 6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  refresh: "M20 11a8 8 0 1 0-2.5 6.5M20 5v6h-6",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  play: "M7 5l12 7-12 7z",
  pause: "M8 5v14M16 5v14",
  warning: "M12 4 2.5 20h19zM12 10v5M12 17.5v.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M12 11v5M12 8v.01",
  good: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M8 12l3 3 5-6",
  out: "M14 4h5v16h-5M4 12h10M10 8l4 4-4 4",
};

/** @typedef {keyof typeof PATHS} IconName */

/** A drawing beside a text that says the same: hidden from screen readers. @param {{name: IconName}} props */
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
