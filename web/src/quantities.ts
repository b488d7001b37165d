// Which plots a job has. Every series that the job's curves hold is a line. Series of one quantity share a plot. What
// ranks measure of themselves follows, a plot each. What was never measured has no plot.
import { formatBytes, formatCount, formatNumber } from "./format";
import type { Curve, Curves, JobSeries } from "./types";

/// undefined: there is none at this step. null: there is one, and it is no number.
export type Value = number | null | undefined;

/// One line of a plot.
export interface Line {
  name: string;
  unit: string; // empty where the plot says it
  of: (curves: Curves) => Curve | undefined;
  smoothed: boolean; // otherwise it is drawn as reported, with dots
}

/// One plot.
export interface Quantity {
  id: string;
  title: string;
  unit: string; // empty: none, not known, or not common to all lines
  lines: Line[];
  format: (value: number) => string;
  bytes: boolean; // the axis steps in powers of two
}

/// What a series has brought so far.
interface Seen {
  dense: boolean; // it has a value at most steps
  numbers: boolean;
}

/// What the curves looked at so far hold.
export interface Found {
  series: Map<string, Seen>;
  measures: Set<string>;
}

export const NOTHING_FOUND: Found = { series: new Map(), measures: new Set() };

// A series with values at fewer steps than one in so many is drawn with dots.
const DENSE_STEPS = 4;
const BYTES = ["B", "byte", "bytes"];
const LOSS = "loss";
const TOKENS = "tokens_per_s";

// "~" is in no series' name, so that a plot of a series has another id. A 0 was not measured.
const MEASURES: Quantity[] = [
  measure("step_ms", "Step time", "ms", asNumber),
  measure("memory_peak_bytes", "Peak memory of a rank", "", asBytes),
  measure("bytes_communicated", "Bytes communicated a step", "", asBytes),
];

function measure(name: string, title: string, unit: string, format: (value: number) => string): Quantity {
  const of = (curves: Curves) => curves.measures.find((curve) => curve.name === name);
  return { id: `rank~${name}`, title, unit, lines: [{ name: title, unit: "", of, smoothed: true }], format, bytes: format === asBytes };
}

function asNumber(value: number): string {
  return formatNumber(value);
}

function asBytes(value: number): string {
  return value >= 1 ? formatBytes(value) : formatNumber(value);
}

/// What was found before, and what these curves hold. `whole`: they are of all steps, so they tell which series are
/// dense. Returns `found` itself where nothing is new.
export function look(found: Found, curves: Curves, whole = true): Found {
  const series = new Map(found.series);
  const measures = new Set(found.measures);
  let news = false;
  for (const { name, values, steps, value } of curves.series) {
    const before = series.get(name);
    const dense = before && !whole ? before.dense : values * DENSE_STEPS >= steps;
    const numbers = before?.numbers || value.some((one) => Number.isFinite(one));
    if (before?.dense === dense && before.numbers === numbers) continue;
    series.set(name, { dense, numbers });
    news = true;
  }
  for (const { id, lines } of MEASURES) {
    if (measures.has(id) || !lines[0]!.of(curves)?.value.some((one) => one)) continue;
    measures.add(id);
    news = true;
  }
  return news ? { series, measures } : found;
}

const undeclared = (name: string): JobSeries =>
  ({ name, unit: "", better: "neither", over_ranks: "mean", quantity: name, held_out: false, attempt: 0, step: 0, value: null });

/// Names that the curves have and the job, as it was read last, has not.
export function unknownNames(declared: JobSeries[], found: Found): string[] {
  const known = new Set(declared.map((series) => series.name));
  return [...found.series.keys()].filter((name) => !known.has(name));
}

/// Series whose values have all been no numbers.
export const numberless = (found: Found): string[] =>
  [...found.series].filter(([, seen]) => !seen.numbers).map(([name]) => name);

/// "Grad norm" for "grad_norm", "Tokens/s" for "tokens_per_s".
export function titleOf(name: string): string {
  const words = name.replaceAll("_per_", "/").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function lineOf({ name, unit, held_out }: JobSeries, found: Found): Line {
  const of = (curves: Curves) => curves.series.find((curve) => curve.name === name);
  return { name, unit, of, smoothed: found.series.get(name)!.dense && !held_out };
}

function quantityOf(id: string, all: JobSeries[], found: Found): Quantity {
  // What is trained on is the main line.
  const lines = [...all].sort((a, b) => Number(a.held_out) - Number(b.held_out)).map((series) => lineOf(series, found));
  const title = titleOf(id);
  const units = new Set(lines.map((line) => line.unit).filter((unit) => unit !== ""));
  const bytes = units.size === 1 && BYTES.includes([...units][0]!);
  const common = units.size === 1 ? [...units][0]! : "";
  if (units.size <= 1) for (const line of lines) line.unit = "";
  return {
    id, title, lines, bytes,
    unit: bytes || common.toLowerCase() === title.toLowerCase() ? "" : common,
    format: bytes ? asBytes : id === TOKENS ? formatCount : asNumber,
  };
}

// Loss first. Then what tells how good the model is, then the speed, then everything else.
function place(id: string, all: JobSeries[]): number {
  if (id === LOSS) return 0;
  if (id === TOKENS) return 2;
  return all.some((series) => series.held_out || series.better !== "neither") ? 1 : 3;
}

/// The plots of a job in their order. `declared`: the job's series. A series that only the curves have is a quantity
/// of its own.
export function quantities(declared: JobSeries[], found: Found): Quantity[] {
  const groups = new Map<string, JobSeries[]>();
  for (const series of [...declared, ...unknownNames(declared, found).map(undeclared)]) {
    if (!found.series.get(series.name)?.numbers) continue;
    groups.set(series.quantity, [...(groups.get(series.quantity) ?? []), series]);
  }
  return [
    ...[...groups].sort(([a, inA], [b, inB]) => place(a, inA) - place(b, inB)).map(([id, all]) => quantityOf(id, all, found)),
    ...MEASURES.filter(({ id }) => found.measures.has(id)),
  ];
}
