import { html } from "../../lib/html.js";
import { Page } from "../../parts/page.js";
import { Empty } from "../../parts/states.js";

export default () => html`<${Page} title="Topics"><${Empty} title="Nothing yet" /><//>`;
