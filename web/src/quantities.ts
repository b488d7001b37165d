// Decides which plots a job has. Every series is a line. Series of one quantity share a plot. Step time, memory and bytes
// of the ranks follow, each in its own plot. A series without a number has no plot.
import { formatCount, formatNumber, formatSomeBytes, isBytes } from "./format";
import type { Curve, Curves, JobSeries } from "./types";

/// undefined: the step has no value. null: the value is no number.
export type Value = number | null | undefined;

/// One line of a plot.
export interface Line {
  name: string;
  unit: string; // empty: the title of the plot names the unit
  of: (curves: Curves) => Curve | undefined;
  smoothed: boolean; // false: the line is drawn as reported, with dots
}

/// One plot.
export interface Quantity {
  id: string;
  title: string;
  unit: string; // empty: there is none, it is not known, or the lines differ in it
  lines: Line[];
  format: (value: number) => string;
  bytes: boolean; // the axis steps in powers of two
}

/// What the curves so far tell of a series.
interface Seen {
  dense: boolean; // at least one step in DENSE_STEPS has a value
  numbers: boolean;
}

/// What the curves so far tell.
export interface Found {
  series: Map<string, Seen>;
  measures: Set<string>;
}

export const NOTHING_FOUND: Found = { series: new Map(), measures: new Set() };

// A series with a value at fewer than one step in DENSE_STEPS is drawn with dots.
const DENSE_STEPS = 4;
const LOSS = "loss";
const TOKENS = "tokens_per_s";

// No name of a series has a "~", so no plot of a series has such an id. A value of 0 means that nothing was measured.
const MEASURES: Quantity[] = [
  measure("step_ms", "Step time", "ms", asNumber),
  measure("memory_peak_bytes", "Peak memory of a rank", "", formatSomeBytes),
  measure("bytes_communicated", "Bytes communicated a step", "", formatSomeBytes),
];

function measure(name: string, title: string, unit: string, format: (value: number) => string): Quantity {
  const of = (curves: Curves) => curves.measures.find((curve) => curve.name === name);
  return { id: `rank~${name}`, title, unit, lines: [{ name: title, unit: "", of, smoothed: true }], format, bytes: format === formatSomeBytes };
}

function asNumber(value: number): string {
  return formatNumber(value);
}

/// Adds what these curves tell. `whole`: the curves are of all steps, so they tell which series are dense. Returns `found`
/// itself if nothing is new.
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

/// Names of curves that were not yet among the job's series when the job was read.
export function unknownNames(declared: JobSeries[], found: Found): string[] {
  const known = new Set(declared.map((series) => series.name));
  return [...found.series.keys()].filter((name) => !known.has(name));
}

/// Series without a single number.
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
  // The series of the training data is the main line.
  const lines = [...all].sort((a, b) => Number(a.held_out) - Number(b.held_out)).map((series) => lineOf(series, found));
  const title = titleOf(id);
  const units = new Set(lines.map((line) => line.unit).filter((unit) => unit !== ""));
  const bytes = units.size === 1 && isBytes([...units][0]!);
  const common = units.size === 1 ? [...units][0]! : "";
  if (units.size <= 1) for (const line of lines) line.unit = "";
  return {
    id, title, lines, bytes,
    // "Wait ms" names its unit itself.
    unit: bytes || title.toLowerCase().split(" ").at(-1) === common.toLowerCase() ? "" : common,
    format: bytes ? formatSomeBytes : id === TOKENS ? formatCount : asNumber,
  };
}

// Times and bytes have a better direction too, but tell of the machine.
export function tellsOfTheModel(series: JobSeries): boolean {
  return series.held_out || (series.better !== "neither" && series.unit !== "ms" && !isBytes(series.unit));
}

// The order is: loss, series that tell how good the model is, speed, all others.
function place(id: string, all: JobSeries[]): number {
  if (id === LOSS) return 0;
  if (id === TOKENS) return 2;
  return all.some(tellsOfTheModel) ? 1 : 3;
}

/// The plots of a job in their order. `declared`: the job's series. A series that only the curves have gets its own plot.
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
