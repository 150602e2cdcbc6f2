// The dead letters of a group: a list that goes on as far as there are more, and what to do with them.
import { path, request } from "../../lib/api.js";
import { count, plural } from "../../lib/format.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { usePages } from "../../lib/paging.js";
import { setState } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { missingOf } from "../../lib/shards.js";
import { parseTime } from "../../lib/times.js";
import { TextField } from "../../parts/form.js";
import { Empty, Failure, MissingShards, Notice, Shown } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Time } from "../../parts/time.js";
import { LetterPanel } from "./letter.js";
import { SettleDialog } from "./settle.js";

/** @typedef {import("./letter.js").Letter} Letter */
/** @typedef {{messages: Letter[], unreadable: any[], next: string | null, shards?: any}} Reply */

const PAGE = 100;
const BODY_MAX = 65_536;

/** The filter of the address, as the API takes it. @param {import("../../lib/router.js").State} state */
export function filterOf({ topic, key, tag, reason, from, to }) {
  const times = { from: from ? parseTime(from) : undefined, to: to ? parseTime(to) : undefined };
  const given = Object.entries({ topic, key, tag, reason, ...times }).filter(([, value]) => value);
  return Object.fromEntries(given.map(([name, value]) => [name, typeof value === "number" ? Math.floor(value) : value]));
}

/** @param {{group: string, state: import("../../lib/router.js").State}} props */
export function DeadLetters({ group, state }) {
  const { topic = "", key = "", tag = "", reason = "", from = "", to = "" } = state;
  const filter = filterOf(state);
  const listed = usePages(
    (cursor, signal) => request({ path: path`/v1/groups/${group}/dead-letters`, params: { ...filter, limit: PAGE, body: "base64", bodyMax: BODY_MAX, inflate: true, cursor }, signal }),
    (/** @type {Reply} */ page) => page.messages,
    [group, topic, key, tag, reason, from, to],
  );
  const isWrong = (/** @type {string} */ text) => (text && parseTime(text) === undefined ? "This is no time." : "");
  return html`<section class="card" aria-label="Filter">
      <div class="filters">
        <${TextField} label="Source topic" value=${topic} onCommit=${(/** @type {string} */ text) => setState({ topic: text })} />
        <${TextField} label="Key" value=${key} onCommit=${(/** @type {string} */ text) => setState({ key: text })} />
        <${TextField} label="Tag" value=${tag} onCommit=${(/** @type {string} */ text) => setState({ tag: text })} />
        <${TextField} label="Reason contains" value=${reason} onCommit=${(/** @type {string} */ text) => setState({ reason: text })} />
        <${TextField} label="Dead from" value=${from} placeholder="now-1d" error=${isWrong(from)} onCommit=${(/** @type {string} */ text) => setState({ from: text })} />
        <${TextField} label="Dead to" value=${to} placeholder="now" error=${isWrong(to)} onCommit=${(/** @type {string} */ text) => setState({ to: text })} />
      </div>
    </section>
    <${Shown} of=${listed.first}>${() => html`<${Letters} group=${group} listed=${listed} filter=${filter} selected=${state.letter} />`}<//>`;
}

/** @param {{group: string, listed: import("../../lib/paging.js").Pages<Reply, Letter>, filter: Record<string, any>, selected?: string}} props */
function Letters({ group, listed, filter, selected }) {
  const [picked, setPicked] = useState(/** @type {Set<string>} */ (new Set()));
  const [action, setAction] = useState(/** @type {{kind: "resend" | "purge", ids?: string[]} | null} */ (null));
  useEffect(() => setPicked(new Set()), [listed.first.data]);
  const { unreadable, shards } = /** @type {Reply} */ (listed.first.data);
  const missing = missingOf(shards);
  const hasFilter = Object.keys(filter).length > 0;
  if (listed.rows.length === 0) {
    return html`<${MissingShards} missing=${missing} />
      <div class="card"><${Empty} title=${hasFilter ? "No dead letter matches" : "This group has no dead letters"}>
        ${hasFilter ? "Change or empty the filter." : "A message becomes one after its last retry, or when a consumer rejects it."}
      <//></div>`;
  }
  const opened = listed.rows.find((each) => each.offsetMsgId === selected);
  const pick = (/** @type {string} */ id) => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    setPicked(next);
  };
  const ids = [...picked];
  const which = ids.length ? `${ids.length} picked` : hasFilter ? "all that match" : "all";
  const begin = (/** @type {"resend" | "purge"} */ kind) => () => setAction({ kind, ids: ids.length ? ids : undefined });
  return html`<${MissingShards} missing=${missing} />
    ${unreadable.length > 0 && html`<${Notice} kind="warning" title=${`${plural(unreadable.length, "dead letter")} cannot be read`}>Their records are damaged. The page Scrub and repair has them.<//>`}
    ${may("admin") &&
    html`<div class="row">
      <button class="button" onClick=${begin("resend")}>Resend ${which}</button>
      <button class="button" onClick=${begin("purge")}>Purge ${which}</button>
      ${ids.length > 0 && html`<button class="button quiet" onClick=${() => setPicked(new Set())}>Pick none</button>`}
    </div>`}
    <div class="split ${opened ? "is-open" : ""}">
      <section class="card" aria-label="Dead letters">
        <${Table}
          label=${`Dead letters of ${group}`}
          rows=${listed.rows}
          columns=${columnsOf(may("admin"), picked, pick)}
          keyOf=${(/** @type {Letter} */ each) => each.offsetMsgId}
          selected=${selected}
          onSelect=${(/** @type {Letter} */ each) => setState({ letter: each.offsetMsgId }, { isStep: true })}
          onEnd=${listed.loadNext}
          isPartial=${listed.hasMore}
          width=${760}
        />
        ${listed.problem && html`<${Failure} error=${listed.problem} retry=${listed.retry} />`}
        <p class="table-foot" role="status">${count(listed.rows.length)} shown${listed.hasMore ? "; more are loaded as you scroll" : Object.keys(missing).length ? "" : "; that is all"}</p>
      </section>
      ${opened && html`<${LetterPanel} key=${selected} letter=${opened} onAct=${(/** @type {"resend" | "purge"} */ kind) => setAction({ kind, ids: [opened.offsetMsgId] })} />`}
    </div>
    ${action && html`<${SettleDialog} group=${group} kind=${action.kind} ids=${action.ids} filter=${filter} onClose=${() => setAction(null)} onDone=${listed.first.reload} />`}`;
}

/** @param {boolean} canPick @param {Set<string>} picked @param {(id: string) => void} pick */
function columnsOf(canPick, picked, pick) {
  const box = (/** @type {Letter} */ each) => html`<input type="checkbox" aria-label=${`Pick ${each.offsetMsgId}`} checked=${picked.has(each.offsetMsgId)} onChange=${() => pick(each.offsetMsgId)} />`;
  const all = /** @type {import("../../parts/table.js").Column<Letter>[]} */ ([
    { name: "Dead since", width: "200px", cell: (each) => html`<${Time} ms=${each.deadSince} />` },
    { name: "Source topic", cell: (each) => each.sourceTopic ?? html`<span class="muted">sent to it</span>`, title: (each) => each.sourceTopic ?? undefined },
    { name: "Reason", width: "28%", cell: (each) => each.reason || html`<span class="muted">–</span>`, title: (each) => each.reason ?? undefined },
    { name: "Deliveries", isNumber: true, width: "88px", cell: (each) => count(each.deliveryAttempts) },
    { name: "Keys", cell: (each) => each.keys.join(" ") || html`<span class="muted">–</span>`, title: (each) => each.keys.join(" ") },
  ]);
  return canPick ? all.toSpliced(1, 0, { name: "Pick", width: "56px", cell: box }) : all;
}
