// From the steps that ranks reported to the lines of a plot. A resumed attempt rewinds: it repeats steps after the
// checkpoint it resumed from. The newest attempt's word counts; what it overtook is kept apart as "lost".
import type { Metric } from "./types";

export interface Point {
  attempt: number;
  step: number;
  at_ms: number;
  value: number;
  smooth: number | null; // null where lost
  mark: number | null; // a second value that only some steps have
  lost: boolean;
}

/// `metrics` ordered by attempt, then step. Each step is kept once, of the newest attempt that reached it.
export function points(
  metrics: Metric[],
  field: (metric: Metric) => number | null,
  smoothing: number,
  mark: (metric: Metric) => number | null = () => null,
): Point[] {
  const firstLater = new Map<number, number>(); // attempt -> first step of any later attempt
  let first = Infinity;
  for (let i = metrics.length - 1; i >= 0; --i) {
    const metric = metrics[i]!;
    if (!firstLater.has(metric.attempt)) firstLater.set(metric.attempt, first);
    const earlier = metrics[i - 1];
    if (!earlier || earlier.attempt !== metric.attempt) first = Math.min(first, metric.step);
  }
  const out: Point[] = [];
  let attempt = -1;
  let sum = 0;
  let weight = 0;
  for (const metric of metrics) {
    const value = field(metric);
    if (value === null || !Number.isFinite(value)) continue;
    const lost = metric.step >= firstLater.get(metric.attempt)!;
    if (metric.attempt !== attempt) [attempt, sum, weight] = [metric.attempt, 0, 0];
    // An exponential mean that does not lean towards zero at its start.
    sum = sum * smoothing + value * (1 - smoothing);
    weight = weight * smoothing + (1 - smoothing);
    const { step, at_ms } = metric;
    out.push({ attempt, step, at_ms, value, smooth: lost ? null : sum / weight, mark: lost ? null : mark(metric), lost });
  }
  return out;
}

export type XAxis = "step" | "time";
type Column = (number | null)[];

/// Columns for uPlot: x, raw, smooth, lost, mark. A column of nulls between two attempts breaks the line. A logarithmic
/// axis leaves out what has no logarithm.
export function columns(all: Point[], axis: XAxis, logX: boolean, logY: boolean): [number[], Column, Column, Column, Column] {
  const x = (point: Point) => (axis === "step" ? point.step : point.at_ms / 1000);
  const shown = all.filter((point) => (!logY || point.value > 0) && (!logX || x(point) > 0));
  const kept = shown.filter((point) => !point.lost);
  const rows = new Map<number, Column>();
  let before: Point | undefined;
  for (const point of kept) {
    if (before && before.attempt !== point.attempt) rows.set((x(before) + x(point)) / 2, [null, null, null, null]);
    rows.set(x(point), [point.value, point.smooth, null, point.mark]);
    before = point;
  }
  for (const point of shown) {
    if (!point.lost) continue;
    const row = rows.get(x(point));
    if (row) row[2] = point.value;
    else rows.set(x(point), [null, null, point.value, null]);
  }
  const xs = [...rows.keys()].sort((a, b) => a - b);
  const column = (index: number): Column => xs.map((key) => rows.get(key)![index]!);
  return [xs, column(0), column(1), column(2), column(3)];
}
