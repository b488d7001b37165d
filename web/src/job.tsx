import { useEffect, useRef, useState } from "preact/hooks";
import { Actions } from "./actions";
import { get, type ApiError } from "./api";
import { WHOLE_RUN, type View } from "./curves";
import { Events } from "./events";
import { between, formatCount, formatDuration, formatNodes, formatNumber, formatSettings, formatTime, formatValue, withLocalTimes } from "./format";
import { asApiError, useLive, useNow, useThrottled } from "./hooks";
import { ProgressBar, withProgress } from "./jobs";
import { Link } from "./link";
import { Logs } from "./logs";
import { Empty, ErrorNotice, LaterError, sentence, WithCommands } from "./notice";
import { Plots } from "./plots";
import { Checkpoints, Configuration, Trace } from "./program";
import { look, NOTHING_FOUND, tellsOfTheModel, titleOf, unknownNames } from "./quantities";
import { Ranks } from "./ranks";
import { Settings } from "./settings";
import { Stacks } from "./stacks";
import { StateOf, tone } from "./state";
import { Timeline } from "./timeline";
import { useCurves } from "./use_curves";
import { ENDED, type Job, type JobEvent, type JobSeries, type Progress } from "./types";

const LOAD_MS = 3000;
const MAX_EVENTS = 2000;
const LONG_FACT = 15;
const SERIES_FACTS = 4;

// This page shows the end of the log, so the advice needs no command for it.
const adviceOf = (job: Job): string =>
  sentence(withLocalTimes(job.action)).replace(/ \(muster logs \d+ --tail \d+[^)]*\)/, " below");

// Why the job is in its state and what a person can do, in the words of the controller.
function Standing({ job }: { job: Job }) {
  const reason = withLocalTimes(job.reason);
  const at = job.expected_start ? formatTime(job.expected_start) : "";
  const start = at && !reason.includes(at) ? `Expected to start at ${at}. ` : "";
  const word = job.scheduler_reason ? `Slurm says: ${job.scheduler_reason}.` : "";
  return (
    <div aria-live="polite">
      {reason && <p class="why">{sentence(reason)}</p>}
      {job.action && <p class="why muted"><WithCommands text={adviceOf(job)} /></p>}
      {(start || word) && <p class="why muted">{start}{word}</p>}
    </div>
  );
}

const shown = (known: boolean, name: string, value: preact.ComponentChildren): [string, preact.ComponentChildren][] =>
  known ? [[name, value]] : [];

// The series that the controller takes the job's loss from.
const isLoss = (series: JobSeries): boolean => series.quantity === "loss" && !series.held_out;

const SPEEDS = ["tokens_per_s", "samples_per_s"];

// The newest values of the series that tell how good the model is, without the loss: those on held-out data first.
function quality(job: Job): [string, preact.ComponentChildren][] {
  const telling = job.series.filter((one) => !SPEEDS.includes(one.name) && !isLoss(one) && tellsOfTheModel(one))
    .sort((a, b) => Number(b.held_out) - Number(a.held_out));
  return telling.slice(0, SERIES_FACTS).map(({ name, value, unit }) => [titleOf(name.replaceAll("/", " ")), value === null ? "no number" : formatValue(value, unit)]);
}

// A training of images has no tokens.
function speed(job: Job, recipe: boolean): [string, preact.ComponentChildren][] {
  const samples = job.series.find((one) => one.name === "samples_per_s")?.value ?? null;
  if (!job.tokens_per_s && samples !== null) return [["Samples/s", formatCount(samples)]];
  return shown(recipe || !!job.tokens_per_s, "Tokens/s", formatCount(job.tokens_per_s));
}

function Facts({ job, now }: { job: Job; now: number }) {
  // A command need not report anything. The page leaves out what a command never reported.
  const begun = job.attempts.length > 0;
  const recipe = begun && job.kind !== "command";
  const waited = between(job.submitted_at, job.started_at || job.ended_at, now) ?? 0;
  const hasLoss = job.series.some(isLoss);
  const facts: [string, preact.ComponentChildren][] = [
    ...shown(!!job.program_status, "Status", job.program_status),
    ...shown(recipe || (job.step ?? 0) > 0, "Step", <ProgressBar job={job} />),
    ...shown(recipe || hasLoss || !!job.loss, "Loss", hasLoss && job.loss === null ? "no number" : formatNumber(job.loss)),
    ...quality(job),
    ...speed(job, recipe),
    ...shown(recipe || job.last_checkpoint_step > 0, "Checkpoint",
      job.last_checkpoint_step ? `step ${formatCount(job.last_checkpoint_step)}` : "none yet"),
    ...shown(begun, "Attempt", job.attempts.at(-1)?.number),
    ...shown(waited >= 1000, "Waited", formatDuration(waited)),
    ...shown(begun, "Ran", formatDuration(ran(job, now))),
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

// The place of the job in a scheduler and in a sweep.
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

// The time of all attempts, without the pauses between them.
function ran(job: Job, now: number): number | null {
  const times = job.attempts.map((attempt) => between(attempt.started_at, attempt.ended_at, now));
  return times.every((time) => time === null) ? null : times.reduce<number>((sum, time) => sum + (time ?? 0), 0);
}

// The job, its curves and its events, kept up to date.
function useJob(id: number, view: View) {
  const [job, setJob] = useState<Job | null>(null);
  const { curves, error: curvesError, follow } = useCurves(id, view);
  const [events, setEvents] = useState<JobEvent[]>([]);
  const [errors, setErrors] = useState<{ [what: string]: ApiError | null }>({});
  const lastEvent = useRef(0);
  // Each request keeps its own error. The events of a removed job are still there, but the job is not.
  const guarded = (what: string, work: () => Promise<void>) => () => {
    const settle = (error: ApiError | null) => setErrors((old) => (old[what] === error ? old : { ...old, [what]: error }));
    return work().then(() => settle(null), (caught) => settle(asApiError(caught)));
  };

  const loadJob = useThrottled(guarded("job", async () => {
    setJob(await get<Job>(`jobs/${id}?ranks=0`));
  }), 300);
  const loadEvents = useThrottled(guarded("events", async () => {
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
    follow();
    loadEvents();
  };
  useEffect(loadAll, []);
  const found = useRef(NOTHING_FOUND);
  if (curves) found.current = look(found.current, curves, !view.zoom);
  // Only the job tells what a new series measures, so the job is read again, once for each name.
  const asked = useRef(new Set<string>());
  useEffect(() => {
    const fresh = job ? unknownNames(job.series, found.current).filter((name) => !asked.current.has(name)) : [];
    for (const name of fresh) asked.current.add(name);
    if (fresh.length > 0) loadJob();
  }, [job?.series, found.current]);
  const active = job !== null && !ENDED.includes(job.state);
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(() => !document.hidden && loadJob(), LOAD_MS);
    return () => clearInterval(timer);
  }, [active]);
  useLive((message) => {
    if (message.kind === "refresh") return loadAll();
    if (message.kind !== "event" || (message.data as Progress).job_id !== id) return;
    if (message.type === "job-changed") loadAll();
    if (message.type === "progress") {
      setJob((old) => old && withProgress(old, message.data as Progress));
      follow();
    }
  });
  const error = errors.job ?? curvesError ?? errors.events ?? null;
  return { job, setJob, curves, found: found.current, events, error };
}

export function JobPage({ id }: { id: number }) {
  const [view, setView] = useState(WHOLE_RUN);
  const { job, setJob, curves, found, events, error } = useJob(id, view);
  const now = useNow();
  useEffect(() => {
    document.title = job ? `${job.status} · ${job.name} · muster` : `Job ${id} · muster`;
  }, [job?.status, job?.name]);
  if (!job)
    return (
      <main class="page">
        <h1>Job {id}</h1>
        {error?.status === 404 ? <Empty title={sentence(error.message)}><Link to="/">All jobs</Link></Empty>
          : error ? <ErrorNotice error={error} /> : <p class="muted">Loading…</p>}
      </main>
    );
  const begun = job.attempts.length > 0;
  const log = <section><h2>Log</h2><Logs job={job} /></section>;
  return (
    <main class="page job">
      <p class="crumb"><Link to="/">Jobs</Link> <span aria-hidden="true">/</span> {job.id}</p>
      <div class={`headline ${tone(job.state)}`}>
        <div>
          <h1>{job.name || `job ${job.id}`} <StateOf job={job} /></h1>
          <Standing job={job} />
        </div>
        <Actions job={job} onChanged={setJob} />
      </div>
      {job.scheduler_problem && (
        <div class="notice" role="status">
          <strong>Slurm can't be asked about this job now.</strong> What is said here of its queue and its end may be old.
        </div>
      )}
      <LaterError error={error} />
      {/* A reader of a failed job looks for its last output. */}
      {begun && job.state === "failed" && <><Trace job={job} />{log}</>}
      <Facts job={job} now={now} />
      {begun && <section><h2>Training</h2><Plots curves={curves} found={found} job={job} view={view} onView={setView} /></section>}
      <Configuration job={job} />
      {begun && <section><h2>Ranks</h2><Ranks job={job} /></section>}
      {begun && <Stacks job={job} />}
      <Checkpoints job={job} />
      <div class={begun ? "two" : ""}>
        {begun && <section><h2>Attempts</h2><Timeline job={job} /></section>}
        <section><h2>Events</h2><Events events={events} /></section>
      </div>
      {begun && job.state !== "failed" && log}
      <Settings job={job} />
    </main>
  );
}
