// Requests to musterd. A restart of musterd ends its sessions. A request that musterd then refuses logs in again, with
// the token that this tab keeps or through another tab that has one, and is sent once more.
const TOKEN = "muster-token";
const ASK_TABS_MS = 1200;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly remedy: string,
  ) {
    super(message);
  }
}

let whenSignedOut: () => void = () => {};
export function onSignedOut(tell: () => void): void {
  whenSignedOut = tell;
}

async function request(method: string, path: string, body?: unknown): Promise<Response> {
  try {
    return await fetch("/api/v1/" + path, {
      method,
      credentials: "same-origin",
      cache: "no-store",
      headers: method === "GET" ? {} : { "X-Muster": "1", "Content-Type": "application/json" },
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, "musterd does not answer", "This page continues as soon as musterd answers.");
  }
}

async function fail(response: Response): Promise<never> {
  const body = (await response.json().catch(() => ({}))) as { error?: string; remedy?: string };
  throw new ApiError(response.status, body.error ?? `musterd answered ${response.status}`, body.remedy ?? "");
}

export async function logIn(token: string): Promise<void> {
  const response = await request("POST", "login", { token });
  if (!response.ok) await fail(response);
  sessionStorage.setItem(TOKEN, token);
}

const tabs = new BroadcastChannel("muster-session");
tabs.addEventListener("message", (message: MessageEvent<string>) => {
  if (message.data === "leaving") sessionStorage.removeItem(TOKEN);
  if (message.data === "left") location.reload();
  const token = sessionStorage.getItem(TOKEN);
  if (message.data !== "wanted" || !token) return;
  logIn(token).then(
    () => tabs.postMessage("opened"),
    () => {},
  );
});

/// Logs out all tabs. A tab that kept its token would open the next session for all of them.
export async function logOut(): Promise<void> {
  sessionStorage.removeItem(TOKEN);
  tabs.postMessage("leaving");
  await request("POST", "logout");
  tabs.postMessage("left");
  location.reload();
}

// The token never leaves its tab. All tabs share the cookie of the new session.
function askOtherTabs(): Promise<boolean> {
  return new Promise((resolve) => {
    const listen = (message: MessageEvent<string>) => {
      if (message.data === "opened") done(true);
    };
    const done = (opened: boolean) => {
      tabs.removeEventListener("message", listen);
      clearTimeout(timer);
      resolve(opened);
    };
    const timer = setTimeout(() => done(false), ASK_TABS_MS);
    tabs.addEventListener("message", listen);
    tabs.postMessage("wanted");
  });
}

async function openSession(): Promise<boolean> {
  const token = sessionStorage.getItem(TOKEN);
  if (!token) return askOtherTabs();
  try {
    await logIn(token);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      sessionStorage.removeItem(TOKEN);
      return false;
    }
    throw error;
  }
}

let opening: Promise<boolean> | null = null;
function openSessionOnce(): Promise<boolean> {
  opening ??= openSession().finally(() => {
    opening = null;
  });
  return opening;
}

async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  let response = await request(method, path, body);
  if (response.status === 401 && (await openSessionOnce())) response = await request(method, path, body);
  if (response.status === 401) whenSignedOut();
  if (!response.ok) await fail(response);
  return (await response.json()) as T;
}

export const get = <T>(path: string): Promise<T> => ask<T>("GET", path);
export const post = <T>(path: string): Promise<T> => ask<T>("POST", path, {});
