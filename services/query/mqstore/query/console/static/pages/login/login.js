import { UI } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { ended, keepToken } from "../../lib/session.js";
import { TextField } from "../../parts/form.js";
import { Notice } from "../../parts/states.js";

export function LogIn() {
  const [given, setGiven] = useState("");
  const [isKept, setKept] = useState(false);
  const enter = (/** @type {Event} */ event) => {
    event.preventDefault();
    ended.value = "";
    if (given.trim()) keepToken(given.trim(), isKept);
  };
  return html`<main class="login">
    <div class="card">
      <h1 class="brand"><img src=${new URL("icon.svg", UI).pathname} alt="" />mqstore console</h1>
      <form class="stack" onSubmit=${enter}>
        ${ended.value && html`<${Notice} kind="bad" title=${ended.value} role="alert">Enter one that is.<//>`}
        <${TextField}
          label="Token"
          type="password"
          autocomplete="current-password"
          value=${given}
          onChange=${setGiven}
          required
          help="A bearer token of this store. On Kubernetes it is in the Secret that ends with -auth."
        />
        <label class="check">
          <input type="checkbox" checked=${isKept} onChange=${(/** @type {any} */ event) => setKept(event.currentTarget.checked)} />
          Keep it in this browser after the tab is closed
        </label>
        <button class="button primary">Log in</button>
      </form>
    </div>
  </main>`;
}
