// Makes the lines of a plot from the points of curves. A resumed attempt rewinds: it repeats the steps after its
// checkpoint. The newest attempt counts. Steps that a later attempt repeats are "lost" and are drawn apart.
import type { Range } from "./curves";
import type { Line, Value } from "./quantities";
import type { Curve, Curves } from "./types";

/// One step of one attempt, with a value of each line of a plot.
export interface Row {
  attempt: number;
  step: number;
  at_ms: number;
  values: Value[];
  smooth: Value[]; // the value itself if the line is not smoothed; undefined: the smoothed line has no point here
  lost: boolean;
}

type Drawn = Pick<Line, "of" | "smoothed">;

/// attempt -> the first step of any later attempt
function firstLater(attempts: Curves["attempts"]): Map<number, number> {
  const later = new Map<number, number>();
  let first = Infinity;
  for (const one of [...attempts].reverse()) {
    later.set(one.attempt, first);
    first = Math.min(first, one.first_step);
  }
  return later;
}

/// The points of all lines, ordered by attempt, then step. A step counts in the newest attempt that reached it. A step
/// without any value has no row.
export function rows(curves: Curves, lines: Drawn[], smoothing: number, zoom: Range | null = null): Row[] {
  const later = firstLater(curves.attempts);
  const sources = lines.map((line) => line.of(curves));
  const at = sources.map(() => 0);
  const isBefore = (a: Curve, i: number, b: Curve, j: number) =>
    a.attempt[i]! < b.attempt[j]! || (a.attempt[i] === b.attempt[j] && a.step[i]! < b.step[j]!);
  const out: Row[] = [];
  let attempt = -1;
  let means: Mean[] = [];
  for (;;) {
    let next = -1;
    sources.forEach((curve, i) => {
      if (!curve || at[i]! >= curve.step.length) return;
      if (next < 0 || isBefore(curve, at[i]!, sources[next]!, at[next]!)) next = i;
    });
    if (next < 0) return out;
    const first = sources[next]!;
    const place = at[next]!;
    const isLast: boolean[] = [];
    const values = sources.map((curve, i): Value => {
      if (!curve || at[i]! >= curve.step.length || isBefore(first, place, curve, at[i]!)) return undefined;
      isLast[i] = curve.last[at[i]!] === 1;
      return finite(curve.value[at[i]!++]);
    });
    const step = first.step[place]!;
    if (first.attempt[place] !== attempt) {
      attempt = first.attempt[place]!;
      means = lines.map((line) => new Mean(line.smoothed ? smoothing : 0));
    }
    const lost = step >= (later.get(attempt) ?? Infinity);
    // A mean over all points would count the extremes of each bucket too often.
    const smooth = values.map((value, i) => (value === null || isLast[i] || !lines[i]!.smoothed ? means[i]!.add(value) : undefined));
    if (zoom && (step < zoom.from || step > zoom.to)) continue;
    out.push({ attempt, step, at_ms: first.at_ms[place]!, values, smooth: lost ? values.map(() => undefined) : smooth, lost });
  }
}

const finite = (value: Value): Value => (value === undefined || Number.isFinite(value) ? value : null);

// An exponential mean whose first values are not drawn towards zero.
class Mean {
  private sum = 0;
  private weight = 0;

  constructor(private readonly smoothing: number) {}

  add(value: Value): Value {
    if (value === undefined || value === null) return value;
    this.sum = this.sum * this.smoothing + value * (1 - this.smoothing);
    this.weight = this.weight * this.smoothing + (1 - this.smoothing);
    return this.sum / this.weight;
  }
}

export type XAxis = "step" | "time";
type Column = Value[];

const COLUMNS = 3; // of each line: its values, the smoothed values, the lost values
const SMOOTH = 1;
const LOST = 2;

/// Columns for uPlot: x, then three columns of each line. uPlot joins values over undefined and breaks a line at null. A
/// line breaks between two attempts and at a value that is no number. A logarithmic axis leaves out values without a
/// logarithm.
export function columns(all: Row[], lines: number, axis: XAxis, logX: boolean, logY: boolean): [number[], ...Column[]] {
  const x = (row: Row) => (axis === "step" ? row.step : row.at_ms / 1000);
  const drawn = (value: Value): Value => (typeof value === "number" && logY && value <= 0 ? undefined : value);
  const blank = (value: null | undefined): Value[] => new Array<Value>(lines * COLUMNS).fill(value);
  const shown = all.filter((row) => (!logX || x(row) > 0) && row.values.some((value) => drawn(value) !== undefined));
  const at = new Map<number, Value[]>();

  let before: Row | undefined;
  for (const row of shown) {
    if (row.lost) continue;
    if (before && before.attempt !== row.attempt) at.set((x(before) + x(row)) / 2, blank(null));
    const cells = blank(undefined);
    for (let i = 0; i < lines; ++i) {
      if (drawn(row.values[i]) === undefined) continue;
      cells[i * COLUMNS] = row.values[i];
      cells[i * COLUMNS + SMOOTH] = drawn(row.smooth[i]);
      cells[i * COLUMNS + LOST] = null;
    }
    at.set(x(row), cells);
    before = row;
  }
  before = undefined;
  for (const row of shown) {
    if (!row.lost) continue;
    const between = before && (x(before) + x(row)) / 2;
    // Two attempts with the same steps leave no room for a break.
    if (before && before.attempt !== row.attempt && x(before) < x(row) && !at.has(between!))
      at.set(between!, blank(undefined).map((_, i) => (i % COLUMNS === LOST ? null : undefined)));
    const cells = at.get(x(row)) ?? blank(undefined);
    row.values.forEach((value, i) => {
      if (drawn(value) !== undefined) cells[i * COLUMNS + LOST] = value;
    });
    at.set(x(row), cells);
    before = row;
  }
  const xs = [...at.keys()].sort((a, b) => a - b);
  const cells = xs.map((key) => at.get(key)!);
  return [xs, ...blank(null).map((_, index) => widened(cells.map((one) => one[index])))];
}

// uPlot breaks a line from the step before a null to the step after it. A line with few values has no values at these
// steps, so its break must reach from value to value.
function widened(column: Column): Column {
  for (let from = 0; from < column.length;) {
    let to = from;
    let breaks = from === 0;
    for (; to < column.length && typeof column[to] !== "number"; ++to) breaks ||= column[to] === null;
    if (breaks || to === column.length) column.fill(null, from, to);
    from = to + 1;
  }
  return column;
}

/// The values of a column that are drawn as dots: all of them if there are at most `most`, else those that no line
/// reaches.
export function dots(column: ArrayLike<Value>, from: number, to: number, most: number): number[] {
  const numbers: number[] = [];
  for (let i = from; i <= to; ++i) if (typeof column[i] === "number") numbers.push(i);
  const isEnd = (value: Value, i: number) => i < 0 || i >= column.length || value === null;
  return numbers.length <= most ? numbers
    : numbers.filter((i) => isEnd(column[i - 1], i - 1) && isEnd(column[i + 1], i + 1));
}
