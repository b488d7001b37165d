// The curves of a job as the API gives them: at most a few thousand points of a range of steps. A page that follows a job
// asks only for new steps. After many of them the page asks for the whole range again.
import type { Curve, Curves } from "./types";

/// Most points of a curve that one answer holds.
export const POINTS = 2000;

/// Steps, both ends included.
export interface Range {
  from: number;
  to: number;
}

/// What a reader looks at.
export interface View {
  zoom: Range | null; // null: the whole run
  log: boolean; // the step axis is logarithmic
}

export const WHOLE_RUN: View = { zoom: null, log: false };

/// The steps that the job has, or null if it has none.
export function wholeRange({ attempts }: Curves): Range | null {
  if (attempts.length === 0) return null;
  return { from: Math.min(...attempts.map((one) => one.first_step)), to: Math.max(...attempts.map((one) => one.last_step)) };
}

function appendTo(old: Curve[], more: Curve[]): Curve[] {
  const known = new Map(old.map((curve) => [curve.name, curve]));
  for (const curve of more) {
    const before = known.get(curve.name);
    known.set(curve.name, !before ? curve : {
      name: curve.name,
      values: before.values + curve.values,
      steps: before.steps + curve.steps,
      attempt: before.attempt.concat(curve.attempt),
      step: before.step.concat(curve.step),
      at_ms: before.at_ms.concat(curve.at_ms),
      value: before.value.concat(curve.value),
      last: before.last.concat(curve.last),
    });
  }
  return [...known.values()];
}

/// `more` holds the steps after the last one of `old`. Returns `old` itself if there are none.
export function append(old: Curves, more: Curves): Curves {
  const last = old.attempts.at(-1);
  const now = more.attempts.at(-1);
  if (last?.attempt === now?.attempt && last?.last_step === now?.last_step) return old;
  return {
    attempts: more.attempts,
    bucket_steps: Math.max(old.bucket_steps, more.bucket_steps),
    series: appendTo(old.series, more.series),
    measures: appendTo(old.measures, more.measures),
  };
}

/// The page asks for the steps after this one. null: the page asks for all steps.
export function position(curves: Curves | null): { attempt: number; step: number } | null {
  const last = curves?.attempts.at(-1);
  const longest = Math.max(0, ...[...(curves?.series ?? []), ...(curves?.measures ?? [])].map((curve) => curve.step.length));
  return last && longest < 2 * POINTS ? { attempt: last.attempt, step: last.last_step } : null;
}
