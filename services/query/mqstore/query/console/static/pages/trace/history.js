// The way of a message through the store, as steps in time.
import { duration, plural } from "../../lib/format.js";

/**
 * @typedef {object} Step
 * @property {number} atMs
 * @property {string} title
 * @property {string} text
 * @property {"" | "good" | "warning" | "bad"} kind
 * @property {string} after how long after the step before
 * @property {any} [copy] the record that is the step
 */

const TITLES = /** @type {Record<string, (copy: any) => string>} */ ({
  message: (copy) => `Stored in ${copy.topic}`,
  delayed: () => "Waits for its time",
  half: () => "Half message of a transaction",
  "set-aside": () => "Set aside: its producer was checked too often",
  retry: (copy) => `In the retry topic of group ${copy.group}`,
  "dead-letter": (copy) => `Dead letter of group ${copy.group}`,
});

const STATES = /** @type {Record<string, string>} */ ({
  stored: "",
  waiting: "It is not delivered yet.",
  delivered: "It was delivered.",
  pending: "Its producer has not decided yet.",
  committed: "It was committed.",
  "rolled-back": "It was rolled back: no group gets it.",
  "set-aside": "No group gets it until an operator decides.",
  renewed: "A later copy counts in its place.",
});

const KINDS = /** @type {Record<string, Step["kind"]>} */ ({ "dead-letter": "bad", "set-aside": "bad", retry: "warning", "rolled-back": "warning", pending: "warning", waiting: "" });

/** @param {any} trace @returns {Step[]} oldest first */
export function stepsOf(trace) {
  /** @type {Omit<Step, "after">[]} */
  const steps = [{ atMs: trace.bornTimestamp, title: "Sent by its producer", text: `${trace.bornHost}, by the producer's clock`, kind: "" }];
  for (const copy of trace.copies) {
    const state = STATES[copy.state] ?? copy.state;
    const text = [state && copy.why ? `${state.replace(/\.$/, "")}: ${copy.why}.` : state, copy.reconsumeTimes ? `Returned ${plural(copy.reconsumeTimes, "time")} until then.` : ""].filter(Boolean).join(" ");
    steps.push({ atMs: copy.storeTimestamp, title: TITLES[copy.kind]?.(copy) ?? copy.kind, text, kind: KINDS[copy.kind] ?? KINDS[copy.state] ?? (copy.kind === "message" ? "good" : ""), copy });
  }
  const ordered = steps.sort((a, b) => a.atMs - b.atMs);
  return ordered.map((each, i) => {
    const before = ordered[i - 1];
    return { ...each, after: before ? `${duration(each.atMs - before.atMs)} later` : "" };
  });
}

/** How groups stand to a message, by the last copy in a queue that each reads.
 * @param {any} trace @returns {{group: string, isConsumed: boolean, topic: string}[]}
 */
export function standsOf(trace) {
  /** @type {Map<string, {group: string, isConsumed: boolean, topic: string}>} */
  const found = new Map();
  for (const copy of trace.copies) {
    for (const { group, consumed } of copy.groups) found.set(group, { group, isConsumed: consumed, topic: copy.topic });
  }
  return [...found.values()].sort((a, b) => (a.group < b.group ? -1 : 1));
}
