// The events of all shards' stores, newest first; read again without those that were read.
import { send } from "../../lib/api.js";
import { html, useRef } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { eachShard, shards } from "../../lib/shards.js";
import { Card, Badge } from "../../parts/page.js";
import { Empty, MissingShards, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { eventInWords } from "./words.js";

const KEPT = 200;

/** @typedef {{key: string, shard: number, data: any}} StoreEvent */

/** Parses server-sent events. @param {string} text @returns {{id: string, data: any}[]} */
export function parseEvents(text) {
  return text.split(/\r?\n\r?\n/).flatMap((block) => {
    const fields = Object.fromEntries(block.split(/\r?\n/).map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
    return fields.data ? [{ id: fields.id ?? "", data: JSON.parse(fields.data) }] : [];
  });
}

export function Events() {
  const known = useRef(/** @type {StoreEvent[]} */ ([]));
  const lastIds = useRef(/** @type {Map<number, string>} */ (new Map()));
  const loaded = useLoad(
    async (signal) => {
      const found = await eachShard(async (shard) => {
        const id = lastIds.current.get(shard);
        const headers = id ? { "last-event-id": id } : undefined;
        const response = await send({ service: "writer", path: "/v1/events", params: { seconds: 0, shard }, headers, signal });
        return parseEvents(await response.text());
      });
      for (const [shard, events] of found.answers) {
        for (const { id, data } of events) {
          lastIds.current.set(shard, id);
          if (data.kind !== "gap") known.current.push({ key: `${shard} ${id}`, shard, data });
        }
      }
      known.current = known.current.sort((a, b) => b.data.atMs - a.data.atMs).slice(0, KEPT);
      return { events: [...known.current], missing: found.missing };
    },
    [],
    { everyS: 5 },
  );
  return html`<${Card} title="Events" aside=${html`<span class="muted small">read each 5 s</span>`} isPlain>
    <${Shown} of=${loaded}>
      ${(/** @type {{events: StoreEvent[], missing: Record<string, string>}} */ { events, missing }) => html`
        <${MissingShards} missing=${missing} />
        ${events.length === 0 && html`<${Empty} title="No events yet">The store reports here what happens to it.<//>`}
        <ol class="events" tabindex="0" aria-label="Events, newest first">
          ${events.map(({ key, shard, data }) => {
            const { text, kind } = eventInWords(data);
            return html`<li key=${key}>
              <${Time} ms=${data.atMs} />
              <span>${text}</span>
              ${kind && html`<${Badge} kind=${kind}>${kind === "bad" ? "Serious" : "Look"}<//>`}
              ${shards.value.length > 1 && html`<${Badge}>shard ${shard}<//>`}
            </li>`;
          })}
        </ol>`}
    <//>
  <//>`;
}
