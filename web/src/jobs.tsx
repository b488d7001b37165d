import { useEffect, useRef, useState } from "preact/hooks";
import { get, type ApiError } from "./api";
import { between, formatCount, formatDuration, formatNumber, formatSettings, withLocalTimes } from "./format";
import { asApiError, useLive, useNow, useThrottled } from "./hooks";
import { Link } from "./link";
import { MachinePanel } from "./machine";
import { Empty, ErrorNotice, LaterError } from "./notice";
import { StateOf, tone } from "./state";
import { Changes, merge, MOST_ROWS, NOTHING, PAGE, type Answer, type Stretch } from "./pages";
import { ENDED, STATES, type Job, type JobEvent, type Progress, type Sweep } from "./types";

// Some facts change without an event, such as the reason in a scheduler's queue.
const LOOK_AGAIN_MS = 10_000;
const LOAD_MS = 400;
const MIN_WAIT_MS = 1000;

export function withProgress(job: Job, now: Progress): Job {
  const { step, steps_total, loss, tokens_per_s, last_checkpoint_step, state, status } = now;
  return { ...job, state, status, step, steps_total, loss, tokens_per_s, last_checkpoint_step };
}

export function ProgressBar({ job }: { job: Job }) {
  if (!job.steps_total) return <span class="muted">{job.step ? formatCount(job.step) : "–"}</span>;
  const share = Math.min(100, (100 * (job.step ?? 0)) / job.steps_total);
  return (
    <span class="progress">
      <span class="num">
        {formatCount(job.step)} / {formatCount(job.steps_total)}
      </span>
      <span class="bar" aria-hidden="true">
        <span class={`fill ${tone(job.state)}`} style={{ width: `${share}%` }} />
      </span>
    </span>
  );
}

function SweepNote({ sweep }: { sweep: Sweep }) {
  return (
    <span class="sweep-note">
      <Link to={`/?sweep=${encodeURIComponent(sweep.sweep)}`}>sweep {sweep.sweep}</Link> {formatSettings(sweep.settings)}
    </span>
  );
}

function Row({ job, now }: { job: Job; now: number }) {
  const attempt = job.attempts.at(-1);
  const wait = between(job.submitted_at, job.started_at || job.ended_at, now);
  const waited = wait !== null && wait >= MIN_WAIT_MS;
  const elapsed = between(job.started_at, job.ended_at, now);
  return (
    <tr class={`job-row ${tone(job.state)}`}>
      <td class="num id">{job.id}</td>
      <th scope="row">
        <span class="number num">{job.id} </span>
        <Link to={`/jobs/${job.id}`}>{job.name || `job ${job.id}`}</Link>
        {job.sweep?.sweep && <SweepNote sweep={job.sweep} />}
      </th>
      <td class="state"><StateOf job={job} /></td>
      <td class={`num ${attempt ? "" : "unknown"}`} data-label="attempt">{attempt?.number ?? "–"}</td>
      <td class={job.step || job.steps_total ? "" : "unknown"} data-label="step"><ProgressBar job={job} /></td>
      <td class={`num ${job.loss == null ? "unknown" : ""}`} data-label="loss">{formatNumber(job.loss)}</td>
      <td class={`num ${job.tokens_per_s == null ? "unknown" : ""}`} data-label="tokens/s">{formatCount(job.tokens_per_s)}</td>
      <td class={`num ${waited ? "" : "unknown"}`} data-label="waited">{waited ? formatDuration(wait) : "–"}</td>
      <td class={`num ${elapsed === null ? "unknown" : ""}`} data-label="elapsed">{formatDuration(elapsed)}</td>
      <td class="reason" data-label="why">{withLocalTimes(job.reason)}</td>
    </tr>
  );
}

const parameter = (name: string): string => new URLSearchParams(location.search).get(name) ?? "";

function nothing(state: string, sweep: string): string {
  if (sweep) return `No job of sweep ${sweep}${state && ` is ${state}`}.`;
  return state ? `No job is ${state}.` : "No jobs yet.";
}

// The stretch of jobs that is shown, kept up to date by at most one question for PAGE jobs every LOAD_MS.
function useJobs(state: string, sweep: string) {
  const [stretch, setStretch] = useState<Stretch | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const now = useRef<Stretch>(NOTHING);
  const changes = useRef(new Changes());
  const wantsMore = useRef(false);
  const filter = `${state && `&state=${state}`}${sweep && `&sweep=${encodeURIComponent(sweep)}`}`;
  const asked = useRef(filter);
  asked.current = filter;

  const load = useThrottled(async () => {
    const question = asked.current;
    const older = wantsMore.current;
    const before = older ? (now.current.jobs.at(-1)?.id ?? 0) : now.current.jobs.length === 0 ? 0 : changes.current.next(now.current);
    if (before === null) return;
    try {
      const answer = await get<Answer>(`jobs?limit=${PAGE}${before ? `&before=${before}` : ""}${question}`);
      if (question !== asked.current) return load();
      if (older) wantsMore.current = false;
      changes.current.answered(now.current, before, answer);
      now.current = merge(now.current, before, answer, older);
      setStretch(now.current);
      setError(null);
      if (changes.current.next(now.current) !== null) load();
    } catch (caught) {
      setError(asApiError(caught));
    }
  }, LOAD_MS);

  const toTop = () => {
    now.current = NOTHING;
    changes.current = new Changes();
    wantsMore.current = false;
    load();
  };
  useEffect(toTop, [filter]);
  const showMore = () => {
    wantsMore.current = true;
    load();
  };
  const lookAgain = (which: (job: Job) => boolean) => {
    changes.current.add(now.current.jobs.filter(which).map((job) => job.id));
    load();
  };
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && lookAgain((job) => !ENDED.includes(job.state)), LOOK_AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  useLive((message) => {
    if (message.kind === "refresh") lookAgain(() => true);
    if (message.kind !== "event") return;
    if (message.type === "job-changed") {
      changes.current.add([(message.data as JobEvent).job_id]);
      load();
    }
    if (message.type === "progress") {
      const progress = message.data as Progress;
      if (!now.current.jobs.some((job) => job.id === progress.job_id)) return;
      now.current = { ...now.current, jobs: now.current.jobs.map((job) => (job.id === progress.job_id ? withProgress(job, progress) : job)) };
      setStretch(now.current);
    }
  });
  return { stretch, error, showMore, toTop };
}

export function Jobs() {
  const [state, setState] = useState(parameter("state"));
  const [sweep, setSweep] = useState(parameter("sweep"));
  const { stretch, error, showMore, toTop } = useJobs(state, sweep);
  const jobs = stretch?.jobs ?? null;
  const now = useNow();

  useEffect(() => {
    document.title = "Jobs · muster";
    const query = new URLSearchParams({ ...(state && { state }), ...(sweep && { sweep }) }).toString();
    history.replaceState(history.state, "", query ? `/?${query}` : "/");
  }, [state, sweep]);
  // A click on a link from this page to this page.
  useEffect(() => {
    const follow = () => {
      if (location.pathname !== "/") return;
      setState(parameter("state"));
      setSweep(parameter("sweep"));
    };
    addEventListener("popstate", follow);
    return () => removeEventListener("popstate", follow);
  }, []);
  return (
    <main class="page">
      <div class="page-head">
        <h1>Jobs</h1>
        <span class="muted num">{stretch && `${formatCount(stretch.total)}${state ? ` ${state}` : ""}`}</span>
        {sweep && <button onClick={() => setSweep("")}>Sweep {sweep} ✕<span class="hidden"> show jobs of every sweep</span></button>}
        <label class="filter">
          State
          <select value={state} onChange={(event) => setState(event.currentTarget.value)}>
            <option value="">all</option>
            {STATES.map((one) => <option value={one}>{one}</option>)}
          </select>
        </label>
      </div>
      <MachinePanel />
      {jobs ? <LaterError error={error} /> : error && <ErrorNotice error={error} />}
      {!jobs && !error && <p class="muted">Loading…</p>}
      {jobs && jobs.length === 0 && (
        <Empty title={nothing(state, sweep)}>
          {state || sweep ? <button onClick={() => [setState(""), setSweep("")]}>Show all jobs</button>
            : <p>Submit one: <code>muster submit job.toml</code></p>}
        </Empty>
      )}
      {stretch && !stretch.atTop && (
        <p class="above"><button onClick={() => [scrollTo(0, 0), toTop()]}>Back to the newest jobs</button>{" "}
          <span class="muted small">{formatCount(MOST_ROWS)} jobs are shown at a time.</span></p>
      )}
      {jobs && jobs.length > 0 && (
        <table class="jobs cards">
          <caption class="hidden">Jobs, newest first</caption>
          <thead>
            <tr>
              <th scope="col" class="num">#</th><th scope="col">Name</th><th scope="col">State</th>
              <th scope="col" class="num">Attempt</th><th scope="col">Step</th><th scope="col" class="num">Loss</th>
              <th scope="col" class="num">Tokens/s</th><th scope="col" class="num">Waited</th>
              <th scope="col" class="num">Elapsed</th><th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>{jobs.map((job) => <Row key={job.id} job={job} now={now} />)}</tbody>
        </table>
      )}
      {stretch && !stretch.atEnd && !(stretch.atTop && stretch.jobs.length >= stretch.total) && (
        <button onClick={showMore}>Show more</button>
      )}
    </main>
  );
}
