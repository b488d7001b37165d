// The lines of a plot: what a resumed run rewinds is never shown twice.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { build } from "esbuild";
import { metric, range } from "./fixtures.mjs";

const folder = await mkdtemp(join(tmpdir(), "muster-series-"));
await build({ entryPoints: ["src/series.ts"], outfile: join(folder, "series.mjs"), format: "esm", bundle: true });
const { points, columns } = await import(join(folder, "series.mjs"));
await rm(folder, { recursive: true });

const loss = (m) => m.loss;
const steps = (attempt, from, to) => range(from, to).map((step) => metric(attempt, step, { loss: attempt * 100 + step }));

test("a resume rewinds: each step is kept once, of the newest attempt", () => {
  const all = points([...steps(1, 1, 5), ...steps(2, 4, 7)], loss, 0);
  assert.deepEqual(all.filter((p) => !p.lost).map((p) => [p.attempt, p.step]),
    [[1, 1], [1, 2], [1, 3], [2, 4], [2, 5], [2, 6], [2, 7]]);
  assert.deepEqual(all.filter((p) => p.lost).map((p) => [p.attempt, p.step]), [[1, 4], [1, 5]]);
});

test("an attempt that starts over overtakes all before it, and one between two resumes loses its end too", () => {
  const all = points([...steps(1, 1, 9), ...steps(2, 5, 8), ...steps(3, 3, 4)], loss, 0);
  assert.deepEqual(all.filter((p) => !p.lost).map((p) => [p.attempt, p.step]), [[1, 1], [1, 2], [3, 3], [3, 4]]);
});

test("the lines break between attempts and the x axis never goes back", () => {
  const [xs, raw, , lost] = columns(points([...steps(1, 1, 5), ...steps(2, 4, 6)], loss, 0), "step", false, false);
  assert.deepEqual(xs, [1, 2, 3, 3.5, 4, 5, 6]);
  assert.deepEqual(raw, [101, 102, 103, null, 204, 205, 206]);
  assert.deepEqual(lost, [null, null, null, null, 104, 105, null]);
});

test("smoothing starts anew with each attempt, does not lean to zero, and 0 changes nothing", () => {
  const flat = (attempt, from, to, value) => range(from, to).map((step) => metric(attempt, step, { loss: value }));
  const all = points([...flat(1, 1, 50, 8), ...flat(2, 51, 60, 2)], loss, 0.999);
  assert.ok(Math.abs(all[0].smooth - 8) < 1e-9);
  assert.ok(Math.abs(all.at(-1).smooth - 2) < 1e-9);
  for (const point of points(steps(1, 1, 9), loss, 0)) assert.equal(point.smooth, point.value);
});

test("a log scale leaves out what has no logarithm", () => {
  const all = points([metric(1, 1, { loss: 0 }), metric(1, 2, { loss: 3 }), metric(1, 3, { loss: -1 })], loss, 0);
  assert.deepEqual(columns(all, "step", false, true)[0], [2]);
  assert.deepEqual(columns(points([metric(1, 0), metric(1, 1)], loss, 0), "step", true, false)[0], [1]);
});

test("validation marks the steps that have it, of kept steps alone", () => {
  const metrics = [metric(1, 1, { validation_loss: 9 }), metric(1, 2, { validation_loss: 8 }), metric(2, 2), metric(2, 3, { validation_loss: 7 })];
  const all = points(metrics, loss, 0, (m) => m.validation_loss ?? null);
  assert.deepEqual(columns(all, "step", false, false)[4], [9, null, null, 7]);
});

test("a value that is no number is left out", () => {
  assert.deepEqual(points([metric(1, 1, { loss: null }), metric(1, 2, { loss: 3 })], loss, 0.5).map((p) => p.step), [2]);
});
