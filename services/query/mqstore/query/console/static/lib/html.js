// The one place that names the vendored libraries: pages import from here.
import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

export const html = htm.bind(h);
export { Fragment, render } from "../vendor/preact.js";
export { useCallback, useEffect, useId, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
export { batch, computed, effect, signal } from "../vendor/signals.js";
