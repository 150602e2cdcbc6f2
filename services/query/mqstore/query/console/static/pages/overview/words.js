// The recovery report and the events of a store, in words.
import { bytes, count, duration, plural } from "../../lib/format.js";

const PATHS = /** @type {Record<string, string>} */ ({
  normal: "The store had been closed cleanly",
  abnormal: "The store had not been closed cleanly",
});

/** What the last opening found and did. @param {any} report @returns {string[]} */
export function recoveryInWords(report) {
  const { plan } = report;
  const cut = plan.actions.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + (each.length ?? 0), 0);
  const found = [
    plan.startReason === "new store"
      ? "A new store was made."
      : `${PATHS[plan.path] ?? `Recovery (${plan.path})`}: ${plural(plan.records, "record")} of ${bytes(plan.scannedBytes)} read again in ${duration(report.durationMs)}.`,
  ];
  if (plan.damagedCount) found.push(`${plural(plan.damagedCount, "range is", "ranges are")} damaged.`);
  if (report.quarantined.length) found.push(`${plural(report.quarantined.length, "piece")}${cut ? ` (${bytes(cut)})` : ""} went to quarantine.`);
  if (report.loweredOffsetCount) found.push(`${plural(report.loweredOffsetCount, "offset")} of groups behind the end ${report.loweredOffsetCount === 1 ? "was" : "were"} lowered.`);
  if (plan.loss) found.push("Durable data is missing.");
  if (report.acceptedLoss) found.push("A loss was accepted by an operator.");
  if (plan.readOnly) found.push(`The store is read-only: ${plan.readOnly}.`);
  if (found.length === 1 && plan.startReason !== "new store") found.push("Nothing was lost, and nothing was cut.");
  return found;
}

const KINDS = /** @type {Record<string, (data: any) => string>} */ ({
  opening: () => "The store is being opened",
  opened: (e) => `The store is open, after ${duration(e.durationMs)}${e.readOnly ? `; read-only: ${e.readOnly}` : ""}`,
  topic: (e) => `Topic ${e.topic} was ${e.isDeleted ? "deleted" : "created or changed"}`,
  deleted: () => "Segments were deleted by retention",
  disk: (e) => `The volume is ${e.abovePercent ? `above ${e.abovePercent} %` : "below the first ratio again"} (${e.usedPercent} % used)`,
  puts: (e) => (e.refused ? `Messages are refused: ${e.detail ?? e.reason ?? ""}` : "Messages are accepted again"),
  "read-only": (e) => (e.reason ? `The store is read-only: ${e.reason}` : "The store is writable again"),
  writes: (e) => (e.paused ? `Writes are paused: ${e.reason || "no reason given"}` : "Writes go on"),
  "data-missing": (e) => `Durable data is missing: ${bytes(e.missingBytes ?? 0)}`,
  damaged: (e) => `${count(e.stretches ?? e.count ?? 0)} damaged ranges were met`,
  "offsets-lowered": (e) => `${count(e.count)} offsets of groups were lowered`,
  "clock-step": (e) => `The clock stepped by ${duration(Math.abs(e.stepMs))} ${e.stepMs < 0 ? "backwards" : "forwards"}`,
  index: (e) => `Indexing: ${bytes(e.done)} of ${bytes(e.total)}`,
  "index-trouble": (e) => (e.reason ? `Keys may be missed: ${e.reason}` : "The index is complete again"),
  "index-rebuild": (e) => `An index rebuild began (${e.owner})`,
  "index-rebuilt": (e) => `The index was rebuilt in ${duration(1000 * e.seconds)}`,
  "index-rebuild-ended": (e) => `An index rebuild ended: ${e.outcome}`,
  "scrub-findings": (e) => `${count(e.findings)} damaged places are not repaired`,
  "log-repaired": () => "Damaged places of the log were repaired",
  "forced-deletion": () => "A segment was deleted before its time: the volume is full",
  "space-not-freed": (e) => `${bytes(e.bytes)} of deleted files are kept open by another process`,
  expiry: (e) => `${count(e.messages)} unread messages will expire (${e.group}, ${e.topic})`,
  backup: (e) => (e.isWhole ? `A backup was ${e.action === "verify" ? "verified" : "created"}` : `A backup ${e.action === "verify" ? "failed its verification" : "failed"}: ${e.error}`),
  replica: (e) => `Replica ${e.replica}: ${e.change}`,
  replication: (e) => `Replication is ${e.state}${e.reason ? `: ${e.reason}` : ""}`,
  promoted: () => "This replica leads the shard now",
  failed: () => "The disk failed; the process ends",
});

const BAD = new Set(["data-missing", "failed", "damaged", "scrub-findings", "forced-deletion", "log-diverged", "closing-damaged"]);
const WARNING = new Set(["read-only", "puts", "disk", "clock-step", "index-trouble", "offsets-lowered", "expiry", "space-not-freed", "writes"]);

/** @param {any} data the data of an event @returns {{text: string, kind: "" | "bad" | "warning"}} */
export function eventInWords(data) {
  const text = KINDS[data.kind]?.(data) ?? `Event ${data.kind}`;
  const isOver = /again|go on/.test(text);
  if (data.kind === "backup") return { text, kind: data.isWhole ? "" : "bad" };
  return { text, kind: isOver ? "" : BAD.has(data.kind) ? "bad" : WARNING.has(data.kind) ? "warning" : "" };
}
