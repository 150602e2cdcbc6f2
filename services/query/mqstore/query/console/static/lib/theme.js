// Dark or light: as the system, until the user chooses.
import { effect, signal } from "./html.js";

const NAME = "mqstore.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const stored = localStorage.getItem(NAME);

/** @typedef {"dark" | "light"} Theme */

export const theme = signal(/** @type {Theme} */ (stored === "dark" || stored === "light" ? stored : system.matches ? "dark" : "light"));

system.addEventListener("change", () => {
  if (!localStorage.getItem(NAME)) theme.value = system.matches ? "dark" : "light";
});
effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

export function switchTheme() {
  theme.value = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(NAME, theme.value);
}
