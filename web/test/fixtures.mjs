// One job of each kind, as a controller would tell them.
const MIB = 2 ** 20;

export function attempt(number, more = {}) {
  return {
    number, state: "ended", cause: "", reason: "", started_at: "2026-03-01T09:00:05.000Z", ended_at: "",
    resumed_from_step: 0, reason_started: "", ...more,
  };
}

export function rank(number, more = {}) {
  return {
    rank: number, node: "tower", pid: 4100 + number, state: "running", section: "step", step: 64, last_heartbeat_ms: 420,
    memory_bytes: 1228 * MIB, memory_peak_bytes: 1638 * MIB, step_ms: 210 + number, attempt: 2, ...more,
  };
}

export function job(id, state, more = {}) {
  return {
    id, name: `job-${id}`, state, reason: "", user: "ana", kind: "recipe", submitted_at: "2026-03-01T09:00:00.000Z",
    started_at: "2026-03-01T09:00:05.000Z", ended_at: "", attempts: [attempt(1)], ranks: [], step: 0, steps_total: 120,
    last_checkpoint_step: 0, version: 1, checkpoint_folder: `/var/lib/muster/jobs/${id}/checkpoints`,
    spec: { name: `job-${id}`, resources: { nodes: 1, ranks_per_node: 4 } }, ...more,
  };
}

/// A series as a controller tells of it with its job.
export function series(name, more = {}) {
  const held_out = /^(validation|eval)[/_]/.test(name);
  return {
    name, unit: "", better: "neither", over_ranks: "mean", quantity: held_out ? name.replace(/^\w+?[/_]/, "") : name, held_out,
    attempt: 2, step: 64, value: 1, ...more,
  };
}

/// What a recipe reports.
export const RECIPE_SERIES = [
  series("loss", { unit: "nats", better: "lower", over_ranks: "rank0" }),
  series("validation/loss", { unit: "nats", better: "lower", over_ranks: "rank0", step: 60, value: 2.441 }),
  series("tokens_per_s", { unit: "tokens/s", better: "higher", over_ranks: "rank0" }),
];

/// One step. `more.series`: further series.
export function metric(number, step, { series: others, ...more } = {}) {
  const noise = Math.sin(step * 12.9898 + number) * 0.15;
  const row = {
    attempt: number, step, loss: 1.6 + 4 * Math.exp(-step / 30) + noise, tokens_per_s: 18200 + 900 * noise,
    step_ms: 211, memory_peak_bytes: 1638 * MIB, memory_bytes: 1228 * MIB, bytes_communicated: null,
    at_ms: Date.UTC(2026, 2, 1, 9, number * 2) + step * 211, ...more,
  };
  const validation = step % 20 === 0 ? { "validation/loss": 1.9 + 4 * Math.exp(-step / 30) } : {};
  return { ...row, series: { loss: row.loss, tokens_per_s: row.tokens_per_s, ...validation, ...others } };
}

/// The curves of these steps, as a controller gives them when it leaves none out. `metrics` ordered by attempt, then step.
export function curvesOf(metrics) {
  const attempts = [];
  const known = { series: new Map(), measures: new Map() };
  metrics.forEach((row, i) => {
    if (attempts.at(-1)?.attempt !== row.attempt) attempts.push({ attempt: row.attempt, first_step: row.step, rows_from_step: 0 });
    attempts.at(-1).last_step = row.step;
    const add = (kind, name, value) => {
      if (!known[kind].has(name)) known[kind].set(name, { name, values: 0, steps: metrics.length - i, attempt: [], step: [], at_ms: [], value: [], last: [] });
      const curve = known[kind].get(name);
      ++curve.values;
      for (const [column, one] of Object.entries({ attempt: row.attempt, step: row.step, at_ms: row.at_ms, value, last: 1 })) curve[column].push(one);
    };
    for (const [name, value] of Object.entries(row.series)) add("series", name, value);
    for (const name of ["step_ms", "memory_peak_bytes", "bytes_communicated"]) if (row[name] != null) add("measures", name, row[name]);
  });
  return { attempts, bucket_steps: 1, series: [...known.series.values()], measures: [...known.measures.values()] };
}

export const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/// Jobs 1 to 7: 1 runs in its second attempt, resumed from step 40 after reaching 55; the others have ended or wait.
export async function fill(server) {
  const ended_at = "2026-03-01T09:42:10.000Z";
  await server.tell({ do: "job", job: job(1, "running", {
    name: "llama-70m-manpages", reason: "attempt 2 runs since step 40",
    attempts: [
      attempt(1, { cause: "failed", reason: "rank 1 was killed by SIGKILL; the job goes on with attempt 2", rank: 1, signal: 9,
        ended_at: "2026-03-01T09:02:00.000Z", reason_started: "submitted" }),
      attempt(2, { state: "running", resumed_from_step: 40, reason_started: "rank 1 of attempt 1 was killed by SIGKILL",
        started_at: "2026-03-01T09:02:03.000Z" }),
    ],
    ranks: [rank(0), rank(1, { section: "data" }), rank(2, { step_ms: 520, slowness: 2.5 })],
    last_checkpoint_step: 60, series: RECIPE_SERIES,
  }) });
  await server.tell({ do: "job", job: job(2, "failed", {
    name: "chess-policy", ended_at, step: 31, loss: 4.12, tokens_per_s: 9100,
    reason: "rank 0 exited with 1 three times without progress: no such file: /data/games.bin",
    attempts: [attempt(3, { cause: "failed", rank: 0, exit_code: 1, reason: "rank 0 exited with 1", ended_at })] }) });
  await server.tell({ do: "job", job: job(3, "succeeded", {
    name: "classify-packages", ended_at, step: 120, loss: 0.0213, tokens_per_s: 22410, reason: "every rank is done",
    attempts: [attempt(1, { cause: "completed", ended_at })] }) });
  await server.tell({ do: "job", job: job(4, "waiting", {
    name: "summaries-long-context", step: 77, loss: 2.8, reason: "preempted at step 77; attempt 5 starts after a pause",
    next_attempt_at: "2099-01-01T00:00:00.000Z", attempts: [attempt(4, { cause: "preempted", ended_at })] }) });
  await server.tell({ do: "job", job: job(5, "cancelled", { name: "typo", ended_at, reason: "cancelled by ana", attempts: [] }) });
  await server.tell({ do: "job", job: job(6, "pending", { name: "next-one", started_at: "", reason: "waits for its first attempt", attempts: [] }) });
  await server.tell({ do: "job", job: job(7, "running", {
    name: "own-trainer", kind: "command", steps_total: 0, reason: "python3 train.py runs", attempts: [attempt(1, { state: "running" })],
    ranks: [rank(0, { last_heartbeat_ms: null, section: "", step: 0, memory_bytes: 0, memory_peak_bytes: 0, step_ms: 0, attempt: 1 })],
    spec: { name: "own-trainer", resources: { nodes: 1, ranks_per_node: 1 } } }) });
  await server.tell({ do: "metrics", job_id: 1, metrics: range(1, 55).map((step) => metric(1, step)) });
  await server.tell({ do: "metrics", job_id: 1, metrics: range(41, 64).map((step) => metric(2, step)) });
  const say = (type, text) => server.tell({ do: "event", job_id: 1, type, text });
  await say("job_submitted", "submitted by ana");
  await say("attempt_launched", "attempt 1 started on tower");
  await say("rank_exited", "rank 1 was killed by SIGKILL; attempt 2 follows");
  await say("attempt_resumed", "attempt 2 resumed from step 40");
  for (const number of range(0, 3)) {
    const text = range(41, 64).map((step) => `step ${step} loss ${metric(2, step).loss.toFixed(4)} rank ${number}\n`).join("");
    await server.tell({ do: "log", job_id: 1, attempt: 2, rank: number, text });
  }
}

/// Job 10 is held, 11 to 14 are a sweep of which two wait for their turn, and job 7 writes in every colour.
export async function fillMore(server) {
  await server.tell({ do: "job", job: job(10, "pending", { name: "later", started_at: "", held_by: "ana", attempts: [] }) });
  for (const index of range(0, 3)) {
    const runs = index < 2;
    await server.tell({ do: "job", job: job(11 + index, runs ? "running" : "pending", {
      name: `tune-${index}`, attempts: runs ? [attempt(1, { state: "running" })] : [], ...(runs ? {} : { started_at: "" }),
      sweep: { sweep: "s11", index, settings: { "train.learning_rate": `${index + 1}e-3`, "train.seed": String(index) } },
      reason: runs ? "attempt 1: running" : "waits for its turn: at most 2 of sweep s11 have an attempt at once" }) });
  }
  const codes = [...range(30, 37), ...range(90, 97), ...range(40, 47), ...range(100, 107), 1, 7];
  const colours = codes.map((code) => `\x1b[${code}mcode ${code}\x1b[0m`).join(" ");
  await server.tell({ do: "log", job_id: 7, attempt: 1, rank: 0, text: `${colours}\n\r 60%|######    | 6/10 [00:07<00:05, 1.2it/s]` });
}
