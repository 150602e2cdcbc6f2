// What the pages of groups, transactions and storage compute.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./browser.mjs";

const groups = await load("pages/groups/list.js");
const { queueRows } = await load("pages/groups/queues.js");
const { effectOf } = await load("pages/groups/reset.js");
const { filterOf } = await load("pages/groups/letters.js");
const { settle } = await load("pages/groups/settling.js");
const ages = await load("pages/transactions/ages.js");
const { eventsOf } = await load("pages/transactions/history.js");
const lags = await load("lib/lags.js");
const plan = await load("pages/retention/plan.js");
const levels = await load("pages/delayed/levels.js");
const settings = await load("pages/settings/merge.js");
const findings = await load("pages/scrub/findings.js");
const jobs = await load("pages/jobs/lists.js");

const STATES = { waiting: 1, leased: 2, retrying: 0, acknowledged: 0, delayed: 4 };

test("groups that were created and groups that commit are one list", () => {
  const billing = { group: "billing", lag: 3, deadLetters: 1, states: STATES, topics: [{ topic: "t", lag: 3, expired: 2, lagMs: 50 }, { topic: "%RETRY%billing", lag: 0, expired: 0, lagMs: 0 }] };
  const rows = groups.mergeGroups(["idle", "billing"], [billing]);
  assert.deepEqual(rows.map((each) => [each.group, each.lag, each.age, each.expired, each.topics, each.isIdle]), [["billing", 3, 50, 2, 1, false], ["idle", 0, 0, 0, 0, true]]);
  const how = { search: "", only: "", withSystem: false, sort: "-lag" };
  assert.deepEqual(groups.selectGroups(rows, { ...how, sort: "lag" }).map((each) => each.group), ["idle", "billing"]);
  assert.deepEqual(groups.selectGroups(rows, { ...how, only: "behind" }).map((each) => each.group), ["billing"]);
  assert.deepEqual(groups.selectGroups(rows, { ...how, search: "IDL" }).map((each) => each.group), ["idle"]);
  assert.equal(groups.isSystem("CID_RMQ_SYS_TRANS"), true);
});

test("queues are sorted by lag, by age and by place", () => {
  const topics = [{ topic: "b", queues: [{ shard: 0, queueId: 1, lag: 1, lagMs: null, expired: 0 }] }, { topic: "a", queues: [{ shard: 1, queueId: 0, lag: 5, lagMs: 2, expired: 0 }, { shard: 0, queueId: 0, lag: 5, lagMs: 9, expired: 1 }] }];
  const named = (sort) => queueRows(topics, sort).map((each) => `${each.topic}${each.shard}`);
  assert.deepEqual(named("-lag"), ["a0", "a1", "b0"]);
  assert.deepEqual(named("-age"), ["b0", "a0", "a1"]);
  assert.deepEqual(named("queue"), ["a0", "a1", "b0"]);
});

test("a reset says what is delivered again and what is not delivered", () => {
  const queue = { shard: 0, queueId: 0, minOffset: 10, maxOffset: 50 };
  assert.deepEqual(effectOf([{ ...queue, before: 40, after: 10 }, { ...queue, before: null, after: 25 }, { ...queue, before: 3, after: 12 }]), { again: 30, skipped: 17 });
});

test("a filter of dead letters has what is given, times in milliseconds", () => {
  assert.deepEqual(filterOf({ topic: "t", key: "", from: "1795349144061", to: "no time" }), { topic: "t", from: 1795349144061 });
});

test("dead letters are settled page by page, until there is no more or the user stops", async () => {
  const sent = [];
  const pages = [{ results: [{ status: "done", detail: "" }, { status: "refused", detail: "no topic" }], next: "c" }, { results: [{ status: "settled", detail: "" }], next: null, shards: { why: { 1: "down" } } }];
  const send = async (body, cursor) => (sent.push([body, cursor]), pages[sent.length - 1]);
  const wanted = { filter: { topic: "t" }, to: "group", dryRun: true };
  const outcome = await settle(send, wanted, () => {}, () => false);
  assert.deepEqual([outcome.done, outcome.refused, outcome.settled, outcome.details, outcome.missing], [1, 1, 1, ["no topic"], { 1: "down" }]);
  assert.deepEqual(sent, [[{ filter: { topic: "t" }, max: 500, to: "group", dryRun: true }, null], [{ filter: { topic: "t" }, max: 500, to: "group", dryRun: true }, "c"]]);
  sent.length = 0;
  await settle(send, { ids: ["a"], filter: {}, dryRun: false }, () => {}, () => true);
  assert.deepEqual(sent, [[{ ids: ["a"], dryRun: false }, null]]);
});

test("transactions are counted by group and age, the group with the oldest one first", () => {
  const now = 10 * 86_400_000;
  const of = (producerGroup, age, state = "pending") => ({ producerGroup, bornTimestamp: now - age, state });
  const found = ages.byGroup([of("a", 0), of("a", 61_000), of("b", 2 * 86_400_000, "set-aside"), of("c", -5)], now);
  assert.deepEqual(found.map((each) => [each.group, each.counts, each.total, each.setAside]), [["b", [0, 0, 0, 0, 1], 1, 1], ["a", [1, 1, 0, 0, 0], 2, 0], ["c", [1, 0, 0, 0, 0], 1, 0]]);
});

test("the history of a transaction has its checks and its decision", () => {
  const found = eventsOf({ bornTimestamp: 1, producerGroup: "g", messages: 2, checksSent: 3, checks: [{ at: 5, by: "p", answer: null }], decidedAt: 9, state: "rolled-back", why: "gone" });
  assert.equal(found.at(-1).kind, "plain");
  assert.deepEqual(found.map((each) => [each.atMs, each.text, each.detail]), [[1, "Begun by g", "2 messages"], [1, "2 earlier checks", "sent before the store was opened"], [5, "Checked: no answer yet", "sent to p"], [9, "Rolled back", "gone"]]);
});

const segment = (name, modifiedMs, more = {}) => ({ name, offset: 0, size: 1, modifiedMs, expiresMs: modifiedMs + 100, goes: false, notBeforeMs: null, why: "in-time", heldBy: [], ...more });

test("a run deletes from the oldest segment up to the first that stays", () => {
  const segments = [segment("a", 1), segment("b", 2, { heldBy: ["pin x"] }), segment("c", 3), segment("d", 950, { why: "newest" })];
  const names = (holdsHonoured, of = segments) => plan.deletedByRun({ madeMs: 1000, holdsHonoured }, of).map((each) => each.name);
  assert.deepEqual(names(true), ["a"]);
  assert.deepEqual(names(false), ["a", "b", "c"]);
  assert.deepEqual(names(true, [segment("a", 950), ...segments]), []);
  assert.deepEqual(names(true, [segment("a", 950, { goes: true })]), ["a"]);
});

test("a reader has not read the segment with its oldest unread message, and those behind", () => {
  const segments = plan.stretches({ segments: [segment("a", 100), segment("b", 200), segment("c", 300)], oldestMs: 50 });
  assert.deepEqual(segments.map((each) => each.fromMs), [50, 100, 200]);
  const found = { atMs: 1000, groups: [{ group: "g", lag: 2, age: 850 }, { group: "done", lag: 0, age: 0 }] };
  const readers = plan.readersOf(found, (each) => each.age);
  assert.deepEqual(readers, [{ group: "g", lag: 2, fromMs: 150 }]);
  assert.equal(plan.segmentOf(segments, readers[0]).name, "b");
  assert.deepEqual(segments.map((each) => plan.unreadIn(each, readers).length), [0, 1, 1]);
  assert.equal(plan.kindOf(segment("a", 1, { why: "behind" })), "due");
  assert.deepEqual(plan.stretches({ segments: [segment("a", 100)], oldestMs: null }).map((each) => each.fromMs), [100]);
});

test("a group whose oldest message cannot be read is taken to have read nothing, and its age is unknown", () => {
  const topics = (...ages) => ({ topics: ages.map(([lag, lagMs]) => ({ lag, lagMs })) });
  assert.deepEqual([topics([2, 5], [1, 9]), topics([0, null]), topics([2, 5], [1, null])].map(lags.ageOf), [9, 0, Infinity]);
  assert.deepEqual([lags.ageText(5000), lags.ageText(Infinity)], ["5.0 s", "unknown"]);
  const groups = [{ group: "known", lag: 1, ...topics([1, 10]) }, { group: "unknown", lag: 1, ...topics([1, null]) }];
  const readers = plan.readersOf({ atMs: 1000, groups }, lags.ageOf);
  assert.deepEqual(readers.map((each) => each.group), ["unknown", "known"]);
  assert.deepEqual(plan.unreadIn(segment("a", 1), readers).map((each) => each.group), ["unknown"]);
});

test("delay levels of shards are added up, and the earliest due message counts", () => {
  const level = { level: 3, delay: "10s", queueMin: 0, queueMax: 9, deliveredUpTo: 4, pending: 5, nextDueMs: null, waiting: null };
  const timed = { pending: 1, nextDueMs: 70, waiting: null };
  const answers = new Map([[0, { levels: [level], timed }], [1, { levels: [{ ...level, nextDueMs: 50, waiting: "paused" }], timed: { ...timed, nextDueMs: 60 } }]]);
  assert.deepEqual(levels.mergeLevels(answers), [{ level: 3, delay: "10s", pending: 10, delivered: 8, nextDueMs: 50, waiting: [{ shard: 1, why: "paused" }] }]);
  assert.deepEqual(levels.mergeTimed(answers), { pending: 2, nextDueMs: 60, waiting: [] });
  assert.deepEqual([levels.lateness(null, 9), levels.lateness(5, 9), levels.lateness(12, 9)], [0, 4, 0]);
});

test("settings that differ between shards are found, except those that have to", () => {
  const of = (name, value, source = "default") => ({ name, variable: `MQSTORE_${name}`, value, default: 1, source });
  const merged = settings.mergeSettings(new Map([[0, { settings: [of("b", 1), of("shard", 0)] }], [1, { settings: [of("b", 2, "file"), of("shard", 1)] }]]));
  assert.deepEqual(merged.filter(settings.differs).map((each) => each.name), ["b"]);
  const how = { search: "", only: "" };
  assert.deepEqual(settings.selectSettings(merged, { ...how, only: "differs" }).map((each) => each.name), ["b"]);
  assert.deepEqual(settings.selectSettings(merged, { ...how, search: "mqstore_sh" }).map((each) => each.name), ["shard"]);
  assert.deepEqual([settings.valueText(null), settings.valueText(""), settings.valueText(false)], ["not set", "empty", "false"]);
});

test("findings, repairs and passes of shards are one list", () => {
  const scrub = { position: 150, beganAtMs: 1, checkedBytes: 7, lastPassEndedAtMs: null, findingCount: 1, findings: [{ offset: 9 }], repairCount: 2, tombstoneCount: 1, repairs: [{ repairedAtMs: 1 }, { repairedAtMs: 5 }] };
  const state = { scrub, quarantine: { bytes: 3, entries: [] }, store: { minOffset: 100, flushedOffset: 200 } };
  const answers = new Map([[1, state], [0, { ...state, scrub: { ...scrub, position: null } }]]);
  assert.deepEqual(findings.findingsOf(answers).map((each) => each.shard), [0, 1]);
  assert.deepEqual(findings.repairsOf(answers).map((each) => each.repairedAtMs), [5, 5, 1, 1]);
  const sum = findings.summaryOf(answers);
  assert.deepEqual([sum.findings, sum.repairs, sum.tombstones, sum.quarantined], [2, 4, 2, 6]);
  assert.deepEqual(sum.passes.map((each) => [each.shard, each.isRunning, each.percent]), [[1, true, 50], [0, false, 0]]);
});

test("jobs show what runs first, and how far it is", () => {
  const of = (name, startedMs, endedMs) => ({ name, startedMs, endedMs });
  const found = jobs.operationsOf(new Map([[0, { operations: [of("opening", 1, 2), of("index", 3, 4)] }], [1, { operations: [of("other", 2, null)] }]]));
  assert.deepEqual(found.map((each) => each.name), ["other", "Indexing the log", "Opening the store"]);
  assert.deepEqual([jobs.rebuildPercent({ parts: 0, partsPlanned: 0 }), jobs.rebuildPercent({ parts: 1, partsPlanned: 3 })], [null, 33]);
  assert.equal(jobs.archivedPart({ offset: 150 }, { minOffset: 100, maxOffset: 200 }), 0.5);
  assert.equal(jobs.archivedPart({ offset: 50 }, { minOffset: 100, maxOffset: 200 }), 0);
  assert.equal(jobs.outcomeInWords("lapsed").kind, "bad");
  const sums = [{ isInForce: true, horizonHours: 72 }, { isInForce: false, horizonHours: 1 }, { isInForce: true, horizonHours: 24 }];
  assert.deepEqual(jobs.horizonsOf({ expiring: sums }).map((each) => each.horizonHours), [24, 72]);
});
