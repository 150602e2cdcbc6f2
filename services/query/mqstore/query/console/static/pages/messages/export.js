// A result as a file: read to its end with whole bodies, as JSON lines or CSV.

/** @typedef {import("./readers.js").Message} Message */
/** @typedef {"jsonl" | "csv"} Format */

const COLUMNS = ["topic", "shard", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "offsetMsgId", "uniqKey", "keys", "tags", "properties", "body", "bodyBase64"];

/** A cell of CSV: nothing for a missing value, and an empty text in quotes. A text that a spreadsheet would take for a formula begins with an apostrophe.
 * @param {unknown} value
 */
export function csvCell(value) {
  if (value === null || value === undefined) return "";
  const text = Array.isArray(value) ? value.join(" ") : typeof value === "object" ? JSON.stringify(value) : String(value);
  const isFormula = typeof value !== "number" && /^\s*[=+\-@\t\r]./s.test(text);
  const safe = isFormula ? `'${text}` : text;
  return safe === "" || /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** JSON in one line, also for programs that end lines at the separators of Unicode.
 * @param {unknown} value
 */
const jsonLine = (value) => JSON.stringify(value).replace(/[\u0085\u2028\u2029]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** @param {Message[]} messages @param {Format} format */
export const linesOf = (messages, format) =>
  messages.map((each) => (format === "csv" ? COLUMNS.map((name) => csvCell(each[name])).join(",") : jsonLine(each)) + "\n").join("");

/** Reads all messages of a reader into a file.
 * @param {import("./readers.js").Reader} reader @param {Format} format
 * @param {AbortSignal} signal when it is aborted, the file has what was read until then
 * @param {(count: number) => void} onProgress
 * @returns {Promise<{file: Blob, count: number, isComplete: boolean}>}
 */
export async function exportAll(reader, format, signal, onProgress) {
  const parts = format === "csv" ? [`${COLUMNS.join(",")}\n`] : [];
  let count = 0;
  let isComplete = false;
  while (!signal.aborted) {
    let part;
    try {
      part = await reader.next(signal);
    } catch (error) {
      if (signal.aborted) break;
      throw error;
    }
    parts.push(linesOf(part.messages, format));
    count += part.messages.length;
    onProgress(count);
    if (part.isDone) {
      isComplete = part.isComplete && !part.unreadable.length;
      break;
    }
  }
  const type = format === "csv" ? "text/csv" : "application/x-ndjson";
  return { file: new Blob(parts, { type: `${type};charset=utf-8` }), count, isComplete };
}

/** @param {Blob} file @param {string} name */
export function saveFile(file, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
