// The plots of a job and their lines: what a resumed run rewinds is never shown twice.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { build } from "esbuild";
import { curvesOf, metric, range, RECIPE_SERIES, series } from "./fixtures.mjs";

const folder = await mkdtemp(join(tmpdir(), "muster-series-"));
await build({ entryPoints: ["src/series.ts", "src/quantities.ts", "src/curves.ts"], outdir: folder, outExtension: { ".js": ".mjs" }, format: "esm", bundle: true });
const { rows: rowsOf, columns, dots } = await import(join(folder, "series.mjs"));
const { look: lookAt, NOTHING_FOUND, numberless, quantities, titleOf, unknownNames } = await import(join(folder, "quantities.mjs"));
const { append, position } = await import(join(folder, "curves.mjs"));
await rm(folder, { recursive: true });

const line = (name, smoothed = true) => ({ of: (curves) => curves.series.find((curve) => curve.name === name), smoothed });
const rows = (metrics, lines, smoothing) => rowsOf(curvesOf(metrics), lines, smoothing);
const look = (found, metrics) => lookAt(found, curvesOf(metrics));
const lossRows = (metrics, smoothing) => rows(metrics, [line("loss")], smoothing);
const steps = (attempt, from, to) => range(from, to).map((step) => metric(attempt, step, { loss: attempt * 100 + step }));
// Steps with these series alone; undefined: a step without any.
const only = (attempt, values) => values.map((one, i) => ({ ...metric(attempt, i + 1), step_ms: null, memory_peak_bytes: null, series: one ?? {} }));

test("a resume rewinds: each step is kept once, of the newest attempt", () => {
  const all = lossRows([...steps(1, 1, 5), ...steps(2, 4, 7)], 0);
  assert.deepEqual(all.filter((p) => !p.lost).map((p) => [p.attempt, p.step]),
    [[1, 1], [1, 2], [1, 3], [2, 4], [2, 5], [2, 6], [2, 7]]);
  assert.deepEqual(all.filter((p) => p.lost).map((p) => [p.attempt, p.step]), [[1, 4], [1, 5]]);
});

test("an attempt that starts over overtakes all before it, and one between two resumes loses its end too", () => {
  const all = lossRows([...steps(1, 1, 9), ...steps(2, 5, 8), ...steps(3, 3, 4)], 0);
  assert.deepEqual(all.filter((p) => !p.lost).map((p) => [p.attempt, p.step]), [[1, 1], [1, 2], [3, 3], [3, 4]]);
});

test("the lines break between attempts and the x axis never goes back", () => {
  const [xs, raw, , lost] = columns(lossRows([...steps(1, 1, 5), ...steps(2, 4, 6)], 0), 1, "step", false, false);
  assert.deepEqual(xs, [1, 2, 3, 3.5, 4, 5, 6]);
  assert.deepEqual(raw, [101, 102, 103, null, 204, 205, 206]);
  assert.deepEqual(lost, [null, null, null, null, 104, 105, null]);
});

test("smoothing starts anew with each attempt, does not lean to zero, and 0 changes nothing", () => {
  const flat = (attempt, from, to, value) => range(from, to).map((step) => metric(attempt, step, { loss: value }));
  const all = lossRows([...flat(1, 1, 50, 8), ...flat(2, 51, 60, 2)], 0.999);
  assert.ok(Math.abs(all[0].smooth[0] - 8) < 1e-9);
  assert.ok(Math.abs(all.at(-1).smooth[0] - 2) < 1e-9);
  for (const row of lossRows(steps(1, 1, 9), 0)) assert.deepEqual(row.smooth, row.values);
});

test("of the lines of a plot only those are smoothed that have most steps' values", () => {
  const all = rows(range(1, 60).map((step) => metric(1, step)), [line("loss"), line("validation/loss", false)], 0.9);
  assert.notEqual(all[59].smooth[0], all[59].values[0]);
  assert.equal(all[59].smooth[1], all[59].values[1]);
  assert.equal(all[58].smooth[1], undefined, "no value, nothing smoothed");
});

test("a log scale leaves out what has no logarithm", () => {
  const all = lossRows([metric(1, 1, { loss: 0 }), metric(1, 2, { loss: 3 }), metric(1, 3, { loss: -1 })], 0);
  assert.deepEqual(columns(all, 1, "step", false, true)[0], [2]);
  assert.deepEqual(columns(lossRows([metric(1, 0), metric(1, 1)], 0), 1, "step", true, false)[0], [1]);
});

test("validation marks the steps that have it, of kept steps alone", () => {
  const validated = (attempt, step, value) => metric(attempt, step, { series: { "validation/loss": value } });
  const metrics = [validated(1, 1, 9), validated(1, 2, 8), metric(2, 2), validated(2, 3, 7)];
  const all = rows(metrics, [line("loss"), line("validation/loss", false)], 0);
  assert.deepEqual(columns(all, 2, "step", false, false)[4], [9, null, null, 7]);
  assert.deepEqual(columns(all, 2, "step", false, false)[6], [null, null, 8, null], "what was lost");
});

test("a line with few values joins them over the steps between, within an attempt", () => {
  const odd = (attempt, from, to) => range(from, to).map((step) => metric(attempt, step, { series: step % 2 ? { rare: step } : {} }));
  const all = rows([...odd(1, 1, 6), ...odd(2, 7, 9)], [line("loss"), line("rare", false)], 0);
  const [xs, , , , rare] = columns(all, 2, "step", false, false);
  assert.deepEqual(xs, [1, 2, 3, 4, 5, 6, 6.5, 7, 8, 9]);
  assert.deepEqual(rare, [1, undefined, 3, undefined, 5, null, null, 7, undefined, 9]);
});

test("a value that is no number is a gap and never a 0; one that was never reported is left out", () => {
  const all = lossRows(only(1, [{ loss: 5 }, { loss: null }, { loss: 3 }, undefined, { loss: NaN }, { loss: 2 }]), 0.5);
  assert.deepEqual(all.map((row) => [row.step, row.values[0]]), [[1, 5], [2, null], [3, 3], [5, null], [6, 2]]);
  const [xs, raw, smooth] = columns(all, 1, "step", false, false);
  assert.deepEqual(xs, [1, 2, 3, 5, 6]);
  assert.deepEqual(raw, [5, null, 3, null, 2]);
  assert.deepEqual(smooth.map((value) => value === null), [false, true, false, true, false]);
  assert.deepEqual(dots(raw, 0, 4, 0), [0, 2, 4], "no line reaches them");
  assert.deepEqual(dots([1, 2, null, 4, undefined, 5], 0, 5, 0), []);
  assert.deepEqual(dots([1, 2, null, 4, undefined, 5], 0, 5, 9), [0, 1, 3, 5]);
});

// The plots of a job with these series, and the lines of each.
const plotsOf = (declared, metrics) =>
  quantities(declared, look(NOTHING_FOUND, metrics)).map(({ id, lines }) => [id, lines.map((one) => one.name + (one.smoothed ? "" : " (dots)"))]);

test("loss and validation are one plot, whatever splits are called; each series that is not known is one of its own", () => {
  const rare = (step, values) => (step % 20 === 0 ? values : {});
  const metrics = range(1, 40).map((step) => metric(1, step, { series: { accuracy: step, "reward/mean": 1, ...rare(step, { eval_accuracy: 1 }) } }));
  assert.deepEqual(plotsOf([...RECIPE_SERIES, series("accuracy", { better: "higher" }), series("eval_accuracy")], metrics), [
    ["loss", ["loss", "validation/loss (dots)"]], ["accuracy", ["accuracy", "eval_accuracy (dots)"]], ["tokens_per_s", ["tokens_per_s"]],
    ["reward/mean", ["reward/mean"]], ["rank~step_ms", ["Step time"]], ["rank~memory_peak_bytes", ["Peak memory of a rank"]]]);
  assert.deepEqual(unknownNames(RECIPE_SERIES, look(NOTHING_FOUND, metrics)), ["accuracy", "reward/mean", "eval_accuracy"]);
});

test("plots stand in their order: loss, what tells how good the model is, the speed, the rest as the job has it", () => {
  const names = ["wait_ms", "gpu_memory", "tokens_per_s", "zeta", "grad_norm", "validation/reward", "f1", "train/loss"];
  const declared = [series("wait_ms", { unit: "ms", better: "lower" }), series("gpu_memory", { unit: "bytes", better: "lower" }),
    series("tokens_per_s", { better: "higher" }), series("zeta"), series("grad_norm"), series("validation/reward"),
    series("f1", { better: "higher" }), series("train/loss", { quantity: "loss", better: "lower" })];
  const metrics = only(1, [Object.fromEntries(names.map((name) => [name, 1]))]);
  assert.deepEqual(plotsOf(declared, metrics).map(([id]) => id), ["loss", "reward", "f1", "tokens_per_s", "wait_ms", "gpu_memory", "zeta", "grad_norm"]);
});

test("what was never measured has no plot: no number, a measure that is 0, a series without a row", () => {
  const metrics = only(1, [{ a: null, b: 0 }, { a: null, b: 0 }]).map((row) => ({ ...row, bytes_communicated: 0 }));
  const found = look(NOTHING_FOUND, metrics);
  assert.deepEqual(quantities([series("c"), series("a")], found).map(({ id }) => id), ["b"]);
  assert.deepEqual(numberless(found), ["a"]);
  const measured = quantities([], look(NOTHING_FOUND, [{ ...metrics[0], step_ms: 5, bytes_communicated: 2048 }]));
  assert.deepEqual(measured.map(({ title }) => title), ["B", "Step time", "Bytes communicated a step"]);
  assert.equal(measured[2].format(2048), "2 KiB");
});

test("curves without news are nothing new, and a series that comes late is dense from its first value", () => {
  const early = range(1, 100).map((step) => metric(1, step));
  const found = look(NOTHING_FOUND, early);
  assert.equal(look(found, early), found);
  const late = [...early, ...range(101, 110).map((step) => metric(1, step, { series: { entropy: 2 } }))];
  const plot = quantities(RECIPE_SERIES, look(found, late)).find(({ id }) => id === "entropy");
  assert.equal(plot.lines[0].smoothed, true);
  assert.deepEqual(look(found, late), look(NOTHING_FOUND, late));
  assert.deepEqual(lookAt(found, curvesOf(late.slice(-1)), false).series.get("loss"), found.series.get("loss"), "a zoom says nothing of it");
});

test("a series may have the name of anything", () => {
  const names = ["constructor", "__proto__", "step_ms", "a/b.c-d@e+f:g%"];
  const metrics = only(1, [JSON.parse(`{${names.map((name) => `"${name}": 1`)}}`), undefined]);
  const plots = quantities([], look(NOTHING_FOUND, metrics));
  assert.deepEqual(plots.map(({ id }) => id), names);
  for (const { lines } of plots) assert.deepEqual(rows(metrics, lines, 0).map((row) => row.values), [[1]]);
});

test("titles are readable, and the unit is said once: by the title, or by the lines where they differ", () => {
  assert.deepEqual(["loss", "grad_norm", "tokens_per_s", "reward/mean", "f1"].map(titleOf), ["Loss", "Grad norm", "Tokens/s", "Reward/mean", "F1"]);
  const metrics = only(1, [{ loss: 1, "validation/loss": 1, tokens_per_s: 1, heap: 1 }]);
  const units = (declared) => quantities(declared, look(NOTHING_FOUND, metrics)).map(({ unit, lines }) => [unit, ...lines.map((one) => one.unit)]);
  assert.deepEqual(units([...RECIPE_SERIES, series("heap", { unit: "bytes" })]), [["nats", "", ""], ["", ""], ["", ""]]);
  assert.deepEqual(units([series("loss", { unit: "nats" }), series("validation/loss", { unit: "bits" })])[0], ["", "nats", "bits"]);
  assert.deepEqual(units([series("loss", { unit: "nats" }), series("validation/loss")])[0], ["nats", "", ""]);
});

test("a zoom shows its steps of every attempt, and smooths as the whole run does", () => {
  const curves = curvesOf([...steps(1, 1, 9), ...steps(2, 6, 12)]);
  const whole = rowsOf(curves, [line("loss")], 0.9);
  const zoomed = rowsOf(curves, [line("loss")], 0.9, { from: 5, to: 7 });
  assert.deepEqual(zoomed.map((row) => [row.attempt, row.step, row.lost]), [[1, 5, false], [1, 6, true], [1, 7, true], [2, 6, false], [2, 7, false]]);
  assert.deepEqual(zoomed, whole.filter((row) => row.step >= 5 && row.step <= 7));
});

test("what came is appended: columns grow, counts add up, and a new attempt rewinds what was there", () => {
  const first = [...steps(1, 1, 6)];
  const old = curvesOf(first);
  const more = { ...curvesOf(steps(2, 5, 8)), attempts: curvesOf([...first, ...steps(2, 5, 8)]).attempts };
  const now = append(old, more);
  assert.deepEqual(rowsOf(now, [line("loss")], 0), rowsOf(curvesOf([...first, ...steps(2, 5, 8)]), [line("loss")], 0));
  assert.deepEqual([now.series[0].values, now.series[0].steps], [10, 10]);
  assert.equal(append(now, { ...curvesOf([]), attempts: now.attempts }), now, "nothing came");
  assert.deepEqual(position(now), { attempt: 2, step: 8 });
  assert.equal(position(curvesOf([])), null);
  assert.equal(position(curvesOf(steps(1, 1, 4000))), null, "many points: all are asked for anew");
});

test("only the last value of a bucket counts for the smoothed line, so that a peak does not lift it", () => {
  const curves = curvesOf(only(1, [2, 2, 50, 2, 2, 2].map((loss) => ({ loss }))));
  curves.series[0].last = [0, 1, 0, 1, 0, 1];
  const all = rowsOf(curves, [line("loss")], 0.5);
  assert.deepEqual(all.map((row) => row.values[0]), [2, 2, 50, 2, 2, 2]);
  assert.deepEqual(all.map((row) => row.smooth[0]), [undefined, 2, undefined, 2, undefined, 2]);
});
