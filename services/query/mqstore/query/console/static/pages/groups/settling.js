// Resends or purges dead letters in steps, as far as the API's cursor goes.

const STEP = 500;

/** @typedef {{done: number, settled: number, unknown: number, refused: number, unreachable: number, details: string[], missing: Record<string, string>}} Outcome */

/** Sends steps until there is no more. Throws what `send` throws.
 * @param {(body: object, cursor: string | null) => Promise<any>} send
 * @param {{ids?: string[], filter: object, to?: string, dryRun: boolean}} wanted
 * @param {(outcome: Outcome) => void} onStep
 * @param {() => boolean} isStopped
 * @returns {Promise<Outcome>}
 */
export async function settle(send, { ids, filter, to, dryRun }, onStep, isStopped) {
  const selection = ids ? { ids } : { filter, max: STEP };
  const body = { ...selection, ...(to ? { to } : {}), dryRun };
  /** @type {Outcome} */
  let outcome = { done: 0, settled: 0, unknown: 0, refused: 0, unreachable: 0, details: [], missing: {} };
  let cursor = null;
  do {
    const reply = await send(body, cursor);
    outcome = added(outcome, reply);
    onStep(outcome);
    cursor = reply.next;
  } while (cursor && !isStopped());
  return outcome;
}

/** @param {Outcome} outcome @param {any} reply @returns {Outcome} */
function added(outcome, reply) {
  const next = { ...outcome, details: [...outcome.details], missing: { ...outcome.missing, ...(reply.shards?.why ?? {}) } };
  for (const { status, detail } of reply.results) {
    if (status in next) next[/** @type {"done"} */ (status)] += 1;
    if (detail && !next.details.includes(detail) && next.details.length < 5) next.details.push(detail);
  }
  return next;
}
