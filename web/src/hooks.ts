import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";
import { currentConnection, listen, type Connection, type LiveMessage } from "./live";

/// The time, updated every second, for ages that tick.
export function useNow(everyMs = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

export function useLive(hear: (message: LiveMessage) => unknown): void {
  const newest = useRef(hear);
  newest.current = hear;
  useEffect(() => listen((message) => newest.current(message)), []);
}

export function useConnection(): Connection {
  const [connection, setConnection] = useState(currentConnection());
  useLive((message) => message.kind === "connection" && setConnection(message.connection));
  return connection;
}

/// Runs `work` on request, one run at a time and at most one every `everyMs`. All requests during a run cause one further
/// run.
export function useThrottled(work: () => Promise<void>, everyMs: number): () => void {
  const newest = useRef(work);
  newest.current = work;
  const state = useRef({ busy: false, again: false, timer: 0, alive: true });
  useEffect(() => {
    state.current.alive = true;
    return () => {
      state.current.alive = false;
      clearTimeout(state.current.timer);
    };
  }, []);
  return useRef(() => {
    const now = state.current;
    const run = () => {
      now.busy = true;
      now.again = false;
      void newest.current().finally(() => {
        now.timer = window.setTimeout(() => {
          now.busy = false;
          if (now.again && now.alive) run();
        }, everyMs);
      });
    };
    if (now.busy) now.again = true;
    else run();
  }).current;
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(-1, error instanceof Error ? error.message : String(error), "Reload the page.");
}
