// The beginning: who the user is, then the page that the address names.
import { Problem, request } from "./lib/api.js";
import { Fragment, html, render, useEffect, useState } from "./lib/html.js";
import { startHistory } from "./lib/history.js";
import { route } from "./lib/router.js";
import { access, may, token } from "./lib/session.js";
import { loadShards } from "./lib/shards.js";
import "./lib/theme.js";
import { pages } from "./pages.js";
import { Page } from "./parts/page.js";
import { Shell } from "./parts/shell.js";
import { Empty, Failure, Loading, Notice } from "./parts/states.js";
import { LogIn } from "./pages/login/login.js";

/** Reads what the token allows. Throws Problem. */
async function begin() {
  const found = await request({ path: "/v1/access" });
  if (found.allows.includes("consume")) await loadShards();
  access.value = found;
}

function App() {
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isStarting, setStarting] = useState(true);
  const start = async () => {
    setStarting(true);
    setError(null);
    try {
      await begin();
    } catch (problem) {
      if (!(problem instanceof Problem && problem.status === 401)) setError(problem);
    }
    setStarting(false);
  };
  useEffect(() => {
    start();
    startHistory();
  }, []);
  useEffect(() => {
    if (token.value && !access.value && !isStarting) start();
  }, [token.value]);
  if (access.value) return html`<${Shell}><${Current} /><//>`;
  if (error) return html`<main class="login"><div class="card"><${Failure} error=${error} retry=${start} /></div></main>`;
  return isStarting ? html`<${Loading} label="Starting" />` : html`<${LogIn} />`;
}

/** The page of the address. */
function Current() {
  const { page, state } = route.value;
  const entry = pages.find((each) => each.name === page);
  const [shown, setShown] = useState(/** @type {{name: string, component?: any, error?: any} | null} */ (null));
  useEffect(() => {
    if (!entry || !may(entry.role)) return;
    entry.load().then(
      (module) => setShown({ name: page, component: module.default }),
      (error) => setShown({ name: page, error }),
    );
  }, [page]);
  if (!entry) return html`<${Page} title="No such page"><${Empty} title=${`The console has no page “${page}”`}>Choose one in the navigation.<//><//>`;
  if (!may(entry.role)) return html`<${NotAllowed} entry=${entry} />`;
  if (shown?.name !== page) return html`<${Loading} />`;
  if (shown.error) return html`<${Failure} error=${shown.error} retry=${() => location.reload()} />`;
  return html`<${Fragment} key=${page}><${shown.component} state=${state} /><//>`;
}

/** @param {{entry: import("./pages.js").PageEntry}} props */
const NotAllowed = ({ entry }) => html`<${Page} title=${entry.title}>
  <${Notice} kind="warning" title=${`This page needs the role ${entry.role}`}>
    The token has: ${access.value?.roles.join(", ")}. Log out, and log in with another token.
  <//>
<//>`;

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
