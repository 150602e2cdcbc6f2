// Numbers, times, bytes and metrics of the console.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./browser.mjs";

const format = await load("lib/format.js");
const times = await load("lib/times.js");
const bytes = await load("lib/bytes.js");
const metrics = await load("lib/metrics.js");
const { pointOf, seriesOf } = await load("lib/history.js");
const { isNew } = await load("lib/saved.js");
const { heatOf, strengthOf } = await load("pages/latencies/heat.js");

test("sizes and numbers have three digits, and lengths of time two units", () => {
  assert.equal(format.bytes(0), "0 B");
  assert.equal(format.bytes(1023), "1,023 B");
  assert.equal(format.bytes(1536), "1.50 KiB");
  assert.equal(format.bytes(5 * 2 ** 40), "5 TiB");
  assert.equal(format.compact(12_345), "12.3K");
  assert.equal(format.compact(0.5), "0.50");
  assert.equal(format.duration(0), "0 ms");
  assert.equal(format.duration(59_999), "59 s");
  assert.equal(format.duration(90_061_000), "1 d 1 h");
  assert.equal(format.plural(1, "message"), "1 message");
  assert.equal(format.plural(2000, "message"), "2,000 messages");
});

test("a time is read in each form that it is written in", () => {
  const now = Date.UTC(2026, 10, 27, 12);
  assert.equal(times.parseTime("now", now), now);
  assert.equal(times.parseTime("now-15m", now), now - 900_000);
  assert.equal(times.parseTime("2026-11-27T12:00:00Z"), now);
  assert.equal(times.parseTime("2026-11-27 14:00+02:00"), now);
  assert.equal(times.parseTime(String(now)), now);
  times.zone.value = "utc";
  assert.equal(times.parseTime("2026-11-27 12:00"), now);
  assert.equal(times.formatTime(now + 7), "2026-11-27 12:00:00.007");
  assert.equal(times.parseTime(times.formatTime(now + 7)), now + 7);
  for (const wrong of ["", "yesterday", "now-15", "2026-13-01", "12"]) assert.equal(times.parseTime(wrong), undefined, wrong);
  assert.equal(times.relative(now - 60_000, now), "1 min ago");
  assert.equal(times.relative(now + 60_000, now), "in 1 min");
});

test("JSON is spaced anew and keeps its digits and the order of its names", () => {
  assert.equal(bytes.asJson('{"b":12345678901234567890,"a":[1.0,{}],"c":"x, {y}: \\"z\\""}'), '{\n  "b": 12345678901234567890,\n  "a": [\n    1.0,\n    {}\n  ],\n  "c": "x, {y}: \\"z\\""\n}');
  for (const other of ["", "12", "null", "{", "text"]) assert.equal(bytes.asJson(other), undefined, other);
});

test("bytes are text only if they are UTF-8, and a character that is cut is left out", () => {
  const text = new TextEncoder().encode("zoë");
  assert.equal(bytes.asText(text), "zoë");
  assert.equal(bytes.asText(text.subarray(0, 3)), undefined);
  assert.equal(bytes.asText(text.subarray(0, 3), true), "zo");
  assert.deepEqual([...bytes.fromBase64("AP8=")], [0, 255]);
  assert.equal(bytes.asHex(Uint8Array.from([0, 65, 255])), `00000000  00 41 ff${" ".repeat(40)}  .A.`);
});

const TEXT = `# HELP a text
a{topic="x\\"y",is_system="false"} 3
a{topic="z",is_system="false"} 4.5e1
b_bucket{le="0.1"} 1
b_bucket{le="+Inf"} 2
other 7
`;

test("metrics are read with their labels", () => {
  const found = metrics.parseMetrics(TEXT, new Set(["a", "b_bucket"]));
  assert.equal(metrics.sum(found, "a"), 48);
  assert.equal(metrics.sum(found, "other"), undefined);
  assert.deepEqual(metrics.sumBy(found, "a", "topic"), new Map([['x"y', 3], ["z", 45]]));
});

test("a quantile is that of the values between two readings", () => {
  const before = new Map([["0.1", 5], ["1", 5], ["+Inf", 5]]);
  const after = new Map([["0.1", 5], ["1", 15], ["+Inf", 15]]);
  assert.equal(metrics.quantileOf(metrics.newCounts(before, after), 0.5), 0.55);
  assert.equal(metrics.quantileOf(metrics.newCounts(before, before), 0.5), undefined);
  assert.equal(metrics.quantileOf(metrics.newCounts(new Map(), new Map([["0.1", 0], ["+Inf", 3]])), 0.99), 0.1);
  assert.equal(metrics.quantileOf(new Map(), 0.5), undefined);
});

test("after a restart all values of a histogram are new", () => {
  const before = new Map([["0.1", 50], ["1", 60], ["+Inf", 60]]);
  const after = new Map([["0.1", 2], ["1", 3], ["+Inf", 3]]);
  assert.deepEqual(metrics.newCounts(before, after), new Map([[0.1, 2], [1, 1], [Infinity, 0]]));
  assert.deepEqual(metrics.newCounts(after, new Map()), new Map());
});

test("histograms of shards are added by bucket, also of releases with other buckets", () => {
  const found = metrics.mergeCounts([new Map([[0.1, 1], [Infinity, 2]]), new Map([[0.05, 3], [0.1, 4]])]);
  assert.deepEqual([...found], [[0.05, 3], [0.1, 5], [Infinity, 2]]);
  assert.equal(metrics.totalOf(found), 10);
});

const pointAt = (fromMs, atMs, counts) => ({ fromMs, atMs, counts: { put: new Map([[0, new Map(counts)]]), sync: new Map(), search: new Map() } });

test("a heat map has the rows between the least and the greatest value", () => {
  const all = [pointAt(0, 5, [[0.1, 0], [1, 2], [2, 0], [3, 1], [Infinity, 0]]), pointAt(5, 10, [[1, 3]])];
  const found = heatOf(all, "put", null, 0, 10, 2);
  assert.deepEqual([found.bounds, found.cells, found.greatest], [[1, 2, 3], [[0, 0, 0], [5, 0, 1]], 5]);
  assert.deepEqual(heatOf(all, "put", 0, -10, 10, 4).cells.at(-1), [5, 0, 1]);
  assert.equal(heatOf(all, "put", 7, 0, 10, 2), null);
  assert.equal(heatOf(all, "search", null, 0, 10, 2), null);
  assert.equal(strengthOf(0, 9), 0);
  assert.equal(strengthOf(9, 9).toFixed(9), "1.000000000");
});

test("a plot has a gap where nothing was read for long", () => {
  const all = [pointAt(0, 5000, []), pointAt(5000, 10_000, []), pointAt(600_000, 605_000, [])];
  const { times, series } = seriesOf(all, [(each) => each.atMs]);
  assert.deepEqual(times, [5000, 10_000, 10_001, 605_000]);
  assert.deepEqual(series, [[5000, 10_000, null, 605_000]]);
});

test("what another tab has saved is not saved again", () => {
  assert.equal(isNew(undefined, { fromMs: 0 }), true);
  assert.equal(isNew(5000, { fromMs: 5000 }), true);
  assert.equal(isNew(5000, { fromMs: 2000 }), false);
});

test("a latency is in one unit", () => {
  assert.deepEqual([0.0000254, 0.0025, 0.25, 2.5].map(format.latency), ["25.4 µs", "2.50 ms", "250 ms", "2.50 s"]);
});

const reading = (count) => metrics.parseMetrics(`rocketmq_messages_in_total{topic="t",is_system="false"} ${count}\nmqstore_disk_bytes{kind="used"} 9`, new Set(["rocketmq_messages_in_total", "mqstore_disk_bytes"]));
const sample = (atMs, ...counts) => ({ atMs, shards: new Map(counts.map((count, shard) => [shard, count === null ? {} : { writer: reading(count) }])) });

test("rates are over the shards that replied twice, and a counter may begin anew", () => {
  assert.equal(pointOf(sample(0, 10), sample(5000, 60)).messagesIn, 10);
  assert.equal(pointOf(sample(0, 1000), sample(5000, 50)).messagesIn, 10);
  assert.equal(pointOf(sample(0, 10, 10), sample(5000, 60, null)).messagesIn, 10);
  const unknown = pointOf(sample(0, null), sample(5000, 60));
  assert.equal(unknown.messagesIn, null);
  assert.deepEqual(unknown.diskUsed, new Map([[0, 9]]));
});
