import { useEffect, useRef, useState } from "preact/hooks";
import { Actions } from "./actions";
import { get, type ApiError } from "./api";
import { Events } from "./events";
import { between, formatCount, formatDuration, formatNodes, formatNumber, formatSettings, formatTime } from "./format";
import { asApiError, useLive, useNow, useThrottled } from "./hooks";
import { ProgressBar, withProgress } from "./jobs";
import { Link } from "./link";
import { Logs } from "./logs";
import { Empty, ErrorNotice, LaterError } from "./notice";
import { Plots } from "./plots";
import { Ranks } from "./ranks";
import { StateOf, tone } from "./state";
import { Timeline } from "./timeline";
import { QueueNote } from "./why";
import { ENDED, type Job, type JobEvent, type Metric, type Progress } from "./types";

const HEARTBEATS_MS = 3000;
const MAX_EVENTS = 2000;
const LONG_FACT = 24;

// What a person can do about it now: one sentence.
function advice(job: Job, now: number): string {
  const attempt = job.attempts.at(-1);
  const culprit = attempt?.rank ?? 0;
  if (job.held_by && (job.state === "pending" || job.state === "waiting" || job.state === "queued")) {
    return "Release it when it may start.";
  }
  if (job.held_by && job.state === "running") return `Held by ${job.held_by}: this attempt goes on, and no other starts.`;
  if (job.waits_for?.length) return "It starts by itself then; nothing to do.";
  switch (job.state) {
    case "queued": return "";
    case "pending": return "It starts as soon as there is room for its ranks; nothing to do.";
    case "running": return job.ranks.some((rank) => rank.state === "silent")
      ? "A rank is silent; muster restarts the job by itself." : "Nothing to do.";
    case "stopping": return "Its ranks save and leave; nothing to do.";
    case "waiting": return job.next_attempt_at
      ? `The next attempt starts in ${formatDuration(Math.max(0, Date.parse(job.next_attempt_at) - now))}; nothing to do.`
      : "The next attempt starts by itself; nothing to do.";
    case "failed":
      if (!attempt?.started_at) return "Correct in the job file what the reason names, and submit it again.";
      return attempt.rank == null && attempt.scheduler_job
        ? "Read what Slurm and the lines before the ranks wrote, correct the cause, then requeue it."
        : `Read the log of rank ${culprit}, correct the cause, then requeue it.`;
    case "cancelled": return "Submit it again if it is still wanted.";
    case "succeeded": return job.last_checkpoint_step > 0 ? `The result lies in ${job.checkpoint_folder}.` : "Nothing to do.";
    default: return "";
  }
}

function Facts({ job, now }: { job: Job; now: number }) {
  // Of a program of one's own nothing of this is measured.
  const training: [string, preact.ComponentChildren][] = job.kind === "command" ? [] : [
    ["Step", <ProgressBar job={job} />],
    ["Loss", formatNumber(job.loss)],
    ["Tokens/s", formatCount(job.tokens_per_s)],
    ["Checkpoint", job.last_checkpoint_step ? `step ${formatCount(job.last_checkpoint_step)}` : "none yet"],
  ];
  const facts: [string, preact.ComponentChildren][] = [
    ...training,
    ["Attempt", job.attempts.at(-1)?.number ?? "–"],
    ["Waited", formatDuration(between(job.submitted_at, job.started_at || job.ended_at, now))],
    ["Ran", formatDuration(ran(job, now))],
    ...scheduler(job),
    ["Submitted", `${formatTime(job.submitted_at)}${job.user ? ` by ${job.user}` : ""}`],
  ];
  const isLong = (value: preact.ComponentChildren) => typeof value === "string" && value.length > LONG_FACT;
  return (
    <dl class="facts">
      {facts.map(([name, value]) => <div key={name} class={isLong(value) ? "long" : ""}><dt>{name}</dt><dd class="num">{value}</dd></div>)}
    </dl>
  );
}

// Where a scheduler has put it.
function scheduler(job: Job): [string, preact.ComponentChildren][] {
  const attempt = job.attempts.at(-1);
  const facts: [string, preact.ComponentChildren][] = [];
  if (attempt?.scheduler_job) facts.push(["Slurm job", attempt.scheduler_job]);
  if (attempt?.scheduler_job && attempt.nodes?.length) facts.push(["Nodes", formatNodes(attempt.nodes)]);
  if (job.time_limit_ms) facts.push(["Time limit", formatDuration(job.time_limit_ms)]);
  if (job.sweep?.sweep) {
    facts.push(["Sweep", <Link to={`/?sweep=${encodeURIComponent(job.sweep.sweep)}`}>{job.sweep.sweep}</Link>]);
    const settings = formatSettings(job.sweep.settings);
    if (settings) facts.push(["Its settings", settings]);
  }
  return facts;
}

// Time in attempts alone: the pauses between them are no running.
function ran(job: Job, now: number): number | null {
  const times = job.attempts.map((attempt) => between(attempt.started_at, attempt.ended_at, now));
  return times.every((time) => time === null) ? null : times.reduce<number>((sum, time) => sum + (time ?? 0), 0);
}

// The job, its steps and its events, kept up to date.
function useJob(id: number) {
  const [job, setJob] = useState<Job | null>(null);
  const [fetchedAt, setFetchedAt] = useState(0);
  const [metrics, setMetrics] = useState<Metric[]>([]);
  const [events, setEvents] = useState<JobEvent[]>([]);
  const [error, setError] = useState<ApiError | null>(null);
  const last = useRef<Metric | null>(null);
  const lastEvent = useRef(0);
  const guarded = (work: () => Promise<void>) => () =>
    work().then(() => setError(null), (caught) => setError(asApiError(caught)));

  const loadJob = useThrottled(guarded(async () => {
    setJob(await get<Job>(`jobs/${id}`));
    setFetchedAt(Date.now());
  }), 300);
  const loadMetrics = useThrottled(guarded(async () => {
    for (let more = true; more;) {
      const from = last.current ? `?after_attempt=${last.current.attempt}&after_step=${last.current.step}` : "";
      const page = await get<{ metrics: Metric[]; more: boolean }>(`jobs/${id}/metrics${from}`);
      more = page.more;
      if (page.metrics.length === 0) return;
      last.current = page.metrics.at(-1)!;
      setMetrics((old) => [...old, ...page.metrics]);
    }
  }), 900);
  const loadEvents = useThrottled(guarded(async () => {
    for (let more = true; more;) {
      const page = await get<{ events: JobEvent[]; more: boolean }>(`jobs/${id}/events?after_id=${lastEvent.current}`);
      more = page.more;
      if (page.events.length === 0) return;
      lastEvent.current = page.events.at(-1)!.id;
      setEvents((old) => [...old, ...page.events].slice(-MAX_EVENTS));
    }
  }), 300);

  const loadAll = () => {
    loadJob();
    loadMetrics();
    loadEvents();
  };
  useEffect(loadAll, []);
  const active = job !== null && !ENDED.includes(job.state);
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(() => !document.hidden && loadJob(), HEARTBEATS_MS);
    return () => clearInterval(timer);
  }, [active]);
  useLive((message) => {
    if (message.kind === "refresh") return loadAll();
    if (message.kind !== "event" || (message.data as Progress).job_id !== id) return;
    if (message.type === "job-changed") loadAll();
    if (message.type === "progress") {
      setJob((old) => old && withProgress(old, message.data as Progress));
      loadMetrics();
    }
  });
  return { job, setJob, fetchedAt, metrics, events, error };
}

export function JobPage({ id }: { id: number }) {
  const { job, setJob, fetchedAt, metrics, events, error } = useJob(id);
  const now = useNow();
  useEffect(() => {
    document.title = job ? `${job.state} · ${job.name} · muster` : `Job ${id} · muster`;
  }, [job?.state, job?.name]);
  if (!job)
    return (
      <main class="page">
        <h1>Job {id}</h1>
        {error?.status === 404 ? <Empty title={`There is no job ${id}.`}><Link to="/">All jobs</Link></Empty>
          : error ? <ErrorNotice error={error} /> : <p class="muted">Loading…</p>}
      </main>
    );
  return (
    <main class="page job">
      <p class="crumb"><Link to="/">Jobs</Link> <span aria-hidden="true">/</span> {job.id}</p>
      <div class={`headline ${tone(job.state)}`}>
        <div>
          <h1>{job.name || `job ${job.id}`} <StateOf job={job} /></h1>
          <p class="why lead">{job.reason && <>{job.reason.replace(/\.$/, "")}. </>}<span class="muted">{advice(job, now)}</span></p>
          {/* Of a job that someone holds, or with nobody to ask, the queue says nothing new. */}
          {job.state === "queued" && !job.held_by && !job.scheduler_problem && <QueueNote job={job} />}
        </div>
        <Actions job={job} onChanged={setJob} />
      </div>
      {job.scheduler_problem && (
        <div class="notice" role="status">
          <strong>Slurm can't be asked about this job now.</strong> What is said here of its queue and its end may be old.
        </div>
      )}
      <LaterError error={error} />
      <Facts job={job} now={now} />
      <section><h2>Training</h2><Plots metrics={metrics} isCommand={job.kind === "command"} /></section>
      <section><h2>Ranks</h2><Ranks job={job} fetchedAt={fetchedAt} /></section>
      <div class="two">
        <section><h2>Attempts</h2><Timeline job={job} /></section>
        <section><h2>Events</h2><Events events={events} /></section>
      </div>
      <section><h2>Log</h2><Logs job={job} /></section>
    </main>
  );
}
