// What the pages of the console compute.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./browser.mjs";

const api = await load("lib/api.js");
const forecast = await load("pages/overview/forecast.js");
const words = await load("pages/overview/words.js");
const { parseEvents } = await load("pages/overview/events.js");
const list = await load("pages/topics/list.js");
const readers = await load("pages/messages/readers.js");
const search = await load("pages/messages/search.js");
const exported = await load("pages/messages/export.js");
const history = await load("pages/trace/history.js");
const message = await load("pages/send/message.js");

test("values in paths and commands are quoted", () => {
  assert.equal(api.path`/v1/topics/${"%RETRY%a/b"}/queues/${3}`, "/v1/topics/%25RETRY%25a%2Fb/queues/3");
  const command = api.curlOf({ service: "writer", method: "PUT", path: "/v1/topics/t", body: { text: "it's; $(rm)" } });
  assert.match(command, /-d '\{"text":"it'\\''s; \$\(rm\)"\}'/);
  assert.match(command, /\/writer\/v1\/topics\/t'$/);
});

test("a volume is full when its growth has filled it", () => {
  const grows = [0, 10_000, 20_000, 30_000].map((atMs) => ({ atMs, used: 1000 + atMs / 100 }));
  assert.equal(Math.round(forecast.growthOf(grows)), 10);
  assert.equal(forecast.growthOf(grows.slice(0, 2)), undefined);
  assert.equal(forecast.timeUntil(500, 1000, 75, 10), 25_000);
  assert.equal(forecast.timeUntil(800, 1000, 75, 10), 0);
  assert.equal(forecast.timeUntil(500, 1000, 75, -1), Infinity);
  assert.equal(forecast.timeUntil(500, 1000, 75, undefined), undefined);
});

test("a recovery is described from its report", () => {
  const plan = { path: "abnormal", startReason: "x", records: 3, scannedBytes: 300, damagedCount: 1, actions: [{ length: 40 }], readOnly: null, loss: null };
  const report = { plan, quarantined: ["a"], durationMs: 12, loweredOffsetCount: 0, acceptedLoss: null };
  assert.deepEqual(words.recoveryInWords(report), ["The store had not been closed cleanly: 3 records of 300 B read again in 12 ms.", "1 range is damaged.", "1 piece (40 B) went to quarantine."]);
  assert.deepEqual(words.eventInWords({ kind: "none-known" }), { text: "Event none-known", kind: "" });
  assert.equal(words.eventInWords({ kind: "read-only", reason: "why" }).kind, "warning");
  assert.equal(words.eventInWords({ kind: "read-only", reason: null }).kind, "");
});

test("events are parsed, and comments are not events", () => {
  assert.deepEqual(parseEvents('retry: 1000\n\nid: a-1\nevent: topic\ndata: {"kind":"topic","topic":"a: b"}\n\n: beat\n\n'), [{ id: "a-1", data: { kind: "topic", topic: "a: b" } }]);
});

test("topics of shards are one list, which names what differs", () => {
  const topic = (name, queues) => ({ topic: name, readQueues: queues, writeQueues: queues, perm: 6, order: false });
  const merged = list.mergeTopics(new Map([[0, { topics: [topic("b", 4), topic("a", 4)] }], [1, { topics: [topic("b", 8)] }]]));
  assert.deepEqual(merged.map(({ topic: name, absent, differs }) => [name, absent, differs]), [["a", [1], false], ["b", [], true]]);
  const how = { search: "", withSystem: false, sort: "-in", rates: { in: new Map([["b", 5]]), out: new Map() } };
  assert.deepEqual(list.selectTopics(merged, how).map((each) => each.topic), ["b", "a"]);
  assert.deepEqual(list.selectTopics([topic("%RETRY%g", 1)], how), []);
});

const queue = (next, end, ...timestamps) => ({ range: { shard: 0, queueId: 0, next, end }, buffer: timestamps.map((storeTimestamp) => ({ storeTimestamp })) });

test("queues are merged by time, as far as none can have an older message", () => {
  const stamps = (queues, limit = 10) => readers.mergeOldest(queues, limit).map((each) => each.storeTimestamp);
  assert.deepEqual(stamps([queue(2, 9, 1, 5), queue(2, 9, 2, 3)]), [1, 2, 3]);
  assert.deepEqual(stamps([queue(9, 9, 1, 5), queue(9, 9, 2, 3)]), [1, 2, 3, 5]);
  assert.deepEqual(stamps([queue(2, 9, 1, 5), queue(2, 9)]), []);
  assert.deepEqual(stamps([queue(9, 9, 1, 2, 3)], 2), [1, 2]);
});

test("a state that cannot be searched says what is wrong", () => {
  assert.deepEqual(search.errorsOf({ topic: "t" }), {});
  assert.ok(search.errorsOf({}).topic);
  assert.ok(search.errorsOf({ by: "id" }).id);
  assert.ok(search.errorsOf({ topic: "t", from: "soon" }).from);
  assert.ok(search.errorsOf({ topic: "t", from: "now-1h", to: "now-2h" }).to);
  assert.equal(search.byOf({ key: "k" }), "key");
  assert.equal(search.byOf({ queue: "0" }), "queue");
});

test("no cell of CSV is a formula", () => {
  for (const text of ["=1+1", "+1", "-1", "@x", " =1", "\t=1"]) assert.match(exported.csvCell(text), /^"?'/, text);
  assert.equal(exported.csvCell(-1), "-1");
  for (const text of ["-", "a=1"]) assert.equal(exported.csvCell(text), text);
  assert.equal(exported.csvCell(""), '""');
  assert.equal(exported.csvCell(null), "");
  assert.equal(exported.csvCell('a,"b"\n'), '"a,""b""\n"');
  assert.equal(exported.csvCell({ a: "=1" }), '"{""a"":""=1""}"');
  assert.equal(exported.linesOf([{ topic: "t", body: "=x" }], "csv"), "t,,,,,,,,,,,'=x,\n");
});

test("a line of JSON has no character that ends a line in other programs", () => {
  const message = { topic: "t", body: "a\u2028b\u2029c\u0085d\n" };
  const text = exported.linesOf([message], "jsonl");
  assert.equal(text, '{"topic":"t","body":"a\\u2028b\\u2029c\\u0085d\\n"}\n');
  assert.deepEqual(JSON.parse(text), message);
});

test("an export ends with what was read when it is stopped", async () => {
  const ending = new AbortController();
  const reader = { next: async () => ({ messages: [{ topic: "t" }], unreadable: [], isDone: false, isComplete: false, missing: {} }) };
  const found = await exported.exportAll(reader, "jsonl", ending.signal, (read) => read === 3 && ending.abort());
  assert.deepEqual([found.count, found.isComplete, await found.file.text()], [3, false, '{"topic":"t"}\n'.repeat(3)]);
});

test("the history of a message is in the order of time", () => {
  const copy = (kind, storeTimestamp, more) => ({ kind, state: "stored", why: "", storeTimestamp, topic: "t", groups: [], reconsumeTimes: 0, ...more });
  const trace = { bornTimestamp: 5, bornHost: "h", copies: [copy("retry", 30, { group: "g" }), copy("message", 10, { groups: [{ group: "g", consumed: true }] })] };
  assert.deepEqual(history.stepsOf(trace).map(({ title, after }) => [title, after]), [["Sent by its producer", ""], ["Stored in t", "5 ms later"], ["In the retry topic of group g", "20 ms later"]]);
  assert.deepEqual(history.standsOf(trace), [{ group: "g", isConsumed: true, topic: "t" }]);
});

test("a message is made of the fields, and wrong fields are named", () => {
  const fields = { topic: "t", form: "text", body: "x", keys: " a  b ", properties: "region=eu\nurl=a=b\n", delay: "1.5" };
  assert.deepEqual(message.errorsOf(fields), {});
  assert.deepEqual(message.messageOf(fields), { body: "x", keys: ["a", "b"], properties: { region: "eu", url: "a=b" }, delayS: 1.5 });
  assert.deepEqual(message.messageOf({ topic: "t", form: "base64", body: "AP8=\n" }), { bodyBase64: "AP8=" });
  const wrong = message.errorsOf({ form: "json", body: "{", properties: "nothing", delay: "soon" });
  assert.deepEqual(Object.keys(wrong).sort(), ["body", "delay", "properties", "topic"]);
  assert.ok(message.errorsOf({ topic: "t", form: "base64", body: "A" }).body);
  assert.ok(message.errorsOf({ topic: "t", form: "text", body: "ë".repeat(40_000) }).body);
});

test("a change of a group sends what differs, and says what it does", async () => {
  const { changesOf, countError, DEFAULTS, differing, nameError } = await load("pages/groups/changes.js");
  const after = { ...DEFAULTS, consumeEnable: false, retryTimesMax: 3 };
  assert.deepEqual(differing(DEFAULTS, after), { consumeEnable: false, retryTimesMax: 3 });
  const [consume, retries] = changesOf(DEFAULTS, after);
  assert.deepEqual([consume.before, consume.after], ["yes", "no"]);
  assert.match(retries.why, /after 3 retries/);
  assert.deepEqual(["0", " 16 ", "2147483647"].map(countError), ["", "", ""]);
  for (const wrong of ["", "-1", "1.5", "1e3", "2147483648", "٣", "x"]) assert.notEqual(countError(wrong), "", wrong);
  assert.equal(nameError("a-group_1"), "");
  for (const wrong of ["", "a b", "<img>", "grüße", "x".repeat(121)]) assert.notEqual(nameError(wrong), "", wrong);
});

test("a load that takes long is repeated less often", async () => {
  const { pauseMs } = await load("lib/load.js");
  assert.equal(pauseMs(10, 200), 10_000);
  assert.equal(pauseMs(10, 3000), 30_000);
});

test("a search of a queue begins with numbers only", () => {
  const queue = { by: "queue", topic: "t", queue: "0" };
  assert.deepEqual(search.errorsOf(queue), {});
  assert.deepEqual(search.errorsOf({ ...queue, offset: "7", shard: "0" }), {});
  for (const offset of ["abc", "-5", "1e3", "1.5", "99999999999999999999"]) assert.deepEqual(Object.keys(search.errorsOf({ ...queue, offset })), ["offset"], offset);
  for (const shard of ["7", "abc", "-1"]) assert.deepEqual(Object.keys(search.errorsOf({ ...queue, shard })), ["shard"], shard);
});
