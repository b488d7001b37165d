// The jobs table's stretch: paged and live, it is always a stretch of what the server has.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { build } from "esbuild";
import { range } from "./fixtures.mjs";

const folder = await mkdtemp(join(tmpdir(), "muster-pages-"));
await build({ entryPoints: ["src/pages.ts"], outfile: join(folder, "pages.mjs"), format: "esm", bundle: true });
const { merge, Changes, MOST_ROWS, NOTHING, PAGE } = await import(join(folder, "pages.mjs"));
await rm(folder, { recursive: true });

// Jobs by id, and the same questions that the page asks.
class Jobs {
  all = new Map();
  put = (id, state = "running") => this.all.set(id, { id, state });
  answer(before) {
    const match = [...this.all.values()].sort((a, b) => b.id - a.id);
    return { total: match.length, jobs: match.filter((job) => before === 0 || job.id < before).slice(0, PAGE).map((job) => ({ ...job })) };
  }
}

class Page {
  stretch = NOTHING;
  changes = new Changes();
  questions = 0;
  constructor(server) {
    this.server = server;
    this.ask(0, false);
  }
  ask(before, older) {
    const answer = this.server.answer(before);
    ++this.questions;
    this.changes.answered(this.stretch, before, answer);
    this.stretch = merge(this.stretch, before, answer, older);
  }
  showMore = () => this.ask(this.stretch.jobs.at(-1).id, true);
  settle() {
    for (let before; (before = this.changes.next(this.stretch)) !== null;) this.ask(before, false);
  }
  // What it shows is what the server has between its newest and oldest row, and beyond where it says so.
  check() {
    const { jobs, atTop, atEnd } = this.stretch;
    assert.ok(jobs.length <= MOST_ROWS);
    const newest = atTop ? Infinity : jobs[0].id;
    const oldest = atEnd ? 0 : (jobs.at(-1)?.id ?? Infinity);
    const there = [...this.server.all.values()].filter((job) => job.id <= newest && job.id >= oldest).sort((a, b) => b.id - a.id);
    assert.deepEqual(jobs, there);
  }
}

function jobs(count) {
  const server = new Jobs();
  for (const id of range(1, count)) server.put(id);
  return server;
}

test("page by page one comes to the oldest job, and no more than so many rows are kept", () => {
  const page = new Page(jobs(1234));
  for (let i = 0; i < 50 && !page.stretch.atEnd; ++i) {
    page.showMore();
    page.check();
  }
  assert.equal(page.stretch.jobs.at(-1).id, 1);
  assert.equal(page.stretch.jobs.length, MOST_ROWS);
  assert.equal(page.stretch.atTop, false);
  assert.equal(page.questions, 13);
});

test("a change is asked for once, where it is shown, and not elsewhere", () => {
  const server = jobs(350);
  const page = new Page(server);
  page.showMore();
  assert.equal(page.stretch.jobs.at(-1).id, 151);
  server.put(160, "failed");
  page.changes.add([160, 10]);
  page.settle();
  assert.equal(page.questions, 3, "job 10 is not shown");
  page.check();
  for (const id of range(351, 355)) server.put(id);
  page.changes.add(range(351, 355));
  page.settle();
  assert.equal(page.questions, 4, "of many new ones once");
  page.check();
});

test("more new jobs than a page holds, of which nobody told while the stream was lost, leave no gap", () => {
  const server = jobs(120);
  const page = new Page(server);
  for (const id of range(121, 420)) server.put(id);
  page.changes.add(page.stretch.jobs.map((job) => job.id)); // as after every reconnect
  page.settle();
  page.check();
  assert.ok(page.stretch.jobs.length >= 400);
});

test("jobs that leave the filter, or are removed, leave the table", () => {
  const server = jobs(300);
  const page = new Page(server);
  page.showMore();
  for (const id of [300, 299, 200, 150]) server.all.delete(id);
  page.changes.add([300, 299, 200, 150]);
  page.settle();
  page.check();
});

test("whatever comes, changes, goes and is asked for: what is shown is a stretch of what there is", () => {
  let seed = 7;
  const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 30; ++round) {
    const server = jobs(random(900));
    let next = server.all.size + 1;
    const page = new Page(server);
    for (let step = 0; step < 60; ++step) {
      const what = random(10);
      if (what < 3) for (let i = random(what === 0 ? 250 : 5); i >= 0; --i) server.put(next), page.changes.add([next++]);
      else if (what < 6) {
        const id = 1 + random(next);
        if (random(2) && server.all.has(id)) server.put(id, `state-${step}`);
        else server.all.delete(id);
        page.changes.add([id]);
      } else if (what < 9) {
        if (page.stretch.jobs.length > 0 && !page.stretch.atEnd) page.showMore();
      } else page.changes.add(page.stretch.jobs.map((job) => job.id));
      if (random(3) === 0) {
        page.settle();
        page.check();
      }
    }
    page.settle();
    page.check();
  }
});
