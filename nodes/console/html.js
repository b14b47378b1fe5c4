// The console's way to draw: Preact with htm, so that there is no build step. Strings become text nodes.
import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export const html = htm.bind(h);
export { Component, Fragment, h, render } from "./vendor/preact.js";
export {
  useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef, useState,
} from "./vendor/hooks.js";
