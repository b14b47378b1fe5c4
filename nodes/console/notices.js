// What was just done, as lines that go away by themselves.
import { useEffect, useState } from "./html.js";

const STAY_MS = 6_000;
const MAX_NOTICES = 4;
let notices = [];
let last = 0;
const listeners = new Set();

function set(next) {
  notices = next.slice(-MAX_NOTICES);
  listeners.forEach((listener) => listener(notices));
}

/** Says what was done; `tone` is `ok`, `wait` or `bad`. */
export function notify(text, tone = "ok") {
  last += 1;
  const notice = { id: last, text, tone };
  set([...notices, notice]);
  setTimeout(() => set(notices.filter((it) => it !== notice)), STAY_MS);
}

export function useNotices() {
  const [current, setCurrent] = useState(notices);
  useEffect(() => {
    listeners.add(setCurrent);
    return () => listeners.delete(setCurrent);
  }, []);
  return current;
}
