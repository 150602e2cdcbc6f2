// Messages that are delivered later: by level, and by time.
import { request } from "../../lib/api.js";
import { count, duration } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href, setState } from "../../lib/router.js";
import { eachShard, shards } from "../../lib/shards.js";
import { Badge, Card, Page, Tile } from "../../parts/page.js";
import { Empty, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { earliest, lateness, mergeLevels, mergeTimed } from "./levels.js";

/** @typedef {import("./levels.js").Level} Level */

/** Above this a delivery is late: each level is looked at once a second. */
const LATE_MS = 3000;

const load = (/** @type {AbortSignal} */ signal) => eachShard((shard) => request({ service: "writer", path: "/v1/store/delays", params: { shard }, signal }));

/** @param {{state: import("../../lib/router.js").State}} props */
export default function Delayed({ state }) {
  const delays = useLoad(load, [], { everyS: 5 });
  return html`<${Page} title="Delayed" actions=${html`<a class="button" href=${href("messages", { topic: "SCHEDULE_TOPIC_XXXX" })}>Messages by level</a>`}>
    <${Shown} of=${delays} lines=${8}>
      ${(/** @type {import("../../lib/shards.js").OfShards<any>} */ { answers, missing }) => html`
        <${MissingShards} missing=${missing} />
        <${Figures} levels=${mergeLevels(answers)} timed=${mergeTimed(answers)} />
        <${Levels} levels=${mergeLevels(answers)} isAll=${state.all === "1"} />`}
    <//>
  <//>`;
}

/** @param {{levels: Level[], timed: ReturnType<typeof mergeTimed>}} props */
function Figures({ levels, timed }) {
  const now = Date.now();
  const pending = levels.reduce((sum, each) => sum + each.pending, 0);
  const next = levels.reduce((first, each) => earliest(first, each.nextDueMs), timed.nextDueMs);
  const late = [...levels, timed].filter((each) => lateness(each.nextDueMs, now) > LATE_MS);
  const stopped = [...levels.map((each) => ({ ...each, name: `Level ${each.level}` })), { ...timed, name: "Messages with a time" }].filter((each) => each.waiting.length);
  return html`${stopped.map(
      (each) => html`<${Notice} key=${each.name} kind="bad" title=${`${each.name}: messages that are due are not delivered`}>
        <ul>${each.waiting.map(({ shard, why }) => html`<li key=${shard}>${shards.value.length > 1 ? `Shard ${shard}: ` : ""}${why}</li>`)}</ul>
      <//>`,
    )}
    <div class="tiles">
      <${Tile} label="By level" value=${count(pending)} note="messages wait in delay levels" />
      <${Tile} label="By time" value=${count(timed.pending)} note="wait for their own time" />
      <${Tile} label="Next due" value=${next === null ? "–" : html`<${Time} ms=${next} isRelative />`} note=${next === null ? "nothing waits" : html`<${Time} ms=${next} />`} />
      <${Tile} label="Next with a time" value=${timed.nextDueMs === null ? "–" : html`<${Time} ms=${timed.nextDueMs} isRelative />`} note="deliverAt or delayS" />
      <${Tile} label="Late" value=${late.length ? duration(Math.max(...late.map((each) => lateness(each.nextDueMs, now)))) : "no"} note=${late.length ? `in ${late.length} of the lists` : "everything is on time"} />
    </div>`;
}

/** @param {{levels: Level[], isAll: boolean}} props */
function Levels({ levels, isAll }) {
  const busy = levels.filter((each) => each.pending > 0 || each.waiting.length > 0);
  const shown = isAll ? levels : busy;
  const most = Math.max(1, ...levels.map((each) => each.pending));
  const toggle = html`<label class="check small"><input type="checkbox" checked=${isAll} onChange=${(/** @type {any} */ event) => setState({ all: event.currentTarget.checked ? "1" : "" })} />Levels without messages</label>`;
  return html`<${Card} title="Delay levels" aside=${toggle} isPlain>
    ${shown.length === 0
      ? html`<${Empty} title="No message waits in a delay level">Messages that are sent with a delay level, and those that a consumer returns, wait here.<//>`
      : html`<div class="table-box levels" tabindex="0" role="region" aria-label="Delay levels">
          <table>
            <thead>
              <tr><th scope="col">Delay</th><th scope="col" class="number">Waiting</th><th scope="col" class="wide"><span class="visually-hidden">Share</span></th><th scope="col">Next due</th><th scope="col" class="number">Delivered</th></tr>
            </thead>
            <tbody>${shown.map((each) => html`<${Row} key=${each.level} level=${each} most=${most} />`)}</tbody>
          </table>
        </div>`}
    <p class="table-foot">${count(busy.length)} of ${count(levels.length)} levels have messages. Delivered: of those that the log still has.</p>
  <//>`;
}

/** @param {{level: Level, most: number}} props */
function Row({ level, most }) {
  const late = lateness(level.nextDueMs, Date.now());
  return html`<tr>
    <td><strong>${level.delay}</strong> <span class="muted">level ${level.level}</span></td>
    <td class="number">${level.pending ? html`<strong>${count(level.pending)}</strong>` : html`<span class="muted">0</span>`}</td>
    <td><div class="meter plain" aria-hidden="true"><i style=${{ width: `${(100 * level.pending) / most}%` }}></i></div></td>
    <td>
      <${Time} ms=${level.nextDueMs} none="nothing waits" />
      ${level.waiting.length > 0 ? html` <${Badge} kind="bad">stopped<//>` : late > LATE_MS && html` <${Badge} kind="warning">${duration(late)} late<//>`}
    </td>
    <td class="number">${count(level.delivered)}</td>
  </tr>`;
}
