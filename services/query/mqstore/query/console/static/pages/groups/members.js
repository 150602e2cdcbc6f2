// The members of an ordered group, and the queues that they hold.
import { path, request } from "../../lib/api.js";
import { count, plural } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { missingOf, shards } from "../../lib/shards.js";
import { Badge, Card } from "../../parts/page.js";
import { Empty, MissingShards, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";

/** @param {{group: string}} props */
export function Members({ group }) {
  const found = useLoad((signal) => request({ service: "writer", path: path`/v1/groups/${group}/members`, signal }), [group], { everyS: 5 });
  return html`<${Shown} of=${found}>
    ${(/** @type {any} */ { members, shards: replied }) => html`
      <${MissingShards} missing=${missingOf(replied)} />
      ${members.length === 0 &&
      html`<div class="card"><${Empty} title="This group has no members">
        Consumers of a shared group are not members: each may lease any message. An ordered group has members, which hold queues: they join by
        PUT /v1/groups/GROUP/members/MEMBER.
      <//></div>`}
      <div class="grid">${members.map((/** @type {any} */ each) => html`<${Member} key=${each.member} member=${each} />`)}</div>`}
  <//>`;
}

/** @param {{member: any}} props */
function Member({ member }) {
  const leaving = member.leaving.length;
  return html`<${Card} title=${member.member} aside=${html`<span class="muted small">session ends <${Time} ms=${member.sessionExpires} isRelative /></span>`} isPlain>
    ${member.queues.length + leaving === 0 && html`<p class="card-body muted">It holds no queue: there are more members than queues.</p>`}
    ${member.queues.length + leaving > 0 &&
    html`<div class="table-box small-table" tabindex="0" role="region" aria-label=${`Queues of ${member.member}`}>
      <table>
        <thead><tr><th scope="col">Queue</th><th scope="col" class="number">Epoch</th></tr></thead>
        <tbody>
          ${member.queues.map((/** @type {any} */ each) => html`<tr key=${nameOf(each)}><td>${nameOf(each)}</td><td class="number">${count(each.epoch)}</td></tr>`)}
          ${member.leaving.map((/** @type {any} */ each) => html`<tr key=${`leaving ${nameOf(each)}`}><td>${nameOf(each)} <${Badge} kind="warning">leaving<//></td><td></td></tr>`)}
        </tbody>
      </table>
    </div>`}
    <p class="table-foot">${plural(member.queues.length, "queue")}${leaving ? `; ${leaving} go to others once their messages are settled` : ""}</p>
  <//>`;
}

const nameOf = (/** @type {any} */ each) => `${each.topic} ${each.queueId}${shards.value.length > 1 ? `, shard ${each.shard}` : ""}`;
