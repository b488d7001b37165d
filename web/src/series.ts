// From the steps that ranks reported to the lines of a plot. A resumed attempt rewinds: it repeats steps after the
// checkpoint it resumed from. The newest attempt's word counts; what it overtook is kept apart as "lost".
import type { Line, Value } from "./quantities";
import type { Metric } from "./types";

/// One step of one attempt, with a value of each line of a plot.
export interface Row {
  attempt: number;
  step: number;
  at_ms: number;
  values: Value[];
  smooth: Value[]; // as reported where a line is not smoothed; undefined where lost
  lost: boolean;
}

type Drawn = Pick<Line, "of" | "smoothed">;

/// `metrics` ordered by attempt, then step. Each step is kept once, of the newest attempt that reached it. A step
/// without a value of any line has no row.
export function rows(metrics: Metric[], lines: Drawn[], smoothing: number): Row[] {
  const firstLater = new Map<number, number>(); // attempt -> first step of any later attempt
  let first = Infinity;
  for (let i = metrics.length - 1; i >= 0; --i) {
    const metric = metrics[i]!;
    if (!firstLater.has(metric.attempt)) firstLater.set(metric.attempt, first);
    const earlier = metrics[i - 1];
    if (!earlier || earlier.attempt !== metric.attempt) first = Math.min(first, metric.step);
  }
  const out: Row[] = [];
  let attempt = -1;
  let means: Mean[] = [];
  for (const metric of metrics) {
    const values = lines.map((line) => finite(line.of(metric)));
    if (values.every((value) => value === undefined)) continue;
    if (metric.attempt !== attempt) {
      attempt = metric.attempt;
      means = lines.map((line) => new Mean(line.smoothed ? smoothing : 0));
    }
    const lost = metric.step >= firstLater.get(attempt)!;
    const smooth = values.map((value, i) => means[i]!.add(value));
    const { step, at_ms } = metric;
    out.push({ attempt, step, at_ms, values, smooth: lost ? values.map(() => undefined) : smooth, lost });
  }
  return out;
}

const finite = (value: Value): Value => (value === undefined || Number.isFinite(value) ? value : null);

// An exponential mean that does not lean towards zero at its start.
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

const COLUMNS = 3; // of a line: its values, the smoothed ones, the lost ones
const SMOOTH = 1;
const LOST = 2;

/// Columns for uPlot: x, then three of each line. uPlot joins values over undefined and breaks the line at null: between
/// two attempts, and where a value is no number. A logarithmic axis leaves out what has no logarithm.
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
    // Where both have the same steps there is no room for a break.
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

// uPlot breaks a line from the step before a null to the step after it. Here the break goes from value to value: a line
// with few values has none at the steps beside it.
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

/// Which values of a column are drawn as dots: all of them if they are at most `most`, else those that no line reaches.
export function dots(column: ArrayLike<Value>, from: number, to: number, most: number): number[] {
  const numbers: number[] = [];
  for (let i = from; i <= to; ++i) if (typeof column[i] === "number") numbers.push(i);
  const isEnd = (value: Value, i: number) => i < 0 || i >= column.length || value === null;
  return numbers.length <= most ? numbers
    : numbers.filter((i) => isEnd(column[i - 1], i - 1) && isEnd(column[i + 1], i + 1));
}
