// The dashboard as a person meets it: real server, real browser.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { attempt, fill, fillMore, job, metric, range, rank } from "./fixtures.mjs";
import { axeViolations, eventually, jobRow as row, openBrowser, openStreams, openTab, overflow, Server, withPage } from "./support.mjs";

let browser;
let server;
let untouched; // nothing is done to its jobs

before(async () => {
  browser = await openBrowser();
  server = await Server.start();
  untouched = await Server.start();
  await fill(server);
  await fill(untouched);
  await fillMore(untouched);
});
after(async () => {
  await browser?.close();
  await server?.stop();
  await untouched?.stop();
});

const on = (path, run, { at = server, ...options } = {}) => withPage(browser, at, path, run, options);

test("the jobs table shows every job with state, attempt, step, loss, times and reason", () =>
  on("/", async (page) => {
    await page.getByRole("heading", { name: "Jobs" }).waitFor();
    await eventually(async () => (await page.locator("tbody tr").count()) === 7, "seven jobs");
    const text = await row(page, "llama-70m-manpages").innerText();
    for (const part of ["running", "2", "64 / 120", "attempt 2 runs since step 40", "5 s"]) assert.ok(text.includes(part), `${part} in ${text}`);
    assert.match(await row(page, "classify-packages").innerText(), /succeeded[^]*0\.0213[^]*22,410/);
  }));

test("a real failure stands out, a preemption does not", () =>
  on("/", async (page) => {
    await row(page, "chess-policy").waitFor();
    assert.match(await row(page, "chess-policy").getAttribute("class"), /bad/);
    assert.doesNotMatch(await row(page, "summaries-long-context").getAttribute("class"), /bad/);
  }));

test("jobs can be filtered by state, and an empty filter says so and leads back", () =>
  on("/", async (page) => {
    await page.getByLabel("State").selectOption("failed");
    await eventually(async () => (await page.locator("tbody tr").count()) === 1, "one failed job");
    assert.ok(page.url().endsWith("?state=failed"));
    await page.getByLabel("State").selectOption("stopping");
    await page.getByText("No job is stopping.").waitFor();
    await page.getByRole("button", { name: "Show all jobs" }).click();
    await eventually(async () => (await page.locator("tbody tr").count()) === 7, "all jobs");
  }));

test("by keyboard alone one gets from the jobs table to a job and back", () =>
  on("/", async (page) => {
    await row(page, "llama-70m-manpages").waitFor();
    for (let i = 0; i < 30; ++i) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(() => document.activeElement.textContent === "llama-70m-manpages")) break;
    }
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: /llama-70m-manpages/ }).waitFor();
    assert.ok(page.url().endsWith("/jobs/1"));
    await page.goBack();
    await page.getByRole("heading", { name: "Jobs" }).waitFor();
  }));

test("the job page tells state and reason, and shows ranks, attempts, events and checkpoint", () =>
  on("/jobs/1", async (page) => {
    await page.getByText("attempt 2 runs since step 40.").waitFor();
    assert.doesNotMatch(await page.locator("main").innerText(), /[Nn]othing to do|Waited\s+0 s/);
    assert.match(await page.locator(".facts").innerText(), /Checkpoint\s+step 60/);
    await eventually(async () => /Validation loss\s+2\.\d/.test(await page.locator(".facts").innerText()), "the newest validation loss");
    const ranks = page.locator("table.ranks tbody tr");
    await eventually(async () => (await ranks.count()) === 4, "four ranks");
    assert.match(await ranks.nth(2).innerText(), /2\.5× the median/);
    assert.match(await ranks.nth(3).innerText(), /missing/);
    const timeline = page.locator(".timeline li");
    assert.match(await timeline.nth(0).innerText(),
      /Attempt 2[^]*running[^]*Resumed from step 40\. Started because: rank 1 of attempt 1 was killed by SIGKILL\./);
    assert.match(await timeline.nth(1).innerText(),
      /Attempt 1[^]*failed[^]*rank 1, signal 9[^]*rank 1 was killed by SIGKILL; the job goes on with attempt 2/);
    assert.doesNotMatch(await timeline.nth(1).innerText(), /submitted/, "that it was submitted is no news");
    assert.match(await page.locator("table.events tbody tr").first().innerText(), /attempt 2 resumed from step 40/);
  }));

test("ranks that have exited say how, and have no heartbeat any more", async () => {
  await server.tell({ do: "job", job: job(9, "failed", { name: "ended-ranks", ranks: [
    rank(0, { state: "exited", exit_code: 1 }), rank(1, { state: "exited", signal: 9 }), rank(2, { state: "exited", exit_code: 0 })] }) });
  await on("/jobs/9", async (page) => {
    await page.locator("table.ranks tbody tr").nth(3).waitFor();
    const cells = await page.locator("table.ranks tbody tr").evaluateAll((all) => all.map((tr) => [tr.cells[1].innerText, tr.cells[2].innerText]));
    assert.deepEqual(cells.slice(0, 3).map(([state, age]) => [state.replace(/^\S+ exited\s*/, ""), age]),
      [["exit code 1", "–"], ["signal 9", "–"], ["exit code 0", "–"]]);
  });
  await on("/jobs/2", (page) => page.locator(".timeline li").getByText("rank 0, exit code 1", { exact: true }).waitFor());
});

test("ranks show the cores and the memory that their processes use, and GPUs where a rank has some", async () => {
  const GIB = 2 ** 30;
  const use = { at_ms: 5, cores: 1.7, memory_bytes: 3 * GIB, memory_peak_bytes: 4 * GIB, processes: 5 };
  const tell = (ranks) => server.tell({ do: "job", job: job(37, "running", { name: "used", attempts: [attempt(1, { state: "running" })], ranks,
    spec: { name: "used", resources: { nodes: 1, ranks_per_node: 2 } } }) });
  const shown = async (count) => {
    let table;
    await on("/jobs/37", async (page) => {
      await page.locator("table.ranks tr.rank").nth(1).waitFor();
      table = await page.locator("table.ranks tr").evaluateAll((rows) => rows.map((tr) => [...tr.cells].map((cell) => cell.innerText.trim())));
    });
    return table.map((cells) => cells.slice(6, 6 + count));
  };
  await tell([rank(0, { attempt: 1 }), rank(1, { attempt: 1, use })]);
  assert.deepEqual(await shown(4), [["Cores", "Memory", "Peak", "Node, process"], ["–", "1.2 GiB", "1.6 GiB", "tower 4100"], ["1.70", "3 GiB", "4 GiB", "tower 4101"]]);
  await tell([rank(0, { attempt: 1 }), rank(1, { attempt: 1, use: { ...use, gpu_percent: 93.4, gpu_memory_bytes: 70 * GIB } })]);
  assert.deepEqual(await shown(5), [["Cores", "Memory", "Peak", "GPU", "GPU memory"], ["–", "1.2 GiB", "1.6 GiB", "–", "–"], ["1.70", "3 GiB", "4 GiB", "93 %", "70 GiB"]]);
});

test("a rank that muster has stopped says so, one that ended otherwise does not", async () => {
  const ends = [rank(0, { state: "exited", exit_code: 1 }), rank(1, { state: "exited", signal: 15 }), rank(2, { state: "exited", signal: 9 })];
  const shown = async (cause, culprit) => {
    await server.tell({ do: "job", job: job(35, "failed", { name: "stopped", ranks: ends, attempts: [attempt(2, { cause, rank: culprit })],
      spec: { name: "stopped", resources: { nodes: 1, ranks_per_node: 3 } } }) });
    let states;
    await on("/jobs/35", async (page) => {
      await page.locator("table.ranks tbody tr").nth(2).waitFor();
      states = await page.locator("table.ranks .end").allInnerTexts();
    }, { viewport: { width: 390, height: 900 } });
    return states;
  };
  assert.deepEqual(await shown("failed", 0), ["exit code 1", "signal 15, stopped by muster", "signal 9"]);
  assert.deepEqual(await shown("failed", 1), ["exit code 1", "signal 15", "signal 9"], "the one that began it");
  assert.deepEqual(await shown("cancelled", null), ["exit code 1", "signal 15, stopped by muster", "signal 9, stopped by muster"]);
  assert.deepEqual(await shown("node_failed", null), ["exit code 1", "signal 15", "signal 9"]);
});

test("of thousands of ranks only the rows in view are in the page, any of them can be reached, and those that stand out are found", async () => {
  const ranks = range(0, 4095).map((number) => rank(number, { attempt: 1, node: `gpu${Math.floor(number / 8)}`,
    ...(number === 1717 ? { state: "silent" } : number === 3000 ? { slowness: 1.4 } : {}) }));
  await server.tell({ do: "job", job: job(36, "running", { name: "large", attempts: [attempt(1, { state: "running" })], ranks,
    spec: { name: "large", resources: { nodes: 512, ranks_per_node: 8 } } }) });
  await server.tell({ do: "log", job_id: 36, attempt: 1, rank: 4000, text: "from rank 4000\n" });
  for (const width of [1280, 390])
    await on("/jobs/36", async (page) => {
      const rows = page.locator("table.ranks tr.rank");
      const box = page.getByRole("region", { name: "Ranks of the newest attempt" });
      await rows.first().waitFor();
      assert.ok((await rows.count()) <= 120, "rows in the page");
      assert.match(await rows.first().innerText(), /0[^]*running[^]*gpu0/);
      assert.ok(await rows.first().locator("th").evaluate((cell) => cell.scrollWidth <= cell.clientWidth), "its number is cut off");
      assert.equal(await page.locator("table.ranks").getAttribute("aria-rowcount"), "4097");
      await box.evaluate((one) => one.scrollTo(0, one.scrollHeight / 2));
      const middle = page.locator('tr.rank[aria-rowindex="2060"]');
      await eventually(async () => /2058[^]*gpu257/.test(await middle.innerText()), "rank 2,058");
      await box.evaluate((one) => one.scrollTo(0, one.scrollHeight));
      await eventually(async () => /4095[^]*gpu511/.test(await rows.last().innerText()), "the last rank");
      assert.ok((await rows.count()) <= 120, "rows in the page");
      const gap = await box.evaluate((one) => one.getBoundingClientRect().bottom - one.querySelector("tr.rank:last-of-type").getBoundingClientRect().bottom);
      assert.ok(Math.abs(gap) < 40, `the last row ends ${gap} pixels before its box does`);
      const heights = await rows.evaluateAll((all) => [...new Set(all.map((row) => Math.round(row.getBoundingClientRect().height)))]);
      assert.equal(heights.length, 1, `rows are ${heights} pixels high`);
      await page.getByLabel("Show").selectOption("silent");
      await eventually(async () => (await rows.count()) === 1 && /1717/.test(await rows.first().innerText()), "the silent rank");
      await page.getByLabel("Show").selectOption("slow");
      await eventually(async () => (await rows.count()) === 1 && /3000[^]*1\.4× the median/.test(await rows.first().innerText()), "the slow rank");
      await page.getByLabel("Show").selectOption("");
      await eventually(async () => (await rows.count()) > 20, "all of them");
      await page.getByRole("spinbutton", { name: "Rank" }).fill("4000");
      // Typing takes longer than the page waits until it asks for heartbeats again.
      await page.waitForResponse((response) => response.url().includes("/ranks"));
      await page.waitForResponse((response) => response.url().includes("/ranks"));
      await page.getByRole("spinbutton", { name: "Rank" }).blur();
      await page.getByRole("log").getByText("from rank 4000").waitFor();
      assert.ok((await page.locator("*").count()) < 1800, "elements of the page");
      if (shots) await page.screenshot({ path: `${shots}/ranks-${width}.png`, fullPage: true });
      assert.deepEqual(await axeViolations(page), []);
      assert.ok((await overflow(page)) <= 0, "the page scrolls sideways");
    }, { viewport: { width, height: 900 } });
});

test("heartbeats' ages are the controller's, asked for again every second, and no older than it says", () =>
  on("/jobs/1", async (page) => {
    const ages = page.locator("table.ranks tbody tr td:nth-child(3)");
    const shown = async () => (await ages.allInnerTexts()).slice(0, 3);
    let asked = 0;
    page.on("request", (request) => (asked += request.url().includes("/jobs/1/ranks?")));
    await ages.nth(2).waitFor();
    await eventually(async () => {
      assert.deepEqual(await shown(), ["0.4 s", "0.4 s", "0.4 s"]);
      return asked >= 4;
    }, "four questions, a second apart");
    await page.route("**/api/v1/jobs/1/ranks?*", async (route) => {
      const answer = await (await route.fetch()).json();
      answer.ranks.forEach((rank, i) => (rank.last_heartbeat_ms = [90, 7300, null][i] ?? null));
      await route.fulfill({ json: answer });
    });
    await eventually(async () => (await shown()).join() === "0.1 s,7.3 s,–", "what a silent rank and one that was not heard look like");
    await page.route("**/api/v1/jobs/1/ranks?*", (route) => route.abort());
    await eventually(async () => (await shown()).join() === "unknown,unknown,–" || (await shown()).join() === "unknown,unknown,unknown", "nobody knows");
  }));

test("plots rewind at a resume: each step once, the overtaken ones marked", () =>
  on("/jobs/1", async (page) => {
    for (const [title, plot, value] of [["Loss", "loss", /^\d\.\d+$/], ["Tokens/s", "tokens_per_s", /^1[78][.,]?\d*\s?k?/],
                                        ["Step time", "rank~step_ms", /^211$/], ["Peak memory of a rank", "rank~memory_peak_bytes", /^1\.6 GiB$/]]) {
      await page.getByText(`${title}: data table`).click();
      const table = page.locator(`table[data-plot="${plot}"]`);
      await table.locator("tbody tr").first().waitFor();
      const rows = await table.locator("tbody tr").evaluateAll((all) => all.map((tr) => [...tr.cells].map((cell) => cell.innerText)));
      const kept = rows.filter((cells) => cells.at(-1) !== "repeated later");
      if (plot === "loss") {
        assert.deepEqual(await table.locator("thead th").allInnerTexts(), ["Attempt", "Step", "loss", "loss, smoothed", "validation/loss", "Note"]);
        for (const cells of kept) assert.match(cells[4], Number(cells[1]) % 20 === 0 ? /^\d\.\d+$/ : /^–$/, `validation of step ${cells[1]}`);
      }
      for (const cells of kept) assert.match(cells[2], value, title);
      assert.deepEqual(kept.map((cells) => Number(cells[1])), range(1, 64), title);
      assert.deepEqual(kept.map((cells) => Number(cells[0])), range(1, 64).map((step) => (step <= 40 ? 1 : 2)), title);
      assert.deepEqual(rows.filter((cells) => cells.at(-1) === "repeated later").map((cells) => Number(cells[1])), range(41, 55), title);
    }
  }));

test("the keyboard reads single steps of a plot aloud", () =>
  on("/jobs/1", async (page) => {
    const plot = page.locator(".plot", { has: page.getByRole("heading", { name: "Loss" }) });
    await plot.locator(".plot-box").focus();
    await page.keyboard.press("Home");
    assert.match(await plot.locator("output").innerText(), /^step 1, attempt 1: /);
    assert.equal(await plot.locator("output").getAttribute("aria-live"), "polite");
    await page.keyboard.press("End");
    await page.keyboard.press("ArrowLeft");
    assert.match(await plot.locator("output").innerText(), /^step 63, attempt 2: .*smoothed/);
    await page.keyboard.press("Shift+ArrowLeft");
    assert.match(await plot.locator("output").innerText(), /^step 53,/);
    for (let step = 53; step > 40; --step) await page.keyboard.press("ArrowLeft");
    assert.match(await plot.locator("output").innerText(), /^step 40, attempt 1: loss \d\.\d+, smoothed \d\.\d+; validation\/loss \d\.\d+$/);
  }));

test("smoothing goes to 0.999, log scale and the time axis redraw without complaint", () =>
  on("/jobs/1", async (page) => {
    await page.getByText("Loss: data table").click();
    const smoothed = () => page.locator("table[data-plot=loss] tbody tr").last().locator("td").nth(3).innerText();
    const before = await smoothed();
    await page.getByLabel("Smoothing").fill("0.999");
    await page.getByText("0.999").waitFor();
    assert.notEqual(await smoothed(), before);
    await page.getByLabel("log values").check();
    await page.getByLabel("log steps").check();
    await page.getByRole("combobox", { name: "By" }).selectOption("time");
    await eventually(async () => (await page.locator(".uplot").count()) === 4, "four plots");
  }));

test("new steps and events appear by themselves", () =>
  on("/jobs/1", async (page) => {
    await page.getByText("64 / 120").waitFor();
    await server.tell({ do: "metrics", job_id: 1, metrics: [metric(2, 65)] });
    await page.getByText("65 / 120").waitFor();
    await server.tell({ do: "event", job_id: 1, type: "checkpoint_saved", text: "checkpoint at step 65" });
    await page.getByText("checkpoint at step 65").waitFor();
    await page.getByText("Loss: data table").click();
    await eventually(async () => (await page.locator("table[data-plot=loss] tbody tr").last().locator("td").nth(1).innerText()) === "65",
      "step 65 in the plot");
  }));

test("the log follows, filters, and holds still while paused", () =>
  on("/jobs/1", async (page) => {
    const log = page.getByRole("log");
    await log.getByText("step 64 loss").first().waitFor();
    await eventually(async () => (await log.locator(".line").count()) === 96, "every rank's lines");
    await page.getByRole("combobox", { name: "Rank" }).selectOption("3");
    await eventually(async () => (await log.locator(".line").count()) === 24, "the log of rank 3 alone");
    await server.tell({ do: "log", job_id: 1, attempt: 2, rank: 3, text: "needle one\n" });
    await log.getByText("needle one").waitFor();
    await page.getByLabel("Search").fill("NEEDLE");
    await eventually(async () => (await log.locator(".line").count()) === 1, "only what was searched");
    assert.equal(await log.locator("mark").innerText(), "needle");
    await page.getByRole("button", { name: "Pause" }).click();
    await server.tell({ do: "log", job_id: 1, attempt: 2, rank: 3, text: "needle two\n" });
    await page.getByText("paused, 1 new").waitFor();
    assert.equal(await log.locator(".line").count(), 1);
    await page.getByRole("button", { name: "Resume" }).click();
    await log.getByText("needle two").or(log.locator(".line").nth(1)).first().waitFor();
    await eventually(async () => (await log.locator(".line").count()) === 2, "what came meanwhile");
    await page.getByLabel("Search").fill("nowhere");
    await page.getByText("No line holds").waitFor();
  }));

test("the log stays at its end, unless someone reads further up; and shows the attempt that was chosen", () =>
  on("/jobs/1", async (page) => {
    const log = page.getByRole("log");
    const belowView = () => log.evaluate((box) => Math.round(box.scrollHeight - box.scrollTop - box.clientHeight));
    await eventually(async () => (await log.locator(".line").count()) >= 96, "every rank's lines");
    await eventually(async () => (await belowView()) < 24, "the end in view");
    await server.tell({ do: "log", job_id: 1, attempt: 2, rank: 0, text: range(1, 30).map((i) => `more ${i}\n`).join("") });
    await log.getByText("more 30").waitFor();
    await eventually(async () => (await belowView()) < 24, "the end in view again");
    await log.evaluate((box) => (box.scrollTop = 100));
    await eventually(async () => (await belowView()) > 24, "somewhere further up");
    await server.tell({ do: "log", job_id: 1, attempt: 2, rank: 0, text: "while someone reads\n" });
    await log.getByText("while someone reads").waitFor();
    assert.equal(await log.evaluate((box) => box.scrollTop), 100);
    await server.tell({ do: "log", job_id: 1, attempt: 1, rank: 0, text: "from the first attempt\n" });
    await page.getByRole("combobox", { name: "Attempt" }).selectOption("1");
    await log.getByText("from the first attempt").waitFor();
    assert.equal(await log.locator(".line").count(), 1);
  }));

test("what a log says is text, never markup", () =>
  on("/jobs/7", async (page) => {
    const hostile = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>";
    await server.tell({ do: "log", job_id: 7, attempt: 1, rank: 0, text: hostile + "\n" + "y".repeat(200000) + "\n" });
    await page.getByText(hostile).waitFor();
    await page.getByText(/more characters/).first().waitFor();
    assert.notEqual(await page.title(), "owned");
  }));

test("a job in Slurm's queue says why it waits, where it is, and can be held and released", async () => {
  await server.tell({ do: "job", job: job(20, "queued", {
    name: "in-the-queue", started_at: "", reason: "Other jobs are before it in the queue.", action: "Wait, or ask for fewer nodes.",
    scheduler_reason: "Priority", expected_start: "2026-03-01T11:00:00.000Z", time_limit_ms: 7200000,
    sweep: { sweep: "s20", index: 0, settings: {} }, scheduler_problem: "",
    attempts: [attempt(1, { state: "queued", started_at: "", queued_at: "2026-03-01T09:00:01.000Z", scheduler_job: "4711" })],
  }) });
  await on("/jobs/20", async (page) => {
    await page.getByText("Other jobs are before it in the queue.").waitFor();
    await page.getByText("Wait, or ask for fewer nodes.").waitFor();
    await page.getByText("Slurm says: Priority.").waitFor();
    const facts = await page.locator("dl.facts").innerText();
    for (const part of ["4711", "2 h 0 min", "s20"]) assert.ok(facts.includes(part), `${part} in ${facts}`);
    await page.getByText("Job 20 waits in the scheduler's queue: there is nothing to start again.").waitFor();
    await page.getByRole("button", { name: "Hold" }).click();
    await page.getByText("Release it when it may start: muster release 20.").waitFor();
    await page.getByRole("button", { name: "Release" }).click();
    await page.getByRole("button", { name: "Hold" }).waitFor();
    assert.deepEqual(await axeViolations(page), []);
    assert.ok((await overflow(page)) <= 0, "the page scrolls sideways");
  });
  await on("/", async (page) => {
    await page.getByLabel("State").selectOption("queued");
    await eventually(async () => (await page.locator("tbody tr").count()) === 1, "one queued job");
  });
});

// The words of its badges, without their signs.
const badges = async (place) => (await place.locator(".badge").allInnerTexts()).map((text) => text.replace(/^\S+ /, ""));

test("a held job says who holds it and not what the queue says; held while it runs, that it goes on", async () => {
  const held = { name: "held", held_by: "ana", started_at: "", reason: "held by ana until released" };
  await server.tell({ do: "job", job: job(22, "queued", {
    ...held, scheduler_reason: "Priority", attempts: [attempt(1, { state: "queued", started_at: "", queued_at: "2026-03-01T09:00:01.000Z", scheduler_job: "4712" })] }) });
  await server.tell({ do: "job", job: job(23, "running", { name: "held", held_by: "ana", reason: "attempt 1 runs", attempts: [attempt(1, { state: "running" })] }) });
  await on("/jobs/22", async (page) => {
    await page.getByText("Held by ana until released.", { exact: true }).waitFor();
    await page.getByText("Release it when it may start: muster release 22.").waitFor();
    assert.deepEqual(await badges(page.locator("h1")), ["held"]);
    await page.getByRole("button", { name: "Release" }).click();
    await page.getByText("Slurm says: Priority.").waitFor();
    assert.deepEqual(await badges(page.locator("h1")), ["queued"]);
    await page.getByRole("button", { name: "Hold" }).click();
    await eventually(async () => (await page.getByText("Slurm says").count()) === 0, "the queue's word goes");
  });
  await on("/jobs/23", async (page) => {
    await page.getByText("Attempt 1 runs; held by ana, no further attempt starts.").waitFor();
    await page.getByText("Release it when a next attempt may start: muster release 23.").waitFor();
  });
  await on("/", async (page) => {
    await row(page, "held").first().waitFor();
    const shown = await Promise.all((await row(page, "held").all()).map(badges));
    assert.deepEqual(shown, [["running", "held"], ["held"]]);
  });
});

test("jobs of a sweep show their settings and lead to the sweep; a sweep without such jobs says so", async () => {
  const sweep = (index) => ({ sweep: "s24", index, settings: { "train.learning_rate": "1e-3", "train.seed": String(index) } });
  for (const index of range(0, 1)) await server.tell({ do: "job", job: job(24 + index, "failed", { name: `tune-${index}`, sweep: sweep(index) }) });
  await on("/", async (page) => {
    assert.match(await row(page, "tune-1").innerText(), /sweep s24 learning_rate=1e-3, seed=1/);
    await row(page, "tune-1").getByRole("link", { name: "sweep s24" }).click();
    await page.getByRole("button", { name: "Sweep s24" }).waitFor();
    assert.ok(page.url().endsWith("/?sweep=s24"));
    await eventually(async () => (await page.locator("tbody tr").count()) === 2, "the two jobs of the sweep");
    await page.getByLabel("State").selectOption("stopping");
    await page.getByText("No job of sweep s24 is stopping.").waitFor();
    await page.getByRole("link", { name: "muster" }).click();
    await row(page, "llama-70m-manpages").waitFor();
    assert.equal(await page.getByRole("button", { name: "Sweep s24" }).count(), 0);
    assert.equal(page.url(), `${server.url}/`);
  });
  await on("/jobs/25", async (page) => {
    await page.locator("dl.facts").getByText("learning_rate=1e-3, seed=1").waitFor();
    await page.locator("dl.facts").getByRole("link", { name: "s24" }).click();
    await page.getByRole("button", { name: "Sweep s24" }).waitFor();
  });
});

test("above the jobs is told which of them has which GPU, and who waits; without GPUs nothing is", async () => {
  await on("/", async (page) => {
    await row(page, "llama-70m-manpages").waitFor();
    assert.equal(await page.locator(".machine").count(), 0);
  });
  await on("/", async (page) => {
    const panel = page.getByRole("region", { name: "GPUs and cores of tower" });
    await panel.waitFor();
    assert.deepEqual(await panel.locator("li").allInnerTexts(), ["GPU 0 job 2", "GPU 1 free", "6 of 16 cores job 2 6"]);
    assert.match(await panel.innerText(), /2 jobs wait for them; the next is job 7\./);
    assert.deepEqual(await axeViolations(page), []);
    await panel.getByRole("link", { name: "job 2" }).first().click();
    assert.ok(page.url().endsWith("/jobs/2"));
  }, { prepare: (page) => page.route("**/api/v1/machine", (route) => route.fulfill({ json: {
    name: "tower", gpus_from: "", cores: 16, cores_taken: 6, waiting: [7, 8],
    gpus: [{ number: 0, id: "GPU-a", name: "NVIDIA H100", job_id: 2, attempt: 1 }, { number: 1, id: "GPU-b", name: "", job_id: 0, attempt: 0 }],
    holders: [{ job_id: 2, attempt: 1, gpus: ["GPU-a"], cores: 6 }] } })) });
});

test("what is wrong with Slurm, the store or a partition is told above every page", () =>
  on("/nope", async (page) => {
    await page.getByText(/^Slurm has been unreachable since 2026-03-01 \d\d:10:00: no answer\. What runs goes on, and nothing is lost\.$/).waitFor();
    await page.getByText("The store takes no writes: the disk is full.").waitFor();
    await page.getByText("Partition high: there is none in Slurm.").waitFor();
  }, { prepare: (page) => page.route("**/api/v1/status", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), store_problem: "the disk is full",
      scheduler_problem: "unreachable since 2026-03-01T09:10:00.000Z: no answer", partition_problems: ["partition high: there is none in Slurm"] } });
  }) }));

test("while Slurm can't be reached its jobs say so", async () => {
  await server.tell({ do: "job", job: job(21, "running", {
    name: "blind", attempts: [attempt(1, { state: "running", scheduler_job: "12", nodes: ["node1", "node2"] })],
    scheduler_problem: "scheduler unreachable since 2026-03-01T09:10:00.000Z: squeue gave no answer",
  }) });
  await on("/jobs/21", async (page) => {
    await page.getByText("Slurm can't be asked about this job now. What is said here of its queue and its end may be old.").waitFor();
    await page.getByText("Slurm job 12 on node[1-2].").waitFor();
  });
});

test("cancel asks first; Escape keeps the job, yes cancels it and the page follows", () =>
  on("/jobs/8", async (page) => {
    await page.getByText(/There is no job 8/).waitFor();
    await server.tell({ do: "job", job: job(8, "running", { name: "to-cancel", attempts: [attempt(1, { state: "running" })] }) });
    await server.tell({ do: "event", job_id: 8, type: "job_submitted", text: "submitted" });
    const button = page.getByRole("button", { name: "Cancel job…" });
    await button.click();
    const dialog = page.getByRole("dialog");
    assert.match(await dialog.innerText(), /Cancel job 8, to-cancel\?[^]*never comes back/);
    assert.deepEqual(await axeViolations(page), []);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.equal(await page.locator("h1 .badge").innerText(), "▶ running");
    await button.click();
    await dialog.getByRole("button", { name: "Cancel the job" }).click();
    await page.getByText("cancelled by dashboard; its ranks are stopping.").waitFor();
    await page.locator("h1 .badge", { hasText: "stopping" }).waitFor();
  }));

test("a job is cancelled by keyboard alone", () =>
  on("/jobs/26", async (page) => {
    await page.getByText("there is no job 26").waitFor();
    await server.tell({ do: "job", job: job(26, "running", { name: "by-keyboard", attempts: [attempt(1, { state: "running" })] }) });
    await server.tell({ do: "event", job_id: 26, type: "job_submitted", text: "submitted" });
    await page.getByRole("button", { name: "Cancel job…" }).waitFor();
    const focused = () => page.evaluate(() => document.activeElement?.innerText ?? "");
    const tabTo = async (text) => {
      for (let i = 0; i < 60 && (await focused()) !== text; ++i) await page.keyboard.press("Tab");
      assert.equal(await focused(), text);
    };
    await tabTo("Cancel job…");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await tabTo("Cancel the job");
    await page.keyboard.press("Enter");
    await page.locator("h1 .badge", { hasText: "stopping" }).waitFor();
  }));

test("a failed job's advice names a log that is there", async () => {
  for (const [state, advice] of [
    [{ attempts: [attempt(1, { cause: "failed", started_at: "", reason: "no such program" })] },
      "Correct in the job file what the reason names, and submit it again; nothing of it was started, so there is no log."],
    [{ attempts: [attempt(1, { cause: "failed", rank: null, scheduler_job: "12", reason: "ended" })] },
      "No rank is to blame: look at what Slurm and the lines before the ranks wrote (muster logs 9 --slurm)"],
  ]) {
    await server.tell({ do: "job", job: job(9, "failed", { name: "ended-ranks", ...state }) });
    await on("/jobs/9", (page) => page.getByText(advice).waitFor());
  }
});

test("requeue of a failed job works, and impossible actions say why", async () => {
  await on("/jobs/2", async (page) => {
    await page.getByText("Job 2 has failed already: there is nothing to cancel.").waitFor();
    assert.equal(await page.getByRole("button", { name: "Cancel job…" }).getAttribute("aria-disabled"), "true");
    await page.getByRole("button", { name: "Cancel job…" }).click({ force: true });
    assert.equal(await page.getByRole("dialog").count(), 0);
    await page.getByText("Look at the end of its log below, then correct the job file and submit it again, or: muster requeue 2.").waitFor();
    assert.equal(await page.locator(".why code").innerText(), "muster requeue 2", "a command is one piece");
    await page.getByRole("button", { name: "Requeue…" }).click();
    const yes = page.getByRole("button", { name: "Requeue the job" });
    assert.doesNotMatch(await yes.getAttribute("class"), /danger/, "nothing is lost by it");
    await yes.click();
    await page.locator("h1 .badge", { hasText: "waiting" }).waitFor();
  });
  await on("/jobs/3", async (page) => {
    await page.getByText("Job 3 has succeeded: to run it once more, muster submit --like 3.").waitFor();
    const hold = page.getByRole("button", { name: "Hold" });
    assert.equal(await hold.getAttribute("aria-disabled"), "true");
    assert.equal(await hold.getAttribute("title"), "Job 3 has ended (succeeded): there is nothing to hold.");
    await hold.click({ force: true });
    assert.equal(await hold.getAttribute("aria-disabled"), "true");
  });
  await on("/jobs/5", (page) => page.getByText("Job 5 was cancelled and never comes back: to run it once more, muster submit --like 5.", { exact: true }).waitFor());
});

test("a requeue says what it costs and where it goes on; one that is refused says why", () =>
  on("/jobs/1", async (page) => {
    const dialog = page.getByRole("dialog");
    await page.getByRole("button", { name: "Requeue…" }).click();
    await dialog.getByText("Its ranks are asked to save and leave. Then attempt 3 starts.").waitFor();
    await page.route("**/api/v1/jobs/1/requeue", (route) =>
      route.fulfill({ status: 409, json: { error: "job 1 has ended meanwhile", remedy: "Submit it again." } }));
    await dialog.getByRole("button", { name: "Requeue the job" }).click();
    await page.locator(".actions").getByText("job 1 has ended meanwhile").waitFor();
    assert.equal(await page.locator("h1 .badge").innerText(), "▶ running");
    await page.goto(`${server.url}/jobs/4`);
    await page.getByRole("button", { name: "Requeue…" }).click();
    await dialog.getByText("Attempt 2 starts now, from the beginning.").waitFor();
    await dialog.getByRole("button", { name: "Leave it" }).click();
    await dialog.waitFor({ state: "detached" });
    assert.match(await page.locator("h1 .badge").innerText(), /waiting/);
  }));

test("after a restart of the server the page reconnects, logs in again and is right by itself", () =>
  on("/jobs/1", async (page) => {
    await page.getByText(/6\d \/ 120/).waitFor();
    await server.tell({ do: "down" });
    await page.getByText("Reconnecting: musterd does not answer.").waitFor();
    await page.locator("table.ranks").getByText("unknown").first().waitFor();
    await server.tell({ do: "metrics", job_id: 1, metrics: [metric(2, 66)] });
    await server.tell({ do: "event", job_id: 1, type: "rank_joined", text: "while nobody could see" });
    await server.tell({ do: "up" });
    await page.getByText("while nobody could see").waitFor();
    await page.getByText("66 / 120").waitFor();
    await eventually(async () => (await page.getByText("Reconnecting").count()) === 0, "the banner goes");
    await server.tell({ do: "event", job_id: 1, type: "rank_joined", text: "live again" });
    await page.getByText("live again").waitFor();
  }));

test("eight tabs share one event stream, and when the tab that reads it closes another goes on", () =>
  on("/", async (page) => {
    await row(page, "llama-70m-manpages").waitFor();
    const pages = [page];
    for (const _ of range(1, 7)) {
      const more = await openTab(page, server, "/jobs/1");
      await more.getByRole("heading", { name: /llama/ }).waitFor();
      pages.push(more);
    }
    await eventually(async () => (await openStreams(server)) === 1, "one stream for all");
    await server.tell({ do: "event", job_id: 1, type: "note", text: "told to all tabs" });
    for (const one of pages.slice(1)) await one.getByText("told to all tabs").waitFor();
    await page.close();
    await server.tell({ do: "event", job_id: 1, type: "note", text: "after the first tab closed" });
    for (const one of pages.slice(1)) await one.getByText("after the first tab closed").waitFor();
    await eventually(async () => (await openStreams(server)) === 1, "one stream still");
  }));

// By its whole label: a job's page, while it still leaves, has a plot "Tokens/s".
const tokenField = (page) => page.getByLabel("Token", { exact: true });

test("without a token there is the log-in page; a wrong token is refused, the right one enters, log out leaves", () =>
  on("/", async (page) => {
    await page.getByText("muster dashboard", { exact: true }).waitFor();
    await tokenField(page).fill("wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText("the token is wrong").waitFor();
    await tokenField(page).fill(server.token);
    await page.keyboard.press("Enter");
    await row(page, "llama-70m-manpages").waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    await tokenField(page).waitFor();
    await page.reload();
    await tokenField(page).waitFor();
  }, { loggedOut: true }));

test("the token of a link is gone from the address bar and is in no cookie", () =>
  on("/jobs/1", async (page) => {
    await page.getByRole("heading", { name: /llama/ }).waitFor();
    assert.equal(page.url(), `${server.url}/jobs/1`);
    const [cookie] = await page.context().cookies();
    assert.equal(cookie.httpOnly, true);
    assert.equal(cookie.sameSite, "Strict");
    assert.ok(!cookie.value.includes(server.token));
  }));

test("a link with a token, opened where the log-in page is open already, logs in", () =>
  on("/", async (page) => {
    await tokenField(page).waitFor();
    await page.evaluate((token) => (location.hash = `#token=${token}`), server.token);
    await row(page, "llama-70m-manpages").waitFor();
    assert.equal(page.url(), `${server.url}/`);
  }, { loggedOut: true }));

test("who logs out has left in every tab, also in those that know the token", () =>
  on("/", async (page) => {
    await row(page, "llama-70m-manpages").waitFor();
    const tab = await openTab(page, server, `/jobs/1#token=${server.token}`);
    await tab.getByRole("heading", { name: /llama/ }).waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    for (const one of [page, tab]) await tokenField(one).waitFor();
    await page.reload();
    await tokenField(page).waitFor();
    assert.deepEqual(tab.problems, []);
  }));

test("a link with a token, opened after a log-out, logs in, and the page is live again", () =>
  on("/jobs/1", async (page) => {
    await eventually(async () => (await openStreams(server)) === 1, "a stream");
    await page.getByRole("button", { name: "Log out" }).click();
    await tokenField(page).waitFor();
    await eventually(async () => (await openStreams(server)) === 0, "it ends with the session");
    await page.evaluate((token) => (location.hash = `#token=${token}`), server.token);
    await page.getByRole("heading", { name: /llama/ }).waitFor();
    await server.tell({ do: "event", job_id: 1, type: "checkpoint_saved", text: "told after the log-in" });
    await page.getByText("told after the log-in").waitFor();
  }));

test("a link with a token, opened while the page still asks other tabs for a session, logs in for good", () =>
  on("/", async (page) => {
    await page.refused;
    await page.evaluate((token) => (location.hash = `#token=${token}`), server.token);
    await row(page, "llama-70m-manpages").waitFor();
    await page.clock.fastForward(5000);  // no other tab has answered
    assert.equal(await tokenField(page).count(), 0);
    await row(page, "llama-70m-manpages").waitFor();
  }, { loggedOut: true, prepare: async (page) => {
    await page.clock.install();
    page.refused = page.waitForResponse((response) => response.status() === 401);
  } }));

test("a link with a wrong token says so", () =>
  on("/#token=wrong", async (page) => {
    await page.getByText("the token is wrong").waitFor();
    await tokenField(page).fill(server.token);
    await page.keyboard.press("Enter");
    await row(page, "llama-70m-manpages").waitFor();
    assert.equal(await page.getByText("the token is wrong").count(), 0);
  }, { loggedOut: true }));

test("a link with a wrong token, opened where the log-in page is open already, says so", () =>
  on("/", async (page) => {
    await tokenField(page).waitFor();
    await page.evaluate(() => (location.hash = "#token=wrong"));
    await page.getByText("the token is wrong").waitFor();
    assert.equal(page.url(), `${server.url}/`);
  }, { loggedOut: true }));

test("a page opened while musterd does not answer goes on by itself, and a store that takes no writes is told", () =>
  on("/jobs/1", async (page) => {
    await page.getByRole("heading", { name: /llama/ }).waitFor();
    await page.route("**/api/v1/**", (route) => route.abort());
    await page.reload();
    await page.getByText("musterd does not answer.").waitFor();
    await page.unroute("**/api/v1/**");
    await page.route("**/api/v1/status", async (route) =>
      route.fulfill({ json: { ...(await (await route.fetch()).json()), store_problem: "the disk is full" } }));
    await page.getByText("The store takes no writes: the disk is full").waitFor();
    await page.getByRole("heading", { name: /llama/ }).waitFor();
  }));

test("the theme follows the system, and the toggle overrides it for good", () =>
  on("/", async (page) => {
    const dark = () => page.evaluate(() => document.documentElement.dataset.theme === "dark");
    await page.getByRole("button", { name: "Light" }).waitFor();
    assert.equal(await dark(), true);
    await page.emulateMedia({ colorScheme: "light" });
    await page.getByRole("button", { name: "Dark" }).waitFor();
    assert.equal(await dark(), false);
    await page.emulateMedia({ colorScheme: "dark" });
    await page.getByRole("button", { name: "Light" }).click();
    assert.equal(await dark(), false);
    await page.reload();
    await page.getByRole("button", { name: "Dark" }).waitFor();
    assert.equal(await dark(), false);
  }, { colorScheme: "dark" }));

test("a progress bar is one line that redraws itself, colours are seen, and other control sequences are not", async () => {
  await server.tell({ do: "job", job: job(30, "running", { name: "tqdm", kind: "command", attempts: [attempt(1, { state: "running" })],
    spec: { name: "tqdm", resources: { nodes: 1, ranks_per_node: 1 } } }) });
  const say = (text) => server.tell({ do: "log", job_id: 30, attempt: 1, rank: 0, text });
  await say("\x1b]0;title\x07start\r\n\x1b[1;31merror\x1b[0m: plain\n\r  0%|          | 0/9");
  await on("/jobs/30", async (page) => {
    const lines = page.getByRole("log").locator(".line");
    await eventually(async () => (await lines.allInnerTexts()).join("|") === "start|error: plain|  0%|          | 0/9", "three lines");
    assert.equal(await page.locator(".line .sgr-red.sgr-bold").innerText(), "error");
    for (const at of [3, 6]) await say(`\r ${at}0%|\x1b[38;5;196m#${at}\x1b[0m| ${at}/9 [`);
    await say("00:07]\x1b");
    await say("[K");
    await eventually(async () => (await lines.last().innerText()) === " 60%|#6| 6/9 [00:07]", "the newest state of the bar");
    assert.equal(await lines.count(), 3);
    assert.equal(await page.locator(".line .sgr-red").last().innerText(), "#6");
    await page.getByLabel("Search").fill("| 6/9");
    await eventually(async () => (await lines.count()) === 1, "a search across colours");
    assert.equal(await page.locator("mark").innerText(), "| 6/9");
    await page.getByLabel("Search").fill("");
    await say("\n done\n");
    await lines.getByText("done").waitFor();
    assert.equal(await lines.count(), 4);
  });
});

test("a failed job's page begins with what its guilty rank wrote; a rank's name is said once", async () => {
  await server.tell({ do: "job", job: job(31, "failed", { name: "cuda", reason: "rank 2 exited with 1: RuntimeError: device-side assert triggered",
    attempts: [attempt(1, { cause: "failed", rank: 2, exit_code: 1 })] }) });
  for (const number of range(0, 3)) await server.tell({ do: "log", job_id: 31, attempt: 1, rank: number, text: `[rank ${number}] Traceback of ${number}\n` });
  await on("/jobs/31", async (page) => {
    await page.getByText("Rank 2 exited with 1: RuntimeError: device-side assert triggered.").waitFor();
    const lines = page.getByRole("log").locator(".line");
    await eventually(async () => (await lines.allInnerTexts()).join() === "[rank 2] Traceback of 2", "the words of rank 2 alone");
    const headings = await page.locator("h2").allInnerTexts();
    assert.equal(headings[0], "Log");
    await page.getByRole("combobox", { name: "Rank" }).selectOption({ label: "all, one after another" });
    await eventually(async () => (await lines.count()) === 4, "every rank's words");
    assert.deepEqual(await lines.allInnerTexts(), range(0, 3).map((rank) => `r${rank}Traceback of ${rank}`));
    assert.equal(await page.getByRole("button", { name: "Pause" }).count(), 0, "nothing comes any more");
  });
});

test("of a job that ended well one rank's log is shown, for log files hold no times; long lines alone are no tail", async () => {
  await server.tell({ do: "job", job: job(36, "succeeded", { name: "done", attempts: [attempt(1, { cause: "completed" })] }) });
  for (const number of range(0, 3)) await server.tell({ do: "log", job_id: 36, attempt: 1, rank: number, text: `from ${number}\n${"z".repeat(3000)}\n` });
  await on("/jobs/36", async (page) => {
    await page.getByText("from 0").waitFor();
    assert.equal(await page.getByText("from 1").count(), 0);
    await page.getByText("Long lines are cut. The whole log: muster logs 36 --attempt 1").waitFor();
  });
  await on("/jobs/1", (page) => page.getByText("Log files hold no times. Older lines are sorted by rank.").waitFor());
});

test("what a program tells of itself is on its page: configuration, checkpoints with size and path, the trace of its error", async () => {
  await server.tell({ do: "job", job: job(41, "failed", { name: "told", kind: "command", program_status: "evaluating",
    config: { lr: "0.0003", "model.width": "4096" },
    checkpoints: [{ step: 120, attempt: 1, path: "/data/told/step-120", bytes: 2 ** 30, saved_at: "2026-03-01T09:10:00.000Z" },
      { step: 80, attempt: 1, path: "/data/told/step-80", saved_at: "2026-03-01T09:05:00.000Z" }],
    attempts: [attempt(1, { state: "ended", cause: "failed", trace: "Traceback (most recent call last):\n  line 7\nValueError: no data" })] }) });
  for (const width of [1280, 390]) {
    await on("/jobs/41", async (page) => {
      assert.match(await page.locator(".facts").innerText(), /Status\s+evaluating/);
      assert.match(await page.locator(".configuration").innerText(), /lr\s+0\.0003\s+model\.width\s+4096/);
      const saved = page.locator(".checkpoints");
      assert.match(await saved.innerText(), /120\s+1\s+1(\.0+)? GiB[^]*\/data\/told\/step-120[^]*80\s+1\s+–[^]*\/data\/told\/step-80/);
      assert.match(await page.locator(".trace").innerText(), /ValueError: no data/);
      const order = await page.locator("h2").allInnerTexts();
      assert.ok(order.indexOf("Trace") < order.indexOf("Log") && order.indexOf("Log") < order.indexOf("Training"), order.join());
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "no sideways scrolling");
      assert.deepEqual(await axeViolations(page), []);
    }, { width });
  }
});

test("a job's settings are there, folded: command, folder, environment and keys, secrets as the controller masks them", async () => {
  await server.tell({ do: "job", job: job(37, "failed", { name: "set", kind: "command", spec: { name: "set", resources: { nodes: 1, ranks_per_node: 2, stop_grace_ms: 30000 },
    command: { argv: ["python3", "train.py", "--name", "it's me"] }, env: { LR: "0.1", API_TOKEN: "********" }, working_folder: "/home/ana/run",
    submitted_env: { PATH: "/usr/bin" } } }) });
  await server.tell({ do: "job", job: job(38, "running", { name: "recipe", spec: { name: "recipe", resources: { nodes: 1, ranks_per_node: 1 },
    recipe: { train: { steps: 400 } } } }) });
  for (const width of [1280, 390]) {
    await on("/jobs/37", async (page) => {
      const settings = page.locator(".settings");
      await settings.getByText("Settings").waitFor();
      assert.equal(await settings.getByText("python3").isVisible(), false, "folded");
      await settings.getByText("Settings").click();
      const text = await settings.innerText();
      for (const part of ["python3 train.py --name 'it'\\''s me'", "working_folder\t/home/ana/run", "LR\t0.1", "API_TOKEN\t********", "resources.stop_grace\t30 s", "PATH\t/usr/bin"])
        assert.ok(text.includes(part), `${part} in ${text}`);
      assert.deepEqual(await axeViolations(page), []);
      assert.ok((await overflow(page)) <= 0, "the page scrolls sideways");
    }, { viewport: { width, height: 900 } });
  }
  await on("/jobs/38", async (page) => {
    await page.locator(".settings summary").click();
    assert.match(await page.locator(".settings").innerText(), /train\.steps\t400/);
  });
});

test("of a command that reports, what it reports is shown, and nothing that never came", async () => {
  const own = (id, more) => server.tell({ do: "job", job: job(id, "running", { name: "own", kind: "command", steps_total: 0,
    attempts: [attempt(1, { state: "running" })], spec: { name: "own", resources: { nodes: 1, ranks_per_node: 1 } }, ...more }) });
  await own(32, { last_checkpoint_step: 20 });
  await own(33, {});
  await server.tell({ do: "metrics", job_id: 32, metrics: range(1, 30).map((step) =>
    ({ attempt: 1, step, loss: 3 - step / 20, tokens_per_s: 0, step_ms: 0, memory_bytes: 0, memory_peak_bytes: 0, bytes_communicated: 0,
      at_ms: 1e12 + step * 1000, series: { loss: 3 - step / 20 } })) });
  const facts = (page) => page.locator(".facts").innerText();
  await on("/jobs/32", async (page) => {
    await page.getByRole("heading", { name: "Loss" }).waitFor();
    assert.match(await facts(page), /Step\s+30[^]*Loss\s+1\.5[^]*Checkpoint\s+step 20/);
    assert.doesNotMatch(await facts(page), /Tokens/);
    assert.equal(await page.locator(".plot").count(), 1, "no plot of what nobody measured");
  });
  await on("/jobs/33", async (page) => {
    await page.getByText("a program that reports no steps").waitFor();
    await page.getByText("How to report steps").click();
    await page.getByText(`>> "$MUSTER_REPORT"`).waitFor();
    assert.doesNotMatch(await facts(page), /Step|Loss|Tokens|Checkpoint/);
  });
});

test("the newest loss is said once: a plot names the step that is pointed at, and nothing else", () =>
  on("/jobs/1", async (page) => {
    await page.locator(".plot").first().waitFor();
    assert.deepEqual((await page.locator(".plot-head").allInnerTexts()).map((text) => text.trim()), ["Loss (nats)", "Tokens/s", "Step time (ms)", "Peak memory of a rank"]);
  }));

test("a job that waits for its next attempt says when that starts, by the clock of who looks", async () => {
  await server.tell({ do: "job", job: job(34, "waiting", { name: "comes-back", expected_start: "2099-01-01T10:00:00.000Z",
    reason: "rank 0 exited with 1; attempt 2 starts at 2099-01-01 10:00:00 UTC (failure 1 of 3)" }) });
  await on("/jobs/34", async (page) => {
    await page.getByText(/^Rank 0 exited with 1; attempt 2 starts at 2099-01-01 15:00:00 \(failure 1 of 3\)\.$/).waitFor();
    await page.getByText("It starts by itself. To start it at once: muster requeue 34.").waitFor();
    assert.equal(await page.getByText("Expected to start").count(), 0, "said once");
  }, { timezoneId: "Asia/Karachi" });
});

test("the list goes on to the oldest job, with bounded rows, and what is shown stays up to date", async () => {
  const many = await Server.start();
  const put = (id, state) => many.tell({ do: "job", job: job(id, state, { name: `run-${id}`, reason: "", attempts: [] }) });
  try {
    for (const id of range(1, 730)) await put(id, id % 2 ? "succeeded" : "failed");
    await on("/", async (page) => {
      const rows = page.locator("tbody tr");
      const more = page.getByRole("button", { name: "Show more" });
      const newest = page.getByRole("button", { name: "Back to the newest jobs" });
      await eventually(async () => (await rows.count()) === 100, "the first page");
      for (let shown = 200; shown <= 800; shown += 100) {
        await more.click();
        await row(page, `run-${Math.max(1, 731 - shown)}`).waitFor();
        assert.ok((await rows.count()) <= 500, "rows are bounded");
      }
      assert.equal(await more.count(), 0, "there is no older one");
      assert.deepEqual(await rows.locator("td.id").allInnerTexts(), range(1, 500).reverse().map(String), "each once, none left out");
      await put(7, "running");
      await many.tell({ do: "event", job_id: 7, type: "note", text: "it runs again" });
      await row(page, "run-7").getByText("running").waitFor();
      await put(731, "running");
      await many.tell({ do: "event", job_id: 731, type: "note", text: "new" });
      await newest.click();
      await row(page, "run-731").waitFor();
      assert.equal(await newest.count(), 0);
      await page.getByLabel("State").selectOption("failed");
      await eventually(async () => (await rows.first().locator("td.id").innerText()) === "730", "failed jobs alone");
      for (let shown = 200; shown <= 400; shown += 100) {
        await more.click();
        await eventually(async () => (await rows.count()) === Math.min(shown, 365), `${shown} failed jobs`);
      }
      assert.equal(await more.count(), 0);
    }, { at: many });
  } finally {
    await many.stop();
  }
});

const PAGES = [
  { name: "jobs", path: "/", ready: (page) => row(page, "typo").waitFor() },
  { name: "job", path: "/jobs/1", ready: (page) => page.getByRole("log").getByText("step 64 loss").first().waitFor() },
  { name: "failed", path: "/jobs/2", ready: (page) => page.getByText("This attempt wrote nothing.").waitFor() },
  { name: "held", path: "/jobs/10", ready: (page) => page.getByText("Held by ana until released.").waitFor() },
  { name: "command", path: "/jobs/7", ready: (page) => page.getByRole("log").getByText("code 97").waitFor() },
  { name: "sweep", path: "/?sweep=s11", ready: (page) => row(page, "tune-1").waitFor() },
  { name: "pending", path: "/jobs/6", ready: (page) => page.getByText("Waits for its first attempt.").waitFor() },
  { name: "absent", path: "/jobs/99", ready: (page) => page.getByText("there is no job 99").waitFor() },
  { name: "empty", path: "/?state=stopping", ready: (page) => page.getByText("No job is stopping.").waitFor() },
  { name: "login", path: "/", ready: (page) => tokenField(page).waitFor(), loggedOut: true },
];
const shots = process.env.MUSTER_SCREENSHOTS;
if (shots) await mkdir(shots, { recursive: true });

for (const { name, path, ready, loggedOut } of PAGES)
  for (const colorScheme of ["light", "dark"])
    for (const width of [1280, 375])
      test(`page ${name}, ${colorScheme}, ${width} px: axe finds nothing and nothing sticks out`, () =>
        on(path, async (page) => {
          await ready(page);
          if (shots) await page.screenshot({ path: `${shots}/${name}-${colorScheme}-${width}.png`, fullPage: true });
          assert.deepEqual(await axeViolations(page), []);
          assert.ok((await overflow(page)) <= 0, "the page scrolls sideways");
        }, { at: untouched, colorScheme, viewport: { width, height: 900 }, loggedOut }));

test("long names and settings leave room for the reason, and a rank is named on one line of a small screen", async () => {
  await server.tell({ do: "job", job: job(26, "failed", {
    name: "a-very-long-name-".repeat(12), reason: "rank 0 exited with 1 three times without progress",
    sweep: { sweep: "s26", index: 0, settings: { "data.folder": "/scratch/".repeat(20) } } }) });
  await on("/", async (page) => {
    const cell = page.locator("tbody tr", { hasText: "a-very-long-name" }).locator("td.reason");
    assert.ok((await cell.boundingBox()).width >= 200);
    assert.ok((await overflow(page)) <= 0, "the page scrolls sideways");
  });
  await on("/", async (page) => {
    const number = row(page, "llama-70m-manpages").locator("th .number");
    await number.waitFor();
    assert.equal((await number.innerText()).trim(), "1");
  }, { viewport: { width: 375, height: 900 } });
  await on("/jobs/1", async (page) => {
    const name = page.locator("table.ranks tbody th").first();
    const lineHeight = await name.evaluate((cell) => parseFloat(getComputedStyle(cell).lineHeight));
    assert.ok((await name.boundingBox()).height < 2 * lineHeight);
  }, { viewport: { width: 375, height: 900 } });
});

test("an idle job page asks for less than 50 KB a second", () =>
  on("/jobs/1", async (page) => {
    await page.getByRole("log").getByText("step 64 loss").first().waitFor();
    const session = await page.context().newCDPSession(page);
    await session.send("Network.enable");
    let bytes = 0;
    session.on("Network.loadingFinished", (event) => (bytes += event.encodedDataLength));
    await new Promise((resolve) => setTimeout(resolve, 4000));
    assert.ok(bytes / 4 < 50000, `${bytes / 4} bytes a second`);
  }));

test("a job that is not there is told in the controller's words: never there, or removed and by whom", async () => {
  await server.tell({ do: "job", job: job(8, "cancelled", { name: "to-remove" }) }); // its events are still there
  await on("/jobs/99", async (page) => {
    await page.getByText(/^There is no job 99/).waitFor();
    await page.route("**/api/v1/jobs/8?ranks=0", (route) => route.fulfill({ status: 404, json: { error: "job 8 was removed by root", remedy: "" } }));
    const removed = page.getByText("Job 8 was removed by root.");
    await page.route("**/api/v1/jobs/8/events*", async (route) => [await removed.waitFor(), await route.continue()]);
    const events = page.waitForResponse((answer) => answer.url().includes("/jobs/8/events"));
    await page.goto(`${server.url}/jobs/8`);
    await (await events).finished();
    for (let frame = 0; frame < 5; ++frame) await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
    assert.match(await page.locator("main").innerText(), /removed by root/, "an answer that comes later makes it no job");
    await page.getByRole("link", { name: "All jobs" }).waitFor();
  });
});

test("an address that is nothing gets a page that says so", () =>
  on("/nope", async (page) => {
    await page.getByText("There is no such page.").waitFor();
    await page.getByRole("link", { name: "All jobs" }).click();
    await page.getByRole("heading", { name: "Jobs" }).waitFor();
  }));

test("a job that hangs shows where its ranks stand, the one that differs first, and ranks can be asked", async () => {
  const set = { number: 1795474243500, at_ms: 1795474243500, why: "suspected", user: "", given: 2, ranks: 3, over: true };
  const before = { ...set, number: 1795474303500, at_ms: 1795474303500, why: "before_end" };
  await server.tell({ do: "job", job: job(52, "running", { name: "hangs", status: "running, suspected",
    reason: "rank 1 has made no progress since a minute", attempts: [attempt(1, { state: "running" })], ranks: [rank(0), rank(1), rank(2)] }) });
  await server.tell({ do: "stacks", view: { job_id: 52, attempt: 1, sets: [set, before], shown: before,
    summary: "rank 1 stands at next_batch (train.py:7); rank 0 stands at all_reduce (c10d.py:9)",
    groups: [{ ranks: [0], parts_at: "train (train.py:9)", innermost: "all_reduce (c10d.py:9)" },
      { ranks: [1], parts_at: "train (train.py:7)", innermost: "next_batch (train.py:7)" }],
    ranks: [{ rank: 0, text: "in all_reduce\n" }, { rank: 1, text: "in next_batch\n<b>no markup</b>\n" }, { rank: 2, problem: "the rank has ended" }] } });
  for (const width of [1280, 390]) {
    await on("/jobs/52", async (page) => {
      const stacks = page.locator(".stacks");
      await stacks.getByText("when it was about to end.").waitFor();
      await page.locator("main .badge", { hasText: "suspected" }).waitFor();
      await page.locator("main p.why", { hasText: /^rank 1 has made no progress since a minute/i }).waitFor();
      assert.match(await stacks.locator("tbody tr").first().innerText(), /rank 1\s+train \(train\.py:7\)\s+next_batch/);
      assert.equal(await stacks.getByLabel("Stack of rank 1").innerText(), "in next_batch\n<b>no markup</b>\n");
      assert.equal(await stacks.getByLabel("Stack of rank 0").isVisible(), false, "those that wait are closed");
      await stacks.getByText("rank 0", { exact: true }).last().click();
      assert.match(await stacks.getByLabel("Stack of rank 0").innerText(), /all_reduce/);
      await stacks.getByText("Rank 2 gave none: the rank has ended.").waitFor();
      assert.equal(await stacks.getByLabel("Taken").locator("option").count(), 2);
      const asked = page.waitForResponse((answer) => answer.request().method() === "POST" && answer.url().endsWith("/jobs/52/stacks"));
      await stacks.getByRole("button", { name: "Ask where the ranks stand" }).click();
      assert.equal((await asked).status(), 200);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "no sideways scrolling");
      assert.deepEqual(await axeViolations(page), []);
    }, { width });
  }
});

test("a job that has ended and of which no stacks are kept has no section of them", () =>
  on("/jobs/3", async (page) => {
    await page.locator(".facts").waitFor();
    await page.getByRole("heading", { name: "Attempts" }).waitFor();
    assert.equal(await page.locator(".stacks").count(), 0);
  }));
