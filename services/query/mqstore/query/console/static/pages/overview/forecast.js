// When a volume reaches a ratio, if it grows as it did while the console watched it.

/** Growth in bytes a second: the slope of the least squares. Undefined for fewer than three values,
 * or for less than half a minute.
 * @param {{atMs: number, used: number}[]} values
 */
export function growthOf(values) {
  const first = values[0];
  const last = values.at(-1);
  if (!first || !last || values.length < 3 || last.atMs - first.atMs < 30_000) return undefined;
  const seconds = values.map((each) => (each.atMs - first.atMs) / 1000);
  const meanX = seconds.reduce((a, b) => a + b, 0) / values.length;
  const meanY = values.reduce((a, b) => a + b.used - first.used, 0) / values.length;
  let [above, below] = [0, 0];
  values.forEach((each, i) => {
    const x = /** @type {number} */ (seconds[i]) - meanX;
    above += x * (each.used - first.used - meanY);
    below += x * x;
  });
  return above / below;
}

/** Milliseconds until a volume holds a part of its bytes: 0 if it does, Infinity if it does not
 * grow, undefined while its growth is not known.
 * @param {number} used @param {number} total @param {number} percent @param {number | undefined} growth
 */
export function timeUntil(used, total, percent, growth) {
  const missing = (total * percent) / 100 - used;
  if (missing <= 0) return 0;
  if (growth === undefined) return undefined;
  return growth <= 0 ? Infinity : (1000 * missing) / growth;
}
