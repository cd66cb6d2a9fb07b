// State that follows the relay.

import { useEffect, useRef, useState } from "preact/hooks";
import { events, get } from "./api.js";

const RETRY = 2000;
// a stream ends after a while by itself
const AGAIN = 300;

const pause = (millis, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, millis);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });

function visible() {
  return document.visibilityState === "visible";
}

/** What is now, each second, and why not. Nothing is asked for while nobody looks. */
export function useLive() {
  const [state, setState] = useState({ now: null, lost: null });
  useEffect(() => {
    let stop = new AbortController();
    const follow = async (signal) => {
      while (!signal.aborted) {
        try {
          for await (const { kind, data } of events("/page/live", signal)) {
            if (kind === "now") setState({ now: data, lost: null });
            else setState((before) => ({ ...before, lost: data.detail }));
          }
          await pause(AGAIN, signal);
        } catch (error) {
          if (signal.aborted) return;
          const lost = error instanceof TypeError ? "the relay does not answer" : error.message;
          setState((before) => ({ ...before, lost }));
          await pause(RETRY, signal);
        }
      }
    };
    const turn = () => {
      stop.abort();
      stop = new AbortController();
      if (visible()) follow(stop.signal);
    };
    turn();
    document.addEventListener("visibilitychange", turn);
    return () => {
      document.removeEventListener("visibilitychange", turn);
      stop.abort();
    };
  }, []);
  return state;
}

/** The document at a path, asked for again each `every` milliseconds (0: once) and after `again()`. */
export function useData(path, every) {
  const [state, setState] = useState({ data: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    let timer;
    const ask = async () => {
      clearTimeout(timer);
      if (visible()) {
        try {
          const data = await get(path, stop.signal);
          if (!stop.signal.aborted) setState({ data, error: null });
        } catch (error) {
          if (stop.signal.aborted) return;
          setState((before) => ({ data: error.status === 404 ? null : before.data, error }));
        }
      }
      if (every > 0 && !stop.signal.aborted) timer = setTimeout(ask, every);
    };
    again.current = ask;
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, every]);
  return { ...state, again: () => again.current() };
}

/** A searched, sorted list, page by page: what is asked for, how to change it, and what came. */
export function useListing(path, order, count, every) {
  const [asked, setAsked] = useState({ find: "", order, offset: 0 });
  const find = useSettled(asked.find);
  const query = new URLSearchParams({ find, order: asked.order, offset: asked.offset, count });
  return {
    ...asked,
    setFind: (find) => setAsked((before) => ({ ...before, find, offset: 0 })),
    setOrder: (order) => setAsked((before) => ({ ...before, order, offset: 0 })),
    setOffset: (offset) => setAsked((before) => ({ ...before, offset })),
    ...useData(`${path}?${query}`, every),
  };
}

/** A text that follows another after a pause in typing. */
export function useSettled(text, millis = 250) {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), millis);
    return () => clearTimeout(timer);
  }, [text, millis]);
  return settled;
}
