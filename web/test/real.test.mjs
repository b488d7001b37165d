// Goal: the dashboard tells the truth about real jobs: training, a lost rank, a restarted controller, a cancelled job.
// Method: the real musterd and real ranks; one page stays open through it all.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Daemon, shellJob, trainingJob } from "./daemon.mjs";
import { axeViolations, closeWindow, eventually, openBrowser, openPage } from "./support.mjs";

let browser;
let daemon;

before(async () => {
  daemon = await Daemon.start();
  browser = await openBrowser();
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

// What the loss plot holds, as its table shows it.
async function lossRows(page) {
  const cells = await page.locator("table[data-plot=loss] tbody tr").evaluateAll((all) =>
    all.map((tr) => [...tr.cells].map((cell) => cell.innerText)));
  return cells.map((row) => ({ attempt: Number(row[0]), step: Number(row[1]), lost: row.at(-1) === "repeated later" }));
}

function assertEachStepOnce(rows) {
  const kept = rows.filter((row) => !row.lost).map((row) => row.step);
  assert.deepEqual(kept, kept.map((_, i) => i + 1), "every step once, in order, without a gap");
}

const badge = (page, word) => page.locator("h1 .badge", { hasText: word }).waitFor();

test("a job page lives through a lost rank, a killed controller and its own cancel button", async () => {
  const id = await daemon.submit(trainingJob({ steps: 400, every_steps: 10, step_delay_ms: 100 }));
  const page = await openPage(browser, daemon, `/jobs/${id}`);
  await badge(page, "running");
  await page.getByText("Loss: data table").click();

  const running = await daemon.untilJob(id, (job) => job.step >= 15, "step 15");
  process.kill(running.ranks[1].pid, "SIGKILL");
  const timeline = page.locator(".timeline li");
  await timeline.nth(1).waitFor();
  assert.match(await timeline.nth(1).innerText(), /Attempt 1[^]*failed[^]*rank 1, signal 9/);
  const from = (await daemon.untilJob(id, (job) => job.attempts.length === 2 && job.attempts[1].resumed_from_step > 0, "a resume")).attempts[1];
  await timeline.first().getByText(`Resumed from step ${from.resumed_from_step}.`).waitFor();
  const rewound = await eventually(async () => {
    const rows = await lossRows(page);
    return rows.some((row) => row.attempt === 2 && row.step > from.resumed_from_step + 2) && rows;
  }, "steps of attempt 2");
  assertEachStepOnce(rewound);
  assert.ok(rewound.every((row) => row.lost === (row.attempt === 1 && row.step > from.resumed_from_step)));
  assert.ok(rewound.filter((row) => !row.lost).every((row) => row.attempt === (row.step <= from.resumed_from_step ? 1 : 2)));

  await daemon.kill();
  await page.getByText("Reconnecting: musterd does not answer.").waitFor();
  await page.locator("table.ranks").getByText("unknown").first().waitFor();
  assert.equal(await page.locator(".notice").count(), 0, "the banner says it once");
  const seen = rewound.at(-1).step;
  await daemon.launch();
  await eventually(async () => (await page.getByText("Reconnecting").count()) === 0, "the banner goes");
  const after = await eventually(async () => {
    const rows = await lossRows(page);
    return rows.at(-1).step > seen + 10 && rows;
  }, "steps after the restart");
  assertEachStepOnce(after);
  await badge(page, "running");
  assert.equal(await timeline.count(), 2, "nothing was started again");
  await page.getByRole("log").getByText(`step ${after.at(-1).step}/400`).first().waitFor();

  await page.getByRole("button", { name: "Cancel job…" }).click();
  await page.getByRole("button", { name: "Cancel the job" }).click();
  await badge(page, "cancelled");
  await page.getByText("was cancelled and never comes back").waitFor();
  assert.equal((await daemon.show(id)).state, "cancelled");
  assert.deepEqual(await axeViolations(page), []);
  assert.deepEqual(page.problems, []);
  await closeWindow(page);
});

test("of a program of one's own nothing is shown that nobody measured, and huge logs do not hold the page up", async () => {
  const id = await daemon.submit(shellJob("writes-much",
    "seq 200000 | sed 's/^/line number /'; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 1",
    '[requeue]\nbackoff_initial = "10m"\nbackoff_max = "10m"\n'));
  const page = await openPage(browser, daemon, `/jobs/${id}`);
  await badge(page, "waiting");
  await page.getByRole("log").getByText("the end", { exact: true }).waitFor();
  await page.getByText("the beginning of this line is left out").waitFor();
  await page.getByText(`muster logs ${id} --attempt 1`).waitFor();
  assert.doesNotMatch(await page.locator(".facts").innerText(), /Loss|Tokens|Checkpoint/);
  await page.getByText("a program that reports no steps").waitFor();

  await page.getByRole("button", { name: "Requeue…" }).click();
  assert.match(await page.getByRole("dialog").innerText(), /Attempt 2 starts now\./);
  await page.getByRole("button", { name: "Requeue the job" }).click();
  await page.locator(".timeline li").nth(1).waitFor();
  await page.goto(`${daemon.url}/?state=waiting`);
  await page.getByRole("link", { name: "writes-much" }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 1, "the cancelled job is no waiting one");
  assert.deepEqual(page.problems, []);
  await closeWindow(page);
});
