// One event stream for all tabs of a browser, because browsers allow six connections a host. The tab that holds the lock
// reads the stream and passes every event on. When that tab closes, another tab continues after the last event.
import { ApiError, get } from "./api";

export type Connection = "connecting" | "open" | "lost";
export type LiveMessage =
  | { kind: "event"; type: string; data: unknown; id: number }
  | { kind: "connection"; connection: Connection }
  // Events may have been missed, so a page loads everything again.
  | { kind: "refresh" };

const TYPES = ["hello", "job-changed", "progress", "reset", "beat"];
const FIRST_RETRY_MS = 400;
const LAST_RETRY_MS = 2000;
// The server sends an event at least every 10 s.
const SILENT_AFTER_MS = 25000;

const listeners = new Set<(message: LiveMessage) => void>();
let connection: Connection = "connecting";
let lastId = -1;
let channel: BroadcastChannel | null = null;
let started = false;

export const currentConnection = (): Connection => connection;

export function listen(listener: (message: LiveMessage) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function hear(message: LiveMessage): void {
  if (message.kind === "connection") connection = message.connection;
  if (message.kind === "event" && message.id > lastId) lastId = message.id;
  for (const listener of [...listeners]) listener(message);
}

function tell(message: LiveMessage): void {
  channel?.postMessage(message);
  hear(message);
}

class Leader {
  private source: EventSource | null = null;
  private watchdog = 0;
  private retryMs = FIRST_RETRY_MS;
  private wasLost = false;

  connect(): void {
    this.source = new EventSource("/api/v1/stream" + (lastId >= 0 ? `?after=${lastId}` : ""));
    for (const type of TYPES) {
      this.source.addEventListener(type, (event) => this.on(type, event as MessageEvent<string>));
    }
    this.source.onerror = () => void this.lost();
    this.watch();
  }

  // A new tab asks for the state of the connection.
  announce(): void {
    channel?.postMessage({ kind: "connection", connection });
  }

  private watch(): void {
    clearTimeout(this.watchdog);
    this.watchdog = window.setTimeout(() => void this.lost(), SILENT_AFTER_MS);
  }

  private on(type: string, event: MessageEvent<string>): void {
    this.watch();
    if (type === "beat") return;
    const id = event.lastEventId === "" ? -1 : Number(event.lastEventId);
    if (type === "hello") {
      this.retryMs = FIRST_RETRY_MS;
      tell({ kind: "connection", connection: "open" });
      // A page may have loaded its data before the stream was open.
      if (this.wasLost || lastId < 0) tell({ kind: "refresh" });
      this.wasLost = false;
    }
    if (type === "reset") {
      lastId = id;
      tell({ kind: "refresh" });
    }
    tell({ kind: "event", type, data: JSON.parse(event.data), id });
  }

  private async lost(): Promise<void> {
    if (!this.source) return;
    this.source.close();
    this.source = null;
    this.wasLost = true;
    clearTimeout(this.watchdog);
    tell({ kind: "connection", connection: "lost" });
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, this.retryMs * (0.75 + Math.random() / 2)));
      this.retryMs = Math.min(this.retryMs * 1.6, LAST_RETRY_MS);
      try {
        await get("status"); // logs in again if musterd has ended the session
        break;
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) return; // the log-in page opens a new stream
      }
    }
    this.connect();
  }
}

/// To be called once, after the log-in.
export function startLive(): void {
  if (started) return;
  started = true;
  channel = new BroadcastChannel("muster-live");
  const lead = new Promise<never>(() => {});
  const run = () => {
    const leader = new Leader();
    channel!.addEventListener("message", (message) => {
      if (message.data === "who leads?") leader.announce();
    });
    leader.connect();
    return lead; // until this tab closes
  };
  channel.addEventListener("message", (message: MessageEvent<LiveMessage | string>) => {
    if (typeof message.data !== "string") hear(message.data);
  });
  channel.postMessage("who leads?");
  // Browsers give no locks to pages of plain HTTP from another host. Each tab then has its own stream.
  if (navigator.locks) void navigator.locks.request("muster-stream", run);
  else {
    channel.close();
    channel = null;
    const leader = new Leader();
    leader.connect();
  }
}
