// The shapes of proto/muster/v1/job.proto, as the API's JSON gives them.
export interface Attempt {
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
  slowness?: number | null; // present while the rank is slow: how many times the median
  attempt: number;
  exit_code: number | null;
  signal: number | null;
}

export interface Heartbeats {
  attempt: number;
  ages_ms: (number | null)[]; // by rank
}

/// What may be asked of a job: why not, and what it would do.
export interface Controls {
  cancel_refusal: string;
  requeue_refusal: string;
  hold_refusal: string;
  release_refusal: string;
  cancel_effect: string;
  requeue_effect: string;
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
  controls: Controls | null; // of a job asked for by itself
  user: string;
  kind: string;
  submitted_at: string;
  started_at: string;
  ended_at: string;
  next_attempt_at: string;
  attempts: Attempt[];
  ranks: Rank[];
  step: number | null;
  steps_total: number;
  last_checkpoint_step: number;
  loss: number | null;
  tokens_per_s: number | null;
  series: JobSeries[]; // of a job asked for by itself
  version: number;
  log_folder: string;
  checkpoint_folder: string;
  held_by?: string;
  waits_for?: string[];
  time_limit_ms?: number;
  scheduler_problem?: string;
  sweep?: Sweep | null;
  spec: { resources: { nodes: number; ranks_per_node: number } | null } | null;
}

/// Where a job stands in a sweep, and what differs there from the job file.
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

/// One series, or what ranks measure of themselves, in points: a point is the value of one step of one attempt. The four
/// columns are equally long. Of each bucket of steps the lowest, the highest and the last value are there.
export interface Curve {
  name: string;
  values: number; // how many were reported
  steps: number; // since the first of these values
  attempt: number[];
  step: number[];
  at_ms: number[];
  value: (number | null)[]; // null: it was no number
}

/// The curves of a job, of a range of steps.
export interface Curves {
  attempts: { attempt: number; first_step: number; last_step: number }[]; // all that have steps, whatever the range
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
