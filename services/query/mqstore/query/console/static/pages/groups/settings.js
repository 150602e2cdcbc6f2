// The settings of a group, and its subscriptions with an expression.
import { requestAll } from "../../lib/all.js";
import { path, request } from "../../lib/api.js";
import { count } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { may } from "../../lib/session.js";
import { Card, Facts } from "../../parts/page.js";
import { Empty, Notice, Shown } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { GroupDialog } from "./editor.js";

/** @param {string} group @param {AbortSignal} signal */
async function load(group, signal) {
  const get = (/** @type {string} */ each) => request({ service: "writer", path: each, signal });
  const [found, { subscriptions }] = await Promise.all([
    get(path`/v1/groups/${group}`).catch((error) => {
      if (error.name === "group-unknown") return null;
      throw error;
    }),
    requestAll({ service: "writer", path: path`/v1/groups/${group}/subscriptions`, signal }, "subscriptions"),
  ]);
  return { found, subscriptions };
}

/** @param {{group: string}} props */
export function GroupSettings({ group }) {
  const loaded = useLoad((signal) => load(group, signal), [group]);
  const [isChanging, setChanging] = useState(false);
  const change = may("admin") && html`<button class="button small" onClick=${() => setChanging(true)}>Change settings</button>`;
  return html`<${Shown} of=${loaded}>
    ${(/** @type {any} */ { found, subscriptions }) => html`
      ${found && !found.configured && html`<${Notice} title="This group was not created">It consumes with RocketMQ's defaults, as below.<//>`}
      <div class="grid wide-cells">
        <${Card} title="Settings" aside=${change}>${found ? html`<${Facts} of=${rowsOf(found.config)} />` : html`<${Empty} title="The store does not know this group">It was not created, and has no offset on this shard.<//>`}<//>
        <${Card} title="Subscriptions with an expression">
          ${subscriptions.length === 0 && html`<p class="muted">None. Tags and expressions that are sent with each request are not subscriptions.</p>`}
          ${subscriptions.map((/** @type {any} */ each) => html`<div class="stack" key=${each.topic}>
            <h3>${each.topic}</h3>
            <pre class="code" tabindex="0">${each.expression}</pre>
            <p class="muted small">${each.type}, since <${Time} ms=${each.bornMs} /></p>
          </div>`)}
        <//>
      </div>
      ${isChanging && html`<${GroupDialog} group=${group} config=${found?.config} onClose=${() => setChanging(false)} onDone=${loaded.reload} />`}`}
  <//>`;
}

const yes = (/** @type {boolean} */ value) => (value ? "yes" : "no");

/** @param {any} config @returns {[string, any, any?][]} */
function rowsOf(config) {
  return [
    ["consumeEnable", yes(config.consumeEnable), config.consumeEnable ? undefined : "Consumers get nothing."],
    ["consumeMessageOrderly", yes(config.consumeMessageOrderly)],
    ["retryTimesMax", count(config.retryTimesMax), "Deliveries of a message until it is a dead letter."],
    ["retryQueues", count(config.retryQueues)],
    ["consumeTimeoutMinutes", count(config.consumeTimeoutMinutes)],
    ["consumeFromMinEnable", yes(config.consumeFromMinEnable)],
    ["consumeBroadcastEnable", yes(config.consumeBroadcastEnable)],
    ...Object.entries(config.attributes).map(([name, value]) => /** @type {[string, any]} */ ([name, value])),
  ];
}
