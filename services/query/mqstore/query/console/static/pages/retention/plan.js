// What a plan of retention means for people: times of segments, readers that lose messages, and
// what a run would delete now.

/**
 * @typedef {object} Segment
 * @property {string} name
 * @property {number} offset
 * @property {number} size
 * @property {number} modifiedMs
 * @property {number} expiresMs
 * @property {boolean} goes
 * @property {number | null} notBeforeMs null: nothing says when
 * @property {string} why
 * @property {string[]} heldBy
 */
/** @typedef {Segment & {fromMs: number}} Stretch fromMs: when its first message was stored, or the last one before it */
/** @typedef {{group: string, fromMs: number, lag: number}} Reader fromMs: when its oldest unread message was stored; -Infinity if that is not known */

/** The segments with the times of their messages: each begins where the one before was last written,
 * the first one with the oldest message. Where that time is not known, it has no length.
 * @param {{segments: Segment[], oldestMs?: number | null}} plan segments: oldest first @returns {Stretch[]}
 */
export const stretches = ({ segments, oldestMs }) => segments.map((each, i) => ({ ...each, fromMs: segments[i - 1]?.modifiedMs ?? oldestMs ?? each.modifiedMs }));

/** Groups that are behind, with the time of their oldest unread message, the oldest first.
 * @param {import("../../lib/lags.js").Lags} lags @param {(group: import("../../lib/lags.js").GroupSum) => number} ageOf
 * @returns {Reader[]}
 */
export const readersOf = (lags, ageOf) =>
  lags.groups
    .filter((each) => each.lag > 0)
    .map((each) => ({ group: each.group, lag: each.lag, fromMs: lags.atMs - ageOf(each) }))
    .sort((a, b) => (a.fromMs < b.fromMs ? -1 : a.fromMs > b.fromMs ? 1 : 0));

/** The segment that may hold a reader's oldest unread message: the first one written to at or after it.
 * @template {Segment} S @param {S[]} segments @param {Reader} reader @returns {S | undefined}
 */
export const segmentOf = (segments, reader) => segments.find((each) => each.modifiedMs >= reader.fromMs);

/** Readers whose oldest unread message may be in a segment, or in one before.
 * @param {Segment} segment @param {Reader[]} readers
 */
export const unreadIn = (segment, readers) => readers.filter((each) => each.fromMs <= segment.modifiedMs);

const STOPS = new Set(["newest", "not-dispatched"]);

/** The segments that a run would delete now: those that have expired, from the oldest up to the
 * first that stays. Pins, groups and the archive count while retention honours them.
 * @template {Segment} S @param {{madeMs: number, holdsHonoured: boolean}} plan @param {S[]} segments @returns {S[]}
 */
export function deletedByRun({ madeMs, holdsHonoured }, segments) {
  const end = segments.findIndex(
    (each) => !each.goes && (STOPS.has(each.why) || each.expiresMs > madeMs || (holdsHonoured && each.heldBy.length > 0)),
  );
  return end === -1 ? segments : segments.slice(0, end);
}

const WHY = /** @type {Record<string, string>} */ ({
  expired: "expired: goes now",
  forced: "goes now, before its time: the volume is too full",
  reader: "being deleted: a reader still uses it",
  hour: "expired: waits for deleteWhen",
  "in-time": "kept until it expires",
  young: "written to lately: kept although the volume is too full",
  held: "held",
  "not-dispatched": "not in its queues yet",
  newest: "the newest: always kept",
  behind: "could go, but an older one stays",
});

/** @param {string} why */
export const inWords = (why) => WHY[why] ?? why;

/** @typedef {"goes" | "due" | "kept" | "held"} Kind */

/** How a segment is drawn. @param {Segment} segment @returns {Kind} */
export function kindOf({ goes, why }) {
  if (goes) return "goes";
  if (why === "held") return "held";
  return why === "hour" || why === "behind" ? "due" : "kept";
}

const TRIGGERS = /** @type {Record<string, string>} */ ({
  hour: "it is an hour of deleteWhen",
  disk: "a volume is fuller than diskMaxUsedSpaceRatio",
  forced: "a volume is so full that messages go before their time",
  "no-segment": "the volume has no room for the next segment",
  manual: "an operator requested it",
});

/** @param {string} trigger */
export const triggerInWords = (trigger) => TRIGGERS[trigger] ?? trigger;
