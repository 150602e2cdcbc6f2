// Bytes as text, JSON and hexadecimal digits.

/** @param {string} text in base64 @returns {Uint8Array} */
export function fromBase64(text) {
  const binary = atob(text);
  return Uint8Array.from(binary, (each) => each.charCodeAt(0));
}

/** The text that bytes are in UTF-8; undefined for others. A character that is cut at the end is left out if `isCut`.
 * @param {Uint8Array} bytes @param {boolean} [isCut]
 */
export function asText(bytes, isCut = false) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: isCut });
  } catch {
    return undefined;
  }
}

/** The same JSON on lines of its own; undefined for a text that is none. Numbers keep their digits,
 * and names their order: the text is only spaced anew.
 * @param {string} text
 */
export function asJson(text) {
  try {
    const value = JSON.parse(text);
    if (value === null || typeof value !== "object") return undefined;
  } catch {
    return undefined;
  }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  let shown = "";
  tokens.forEach((token, i) => {
    const next = tokens[i + 1];
    if (token === "{" || token === "[") {
      const isEmpty = next === "}" || next === "]";
      depth += 1;
      shown += isEmpty ? token : `${token}\n${"  ".repeat(depth)}`;
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const before = tokens[i - 1];
      shown += before === "{" || before === "[" ? token : `\n${"  ".repeat(depth)}${token}`;
    } else if (token === ",") shown += `,\n${"  ".repeat(depth)}`;
    else shown += token === ":" ? ": " : token;
  });
  return shown;
}

/** A dump with offsets, sixteen bytes a line. @param {Uint8Array} bytes */
export function asHex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const line = [...bytes.subarray(at, at + 16)];
    const digits = line.map((each) => each.toString(16).padStart(2, "0"));
    const text = line.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "."));
    const halves = `${digits.slice(0, 8).join(" ").padEnd(23)}  ${digits.slice(8).join(" ").padEnd(23)}`;
    lines.push(`${at.toString(16).padStart(8, "0")}  ${halves}  ${text.join("")}`);
  }
  return lines.join("\n");
}
