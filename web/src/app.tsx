import { useEffect, useState } from "preact/hooks";
import { ApiError, get, logIn, logOut, onSignedOut } from "./api";
import { withLocalTimes } from "./format";
import { asApiError, useConnection, useLive } from "./hooks";
import { JobPage } from "./job";
import { Jobs } from "./jobs";
import { Link } from "./link";
import { startLive } from "./live";
import { Login } from "./login";
import { Empty, sentence } from "./notice";
import { theme, toggleTheme } from "./theme";
import type { Status } from "./types";

const MAX_PROBLEMS = 3;

// A log-in or log-out loads the page again. The requests and the stream of the old page belong to the old session.
type Session = "asking" | "in" | "out" | "unreachable";

// "#token=..." logs in. The page removes it from the address bar first.
async function takeTokenFromAddress(): Promise<"none" | "in" | ApiError> {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (!match) return "none";
  history.replaceState(null, "", location.pathname + location.search);
  return logIn(decodeURIComponent(match[1]!)).then(() => "in" as const, asApiError);
}

function Banner() {
  const connection = useConnection();
  const [status, setStatus] = useState<Status | null>(null);
  const look = () => void get<Status>("status").then(setStatus, () => {});
  useEffect(look, []);
  useLive((message) => {
    if (message.kind === "refresh") look();
  });
  // No event tells that a scheduler became unreachable or came back.
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && look(), 10_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <div role="status" class="banners">
      {connection === "lost" && (
        <p class="banner">Reconnecting: musterd does not answer. Jobs run on without it; what you see is the last known state.</p>
      )}
      {status?.scheduler_problem && (
        <p class="banner">{sentence(`Slurm has been ${withLocalTimes(status.scheduler_problem)}`)} What runs goes on, and nothing is lost.</p>
      )}
      {status?.store_problem && <p class="banner bad">{sentence(`The store takes no writes: ${status.store_problem}`)}</p>}
      {status?.partition_problems?.slice(0, MAX_PROBLEMS).map((problem) => <p class="banner" key={problem}>{sentence(problem)}</p>)}
    </div>
  );
}

function Header() {
  const [now, setNow] = useState(theme());
  useEffect(() => {
    const look = () => setNow(theme());
    addEventListener("themechange", look);
    return () => removeEventListener("themechange", look);
  }, []);
  return (
    <header class="top">
      <nav aria-label="Main">
        <Link to="/"><span class="brand"><img src="/icon.svg" alt="" width="20" height="20" /> muster</span></Link>
      </nav>
      <span class="spacer" />
      <button class="quiet" onClick={toggleTheme}>{now === "dark" ? "Light" : "Dark"}</button>
      <button class="quiet" onClick={() => void logOut().catch(() => {})}>Log out</button>
    </header>
  );
}

function Page({ path }: { path: string }) {
  const job = /^\/jobs\/(\d+)$/.exec(path);
  if (job) return <JobPage key={job[1]!} id={Number(job[1])} />;
  if (path === "/" || path === "/login") return <Jobs />;
  return <main class="page"><h1>Not found</h1><Empty title="There is no such page."><Link to="/">All jobs</Link></Empty></main>;
}

export function App() {
  const [session, setSession] = useState<Session>("asking");
  const [refused, setRefused] = useState<ApiError | null>(null);
  const [path, setPath] = useState(location.pathname);
  useEffect(() => {
    const follow = () => setPath(location.pathname);
    addEventListener("popstate", follow);
    onSignedOut(() => setSession("out"));
    const take = async () => {
      const outcome = await takeTokenFromAddress();
      if (outcome instanceof ApiError) setRefused(outcome);
      return outcome;
    };
    const enter = async () => {
      await take();
      await get("status").then(() => setSession("in"), (error) => setSession(error.status === 401 ? "out" : "unreachable"));
    };
    void enter();
    // A link with a token changes only the hash if the dashboard is already open.
    const again = async () => {
      if ((await take()) === "in") location.reload();
    };
    addEventListener("hashchange", again);
    return () => {
      removeEventListener("popstate", follow);
      removeEventListener("hashchange", again);
    };
  }, []);
  useEffect(() => {
    if (session === "in") startLive();
    if (session === "out") document.title = "Log in · muster";
    if (session !== "unreachable") return;
    const retry = setInterval(() => void get("status").then(() => setSession("in"), () => {}), 2000);
    return () => clearInterval(retry);
  }, [session]);
  if (session === "out") return <Login refused={refused} onDone={() => location.reload()} />;
  if (session === "unreachable")
    return <main class="page"><h1>muster</h1><Empty title="musterd does not answer."><p>This page continues as soon as musterd answers.</p></Empty></main>;
  if (session === "asking") return <main class="page"><h1 class="hidden">muster</h1><p class="muted">Loading…</p></main>;
  return (
    <>
      <Header />
      <Banner />
      <Page path={path} />
    </>
  );
}
