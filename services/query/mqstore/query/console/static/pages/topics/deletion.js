// Deletes a topic, after it has shown what goes.
import { path, request } from "../../lib/api.js";
import { count, plural } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { setState } from "../../lib/router.js";
import { missingOf } from "../../lib/shards.js";
import { announce } from "../../parts/announce.js";
import { Dialog } from "../../parts/dialog.js";
import { TextField } from "../../parts/form.js";
import { Facts } from "../../parts/page.js";
import { Failure, MissingShards, Notice, Shown } from "../../parts/states.js";

/** @param {{topic: string, onClose: () => void, onDone: () => void}} props */
export function DeletionDialog({ topic, onClose, onDone }) {
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const send = (/** @type {boolean} */ dryRun) => request({ service: "writer", method: "DELETE", path: path`/v1/topics/${topic}`, params: { dryRun } });
  const plan = useLoad(() => send(true), [topic]);
  const remove = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const done = await send(false);
      const left = Object.keys(missingOf(done.shards));
      announce(`Topic ${topic} was deleted${left.length ? `, but not on shard ${left.join(", ")}` : ""}`);
      setState({ topic: "" });
      onDone();
      onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title=${`Delete ${topic}`} onClose=${onClose}>
    <${Shown} of=${plan}>
      ${(/** @type {any} */ found) => html`<form class="stack" onSubmit=${remove}>
        ${problem && html`<${Failure} error=${problem} />`}
        <${MissingShards} missing=${missingOf(found.shards)} />
        <${Facts}
          of=${[
            ["Messages", count(found.messages), "No group will get them. They stay in the log, and are found by id and key, until they expire."],
            ["Queues", count(found.queues), "If the topic is created again, their offsets continue."],
            ["Groups", found.groups.length ? found.groups.join(", ") : "none", found.groups.length ? "Their offsets in this topic go." : undefined],
          ]}
        />
        <${Notice} kind="warning" title=${`${plural(found.messages, "message")} can no longer be consumed`}>This cannot be undone.<//>
        <${TextField} label="Type the name of the topic" value=${typed} onChange=${setTyped} help=${topic} />
        <footer>
          <button type="button" class="button" onClick=${onClose}>Cancel</button>
          <button class="button danger" disabled=${typed !== topic}>Delete topic</button>
        </footer>
      </form>`}
    <//>
  <//>`;
}
