// The frame of all pages: navigation, search, and choices that concern each page.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { href, navigate, route } from "../lib/router.js";
import { access, may, signOut } from "../lib/session.js";
import { switchTheme, theme } from "../lib/theme.js";
import { setZone, zone } from "../lib/times.js";
import { UI } from "../lib/api.js";
import { pages } from "../pages.js";
import { Announcements } from "./announce.js";
import { Icon } from "./icon.js";

/** @param {{children: any}} props */
export function Shell({ children }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [route.value]);
  return html`<div class="shell" onKeyDown=${(/** @type {any} */ event) => event.key === "Escape" && setOpen(false)}>
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Side} isOpen=${isOpen} />
    ${isOpen && html`<button class="scrim" aria-label="Close the navigation" onClick=${() => setOpen(false)}></button>`}
    <header class="top">
      <button class="button quiet square menu" aria-label="Navigation" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>
        <${Icon} name="menu" />
      </button>
      ${may("consume") && html`<${Search} />`}
      <${Choices} />
    </header>
    <main id="main" tabindex="-1">${children}</main>
    <${Announcements} />
  </div>`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** @param {{isOpen: boolean}} props */
function Side({ isOpen }) {
  const allowed = pages.filter((each) => may(each.role));
  const sections = [...new Set(allowed.map((each) => each.section))];
  return html`<nav class="side ${isOpen ? "is-open" : ""}" aria-label="Pages">
    <a class="brand" href=${href("overview")}><img src=${new URL("icon.svg", UI).pathname} alt="" />mqstore</a>
    ${sections.map(
      (section) => html`<div key=${section}>
        <h2>${section}</h2>
        <ul>
          ${allowed
            .filter((each) => each.section === section)
            .map((each) => {
              const isCurrent = each.name === route.value.page;
              return html`<li key=${each.name}><a href=${href(each.name)} aria-current=${isCurrent ? "page" : undefined}><${Icon} name=${each.icon} />${each.title}</a></li>`;
            })}
        </ul>
      </div>`,
    )}
    <div class="side-end small muted"><a href=${new URL("../docs", UI).pathname} target="_blank" rel="noopener">API documentation</a></div>
  </nav>`;
}

/** Finds a message by its id, or a topic. `/` moves the focus here. */
function Search() {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      const target = event.target;
      const isTyping = target instanceof HTMLElement && target.closest("input, textarea, select, dialog");
      if (event.key !== "/" || event.metaKey || event.ctrlKey || event.altKey || isTyping) return;
      event.preventDefault();
      input.current?.select();
      input.current?.focus();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const find = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = input.current?.value.trim();
    if (!text) return;
    const isId = /^([0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})$/.test(text);
    if (isId) navigate("messages", { id: text });
    else navigate("topics", { search: text });
    if (input.current) input.current.value = "";
  };
  return html`<form class="search" role="search" onSubmit=${find}>
    <${Icon} name="search" />
    <input ref=${input} type="search" aria-label="Find a topic, or a message by its id" placeholder="Topic or message id" autocomplete="off" spellcheck=${false} />
    <kbd aria-hidden="true">/</kbd>
  </form>`;
}

function Choices() {
  const isUtc = zone.value === "utc";
  const isDark = theme.value === "dark";
  const roles = access.value?.roles.join(", ");
  return html`<div class="top-end">
    <button class="button quiet" aria-label=${`Times in ${isUtc ? "UTC" : "local time"}: change`} title="Change between local time and UTC" onClick=${() => setZone(isUtc ? "local" : "utc")}>
      <${Icon} name="clock" /><span class="toggle-label">${isUtc ? "UTC" : "Local"}</span>
    </button>
    <button class="button quiet square" aria-label=${isDark ? "Light colours" : "Dark colours"} title=${isDark ? "Light colours" : "Dark colours"} onClick=${switchTheme}>
      <${Icon} name=${isDark ? "sun" : "moon"} />
    </button>
    ${access.value?.tokenNeeded &&
    html`<button class="button quiet" title=${`Role: ${roles}`} onClick=${() => signOut()}><${Icon} name="out" /><span class="toggle-label">Log out</span></button>`}
  </div>`;
}
