// A list of any length, of which only the rows near the view are in the page.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../html.js";

/** How far above and below the view rows are drawn. */
const MARGIN_PX = 700;
/** The window moves in steps of this many pixels, so that most scrolling draws nothing. */
const STEP_PX = 200;

/** Which rows are drawn: `{from, to, above, below}`, the last two being the heights of those that are not.
 * `top` is how far the list is scrolled, `height` how much of it is in view. */
export function windowOf(heights, top, height) {
  let [from, offset] = [0, 0];
  while (from < heights.length && offset + heights[from] < top - MARGIN_PX) {
    offset += heights[from];
    from += 1;
  }
  const above = offset;
  let to = from;
  while (to < heights.length && offset < top + height + MARGIN_PX) {
    offset += heights[to];
    to += 1;
  }
  const below = heights.slice(to).reduce((sum, it) => sum + it, 0);
  return { from, to, above, below };
}

/** The rows of `items` near the view. `draw` returns the `<li>` of an item, whose key is `keyOf(item)`; `guess` is
 * the height of a row that was never drawn. `show`, a ref, gets a function that brings a row into view. */
export function Rows({ items, keyOf, draw, guess, show, ...attributes }) {
  const list = useRef();
  const known = useRef(new Map());
  const [view, setView] = useState({ top: 0, height: innerHeight });
  const [, remeasure] = useState(0);
  const heights = items.map((item) => known.current.get(keyOf(item)) ?? guess);
  const { from, to, above, below } = windowOf(heights, view.top, view.height);
  const look = () => {
    const main = list.current?.closest("main");
    if (!main) return;
    const top = main.getBoundingClientRect().top - list.current.getBoundingClientRect().top;
    const next = { top: Math.floor(top / STEP_PX) * STEP_PX, height: main.clientHeight + STEP_PX };
    setView((before) => (before.top === next.top && before.height === next.height ? before : next));
  };
  useEffect(() => {
    const main = list.current.closest("main");
    let frame = 0;
    const soon = () => (frame ||= requestAnimationFrame(() => {
      frame = 0;
      look();
    }));
    const resized = new ResizeObserver(soon);
    resized.observe(main);
    main.addEventListener("scroll", soon, { passive: true });
    look();
    return () => {
      cancelAnimationFrame(frame);
      resized.disconnect();
      main.removeEventListener("scroll", soon);
    };
  }, []);
  useLayoutEffect(() => {
    if (known.current.size > 4 * items.length + 1_000) known.current.clear();
    const rows = [...list.current.children].filter((row) => row.dataset.key !== undefined);
    const gap = parseFloat(getComputedStyle(list.current).rowGap) || 0;
    let changed = 0;
    for (const row of rows) {
      const height = row.offsetHeight + gap;
      if (known.current.get(row.dataset.key) === height) continue;
      known.current.set(row.dataset.key, height);
      changed += 1;
    }
    if (changed > 0) remeasure((count) => count + 1);
  });
  if (show) {
    show.current = (index) => {
      const main = list.current.closest("main");
      const begin = list.current.getBoundingClientRect().top - main.getBoundingClientRect().top + main.scrollTop;
      const top = begin + heights.slice(0, index).reduce((sum, it) => sum + it, 0);
      const isIn = top >= main.scrollTop && top + heights[index] <= main.scrollTop + main.clientHeight;
      if (!isIn) main.scrollTop = Math.max(0, top - main.clientHeight / 3);
      look();
    };
  }
  return html`<ul ref=${list} ...${attributes} style=${{ paddingTop: `${above}px`, paddingBottom: `${below}px` }}>${items.slice(from, to).map(draw)}</ul>`;
}
