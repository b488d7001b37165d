// Numbers, times and names as people read them.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { build } from "esbuild";

const folder = await mkdtemp(join(tmpdir(), "muster-format-"));
await build({ entryPoints: ["src/format.ts"], bundle: true, format: "esm", outfile: join(folder, "format.mjs") });
const { formatDuration, formatNodes, formatSettings, formatTime, formatValue, withLocalTimes } = await import(join(folder, "format.mjs"));
await rm(folder, { recursive: true });

test("many nodes are written as Slurm writes them, in ranges that keep their zeros", () => {
  assert.equal(formatNodes(["tower"]), "tower");
  assert.equal(formatNodes(["node7"]), "node7");
  assert.equal(formatNodes(["gpu03", "gpu01", "gpu02", "gpu07", "login"]), "gpu[01-03,07], login");
  assert.equal(formatNodes(["n9", "n10", "n11"]), "n[9,10-11]");
  assert.equal(formatNodes(["a1.x", "a2.x"]), "a1.x, a2.x");
  assert.equal(formatNodes(["rack1-01", "rack1-02", "rack2-01"]), "rack1-[01-02], rack2-01");
});

test("less than a second is told in milliseconds", () => {
  assert.deepEqual([0, 0.4, 995, 1000, 61_000].map(formatDuration), ["0 s", "1 ms", "995 ms", "1 s", "1 min 1 s"]);
});

test("a series of bytes is told in bytes, and another one as a number", () => {
  assert.deepEqual([formatValue(67_500_000, "B"), formatValue(0.25, "bytes"), formatValue(67_500_000, ""), formatValue(23.614, "ms")],
    ["64 MiB", "0.25", "6.75e+7", "23.61"]);
});

test("settings of a sweep drop the table they are in", () => {
  assert.equal(formatSettings({ "train.learning_rate": "1e-3", "train.seed": "0" }), "learning_rate=1e-3, seed=0");
  assert.equal(formatSettings(undefined), "");
});

test("times inside a sentence become local, the rest stays", () => {
  const at = "2026-03-01T09:10:00.000Z";
  assert.equal(withLocalTimes(`down since ${at}: no answer`), `down since ${formatTime(at)}: no answer`);
  assert.equal(withLocalTimes("version 2026-03-01"), "version 2026-03-01");
});
