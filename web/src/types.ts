// The shapes of proto/muster/v1/job.proto, as the API's JSON gives them.
export interface Checkpointed {
  step: number;
  attempt: number;
  path: string;
  bytes?: number | null; // null: not told
  saved_at: string;
}

export interface Attempt {
  trace?: string; // what the program reported with the error that ended the attempt
  number: number;
  state: string;
  cause: string;
  reason: string;
  started_at: string;
  ended_at: string;
  resumed_from_step: number | null;
  reason_started: string;
  exit_code: number | null;
  signal: number | null;
  rank: number | null;
  queued_at?: string;
  scheduler_job?: string;
  nodes?: string[];
}

/// The machine of the controller, where local jobs run.
export interface Machine {
  name: string;
  gpus: { number: number; id: string; name: string; job_id: number; attempt: number; held_back?: boolean }[]; // job_id 0: nobody has it
  cores: number; // 0: cores are not counted
  cores_taken: number;
  holders: { job_id: number; attempt: number; gpus: string[]; cores: number }[];
  waiting: number[]; // jobs, the next one first
}

/// What the processes of a rank use, sampled from outside.
export interface RankUse {
  cores: number | null;
  memory_bytes: number | null;
  memory_peak_bytes: number | null;
  gpu_percent: number | null;
  gpu_memory_bytes: number | null;
}

export interface Rank {
  rank: number;
  node: string;
  pid: number;
  state: string;
  section: string;
  step: number | null;
  last_heartbeat_ms: number | null;
  memory_bytes: number;
  memory_peak_bytes: number;
  step_ms: number;
  slowness?: number | null; // how many times the median; only while the rank is slow
  attempt: number;
  exit_code: number | null;
  signal: number | null;
  stopped_by_muster: boolean;
  use?: RankUse | null;
  gpus?: string; // "0,1": those that it was given of the controller's machine
}

/// A part of the ranks of the newest attempt.
export interface RankPage {
  attempt: number;
  total: number; // of the ranks that were asked for
  states: Record<string, number>; // how many of all ranks are in each state
  slow: number;
  ranks: Rank[];
}

/// Stacks of the ranks of an attempt that were taken at one moment.
export interface StackSet {
  number: number;
  at_ms: number;
  why: string; // "suspected", "before_end", "asked"
  user: string; // who has asked; "": muster
  given: number; // how many of the ranks have given one
  ranks: number;
  over: boolean; // no rank is waited for any more
}
export interface RankStack {
  rank: number;
  text: string;
  problem: string; // why there is none
}
export interface StacksView {
  job_id: number;
  attempt: number;
  sets: StackSet[]; // oldest first
  shown: StackSet | null; // null: there is none
  summary: string;
  groups: { ranks: number[]; parts_at: string; innermost: string }[]; // the largest first
  ranks: RankStack[]; // a part of them
}

/// Why each request is refused (empty: it is not), and what it would do.
export interface Controls {
  cancel_refusal: string;
  requeue_refusal: string;
  hold_refusal: string;
  release_refusal: string;
  cancel_effect: string;
  requeue_effect: string;
  time_limit_refusal: string;
  remove_refusal: string;
}

export interface Job {
  id: number;
  name: string;
  state: string;
  status: string; // the word for the state: "held", "running, held"
  reason: string;
  action: string;
  scheduler_reason: string;
  expected_start: string;
  controls: Controls | null; // only of a single job, not in lists
  user: string;
  kind: string;
  submitted_at: string;
  started_at: string;
  ended_at: string;
  next_attempt_at: string;
  attempts: Attempt[];
  ranks_total: number;
  step: number | null;
  steps_total: number;
  program_status?: string; // what the program says that it does
  config?: Record<string, string>; // the settings that the program has told
  checkpoints?: Checkpointed[]; // newest first
  last_checkpoint_step: number;
  loss: number | null;
  tokens_per_s: number | null;
  series: JobSeries[]; // only of a single job, not in lists
  version: number;
  log_folder: string;
  checkpoint_folder: string;
  held_by?: string;
  waits_for?: string[];
  time_limit_ms?: number;
  scheduler_problem?: string;
  sweep?: Sweep | null;
  spec: object | null;
}

/// The place of a job in a sweep, and its settings that differ from the job file.
export interface Sweep {
  sweep: string;
  index: number;
  settings?: Record<string, string>;
}

/// One series of a job, and its newest value.
export interface JobSeries {
  name: string;
  unit: string;
  better: string; // "lower", "higher", "neither"
  over_ranks: string;
  quantity: string; // one plot holds one quantity
  held_out: boolean;
  attempt: number;
  step: number;
  value: number | null; // null: it was no number
}

/// The points of one series, or of one measure of the ranks. A point is the value of one step of one attempt. The
/// columns are equally long. Each bucket of steps keeps its lowest, its highest and its last value.
export interface Curve {
  name: string;
  values: number; // how many were reported
  steps: number; // since the first of these values
  attempt: number[];
  step: number[];
  at_ms: number[];
  value: (number | null)[]; // null: it was no number
  last: (0 | 1)[]; // 1: the last value of its bucket
}

/// The curves of a job, of a range of steps.
export interface Curves {
  // Every attempt with steps, whatever the range. The rows of the steps before rows_from_step have aged out.
  attempts: { attempt: number; first_step: number; last_step: number; rows_from_step: number }[];
  bucket_steps: number; // 1: every value is there
  series: Curve[];
  measures: Curve[];
}

export interface JobEvent {
  id: number;
  job_id: number;
  version: number;
  at: string;
  type: string;
  attempt: number;
  job_state: string;
  text: string;
}

export interface Progress {
  job_id: number;
  attempt: number;
  state: string;
  status: string;
  step: number;
  steps_total: number;
  loss: number | null;
  tokens_per_s: number | null;
  last_checkpoint_step: number;
  version: number;
}

export interface LogPiece {
  attempt: number;
  rank: number;
  text: string;
  next_offset: number;
  exists: boolean;
  cut: boolean;
}

export interface Status {
  version: string;
  started_at: string;
  executor: string;
  store_problem: string;
  scheduler_problem?: string;
  partition_problems?: string[];
}

export const ENDED = ["succeeded", "failed", "cancelled"];
export const STATES = ["pending", "queued", "running", "stopping", "waiting", "succeeded", "failed", "cancelled"];
