import { useEffect, useState } from "preact/hooks";
import { get, type ApiError } from "./api";
import { between, formatCount, formatDuration, formatNumber, formatSettings } from "./format";
import { asApiError, useLive, useNow, useThrottled } from "./hooks";
import { Link } from "./link";
import { Empty, ErrorNotice, LaterError } from "./notice";
import { StateOf, tone } from "./state";
import { STATES, type Job, type Progress, type Sweep } from "./types";

const PAGE = 100;

export function withProgress(job: Job, now: Progress): Job {
  const { step, steps_total, loss, tokens_per_s, last_checkpoint_step, state } = now;
  return { ...job, state, step, steps_total, loss, tokens_per_s, last_checkpoint_step };
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
      <td class="num" data-label="waited">{formatDuration(wait)}</td>
      <td class={`num ${elapsed === null ? "unknown" : ""}`} data-label="elapsed">{formatDuration(elapsed)}</td>
      <td class="reason" data-label="why">{job.reason}</td>
    </tr>
  );
}

const parameter = (name: string): string => new URLSearchParams(location.search).get(name) ?? "";

function nothing(state: string, sweep: string): string {
  if (sweep) return `No job of sweep ${sweep}${state && ` is ${state}`}.`;
  return state ? `No job is ${state}.` : "No jobs yet.";
}

export function Jobs() {
  const [state, setState] = useState(parameter("state"));
  const [sweep, setSweep] = useState(parameter("sweep"));
  const [jobs, setJobs] = useState<Job[] | null>(null);
  const [total, setTotal] = useState(0);
  const [shown, setShown] = useState(PAGE);
  const [error, setError] = useState<ApiError | null>(null);
  const now = useNow();

  const load = useThrottled(async () => {
    try {
      const list = await get<{ jobs: Job[]; total: number }>(
        `jobs?limit=${shown}${state && `&state=${state}`}${sweep && `&sweep=${encodeURIComponent(sweep)}`}`);
      setJobs(list.jobs);
      setTotal(list.total);
      setError(null);
    } catch (caught) {
      setError(asApiError(caught));
    }
  }, 400);
  useEffect(load, [state, sweep, shown]);
  useEffect(() => {
    document.title = "Jobs · muster";
    const query = new URLSearchParams({ ...(state && { state }), ...(sweep && { sweep }) }).toString();
    history.replaceState(history.state, "", query ? `/?${query}` : "/");
  }, [state, sweep]);
  // A link to this page, clicked on this page.
  useEffect(() => {
    const follow = () => {
      if (location.pathname !== "/") return;
      setState(parameter("state"));
      setSweep(parameter("sweep"));
    };
    addEventListener("popstate", follow);
    return () => removeEventListener("popstate", follow);
  }, []);
  useLive((message) => {
    if (message.kind === "refresh") load();
    if (message.kind !== "event") return;
    if (message.type === "job-changed") load();
    if (message.type === "progress") {
      const progress = message.data as Progress;
      setJobs((old) => old && old.map((job) => (job.id === progress.job_id ? withProgress(job, progress) : job)));
    }
  });

  return (
    <main class="page">
      <div class="page-head">
        <h1>Jobs</h1>
        <span class="muted num">{jobs && `${formatCount(total)}${state ? ` ${state}` : ""}`}</span>
        {sweep && <button onClick={() => setSweep("")}>Sweep {sweep} ✕<span class="hidden"> show jobs of every sweep</span></button>}
        <label class="filter">
          State
          <select value={state} onChange={(event) => setState(event.currentTarget.value)}>
            <option value="">all</option>
            {STATES.map((one) => <option value={one}>{one}</option>)}
          </select>
        </label>
      </div>
      {jobs ? <LaterError error={error} /> : error && <ErrorNotice error={error} />}
      {!jobs && !error && <p class="muted">Loading…</p>}
      {jobs && jobs.length === 0 && (
        <Empty title={nothing(state, sweep)}>
          {state || sweep ? <button onClick={() => [setState(""), setSweep("")]}>Show all jobs</button>
            : <p>Submit one: <code>muster submit job.toml</code></p>}
        </Empty>
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
      {jobs && jobs.length < total && shown < 500 && (
        <button onClick={() => setShown(Math.min(500, shown + PAGE))}>Show more</button>
      )}
    </main>
  );
}
