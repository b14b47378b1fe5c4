// Hooks for what changes by itself: answers that are asked for again and again, and the time.
import { useEffect, useRef, useState } from "./html.js";
import { now } from "./session.js";

/** How much longer than a reading took, at least, the page waits until the next: a slow node is asked seldom. */
const REST = 4;

/** The newest answer of `read(signal)`, which is called every `interval` ms while the page is in view,
 * and anew when `key` changes: `{data, error, refresh}`. An error leaves the data that was there. */
export function usePoll(read, key, interval = 2_000) {
  const [state, setState] = useState({ key });
  const again = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    let timer;
    let running = false;
    const run = async () => {
      clearTimeout(timer);
      if (running || stop.signal.aborted) return;
      running = true;
      const began = Date.now();
      if (!document.hidden || interval === 0) {
        try {
          const data = await read(stop.signal);
          if (!stop.signal.aborted) setState({ key, data });
        } catch (error) {
          if (!stop.signal.aborted) setState((before) => ({ ...(before.key === key ? before : { key }), error }));
        }
      }
      running = false;
      if (interval > 0 && !stop.signal.aborted) timer = setTimeout(run, Math.max(interval, REST * (Date.now() - began)));
    };
    again.current = run;
    const seen = () => document.hidden || run();
    document.addEventListener("visibilitychange", seen);
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, interval]);
  const current = state.key === key ? state : { key };
  return { ...current, refresh: () => again.current() };
}

const clocks = new Set();
let ticking;

/** The server's time, once a second; all that show it share one timer. */
export function useNow(isNeeded = true) {
  const [time, setTime] = useState(now);
  useEffect(() => {
    if (!isNeeded) return undefined;
    const tick = () => setTime(now());
    tick();
    clocks.add(tick);
    ticking ??= setInterval(() => clocks.forEach((clock) => clock()), 1_000);
    return () => {
      clocks.delete(tick);
      if (clocks.size > 0) return;
      clearInterval(ticking);
      ticking = undefined;
    };
  }, [isNeeded]);
  return time;
}
