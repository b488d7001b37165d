// Goal: whatever series a job reports is plotted, and nothing is made up.
// Method: real server, real browser; jobs whose series no part of the dashboard knows by name.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { attempt, fill, job, metric, range, RECIPE_SERIES, series } from "./fixtures.mjs";
import { axeViolations, eventually, openBrowser, overflow, Server, withPage } from "./support.mjs";

let browser;
let server;

before(async () => {
  browser = await openBrowser();
  server = await Server.start();
  await fill(server);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const on = (path, run, options) => withPage(browser, server, path, run, options);
const put = (id, declared, more = {}) => server.tell({ do: "job", job: job(id, "running", {
  name: "own", kind: "command", steps_total: 0, attempts: [attempt(1, { state: "running" })], series: declared,
  spec: { name: "own", resources: { nodes: 1, ranks_per_node: 1 } }, ...more }) });
// A step that has these series alone.
const bare = (step, values) => ({ attempt: 1, step, at_ms: 1e12 + step * 1000, series: values });
const tell = (id, metrics) => server.tell({ do: "metrics", job_id: id, metrics });
const titles = async (page) => (await page.locator(".plot-head h3").allInnerTexts()).map((text) => text.trim());
const table = async (page, title, id) => {
  await page.getByText(`${title}: data table`).click();
  const rows = page.locator(`table[data-plot="${id}"] tr`);
  await rows.first().waitFor();
  return rows.evaluateAll((all) => all.map((tr) => [...tr.cells].map((cell) => cell.innerText)));
};
// The columns of pixels of a plot's canvas that have something in a colour of the style sheet, or nearly in it.
const painted = (plot, name) => plot.locator("canvas").evaluate((canvas, colour) => {
  const wanted = getComputedStyle(document.documentElement).getPropertyValue(colour).trim().match(/\w\w/g).map((part) => parseInt(part, 16));
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const isNear = (at) => data[at + 3] > 180 && wanted.every((part, i) => Math.abs(data[at + i] - part) < 40);
  const columns = [];
  for (let x = 0; x < width; ++x) {
    let y = 0;
    while (y < height && !isNear(4 * (y * width + x))) ++y;
    if (y < height) columns.push(x);
  }
  return columns;
}, name);
const plotOf = (page, title) => page.locator(".plot", { has: page.getByRole("heading", { name: title }) });

test("series that nobody knows by name are plotted, with unit and the newest value where it tells how good the model is", async () => {
  await put(50, [series("accuracy", { better: "higher", value: 0.75 }), series("reward/mean"), series("power", { unit: "W" })]);
  await tell(50, range(1, 30).map((step) => bare(step, { accuracy: step / 40, "reward/mean": -step, power: 300 + step })));
  await on("/jobs/50", async (page) => {
    await page.locator(".plot").nth(2).waitFor();
    assert.deepEqual(await titles(page), ["Accuracy", "Reward/mean", "Power (W)"]);
    assert.match(await page.locator(".facts").innerText(), /Accuracy\s+0\.75/);
    const rows = await table(page, "Reward/mean", "reward/mean");
    assert.deepEqual(rows[0], ["Attempt", "Step", "Reward/mean", "Smoothed", "Note"]);
    assert.deepEqual(rows[30].slice(0, 3), ["1", "30", "-30"]);
    await page.getByLabel("log values").check();
    await eventually(async () => (await painted(plotOf(page, "Reward/mean"), "--accent")).length > 100, "a line of values without a logarithm");
  });
});

test("facts of what is measured on held-out data come first, and a training of images has samples a second", async () => {
  const of = (name, better, value) => series(name, { better, value, unit: name === "samples_per_s" ? "samples/s" : "" });
  await put(51, [of("loss", "lower", 3.5), of("koleo_loss", "lower", 0.25), of("samples_per_s", "higher", 73), of("validation/knn", "higher", 0.375)], { tokens_per_s: 0 });
  await tell(51, range(1, 5).map((step) => bare(step, { loss: 3.5 })));
  await on("/jobs/51", async (page) => {
    await page.locator(".facts").waitFor();
    const names = await page.locator(".facts dt").allInnerTexts();
    const asked = ["Loss", "Validation knn", "Koleo loss", "Samples/s"];
    assert.deepEqual(names.filter((name) => asked.includes(name)), asked);
    assert.ok(!names.includes("Tokens/s"), names.join());
    assert.match(await page.locator(".facts").innerText(), /Validation knn\s+0\.375[^]*Samples\/s\s+73/);
  });
});

test("loss and validation loss share a plot, each in its colour, with a legend; the few values of validation are joined", () =>
  on("/jobs/1", async (page) => {
    const plot = plotOf(page, "Loss");
    await plot.waitFor();
    assert.equal(await page.locator(".plot").count(), 4, "no plot of validation alone");
    assert.deepEqual(await plot.locator(".legend li").allInnerTexts(), ["loss", "validation/loss"]);
    assert.equal(await page.locator(".legend").count(), 1, "a single line needs none");
    await eventually(async () => (await painted(plot, "--accent")).length > 100, "the line of the loss");
    // Three dots of 8 pixels, and a line between the first two.
    await eventually(async () => (await painted(plot, "--mild")).length > 50, "dots of validation and the line between them");
    assert.equal(await page.getByText("Lines with dots show the reported values.").count(), 1);
  }));

test("values that are no numbers are gaps: said by table and keyboard, and never a 0", async () => {
  await put(51, [series("loss", { better: "lower", value: null, step: 30 }), series("broken", { value: null })]);
  await tell(51, range(1, 30).map((step) => bare(step, { loss: 2, broken: 1 })));
  // JSON of commands has no such numbers: the answer is changed on its way.
  const withNulls = (page) => page.route("**/api/v1/jobs/51/metrics*", async (route) => {
    const answer = await (await route.fetch()).json();
    for (const { name, step, value } of answer.series)
      step.forEach((at, i) => (value[i] = name === "loss" && (at <= 10 || at >= 20) ? 2 : null));
    await route.fulfill({ json: answer });
  });
  await on("/jobs/51", async (page) => {
    await page.locator(".plot").first().waitFor();
    assert.deepEqual(await titles(page), ["Loss"]);
    await page.getByText("Series without a number so far: broken.").waitFor();
    const rows = await table(page, "Loss", "loss");
    assert.deepEqual(rows.slice(1).map((cells) => cells[2]), range(1, 30).map((step) => (step > 10 && step < 20 ? "no number" : "2")));
    const plot = plotOf(page, "Loss");
    await plot.locator(".plot-box").focus();
    await page.keyboard.press("Home");
    for (let step = 1; step < 11; ++step) await page.keyboard.press("ArrowRight");
    assert.equal(await plot.locator("output").innerText(), "step 11, attempt 1: no number");
    // The middle third of the line is not there.
    const columns = await eventually(async () => {
      const found = await painted(plot, "--accent");
      return found.length > 100 && found;
    }, "a line");
    const widest = Math.max(...columns.slice(1).map((x, i) => x - columns[i]));
    assert.ok(widest > (columns.at(-1) - columns[0]) / 4, `a gap of ${widest} in ${columns.at(-1) - columns[0]} pixels`);
  }, { prepare: withNulls });
});

test("of forty series the first dozen plots are shown, the others when asked for", async () => {
  const names = range(1, 40).map((number) => `layer_${number}/norm`);
  await put(52, names.map((name) => series(name)));
  await tell(52, range(1, 20).map((step) => bare(step, Object.fromEntries(names.map((name, i) => [name, i + step])))));
  await on("/jobs/52", async (page) => {
    const more = page.getByRole("button", { name: "Show 28 more plots" });
    await more.waitFor();
    assert.equal(await page.locator(".plot").count(), 12);
    assert.ok((await overflow(page)) <= 0, "the page scrolls sideways");
    await more.click();
    await page.locator(".plot").nth(39).waitFor();
    assert.equal(await more.count(), 0);
    assert.ok((await page.locator(".uplot").count()) < 40, "what is far from the view is not drawn");
    const last = page.locator(".plot").last();
    await last.scrollIntoViewIfNeeded();
    await last.locator(".uplot").waitFor();
    await page.evaluate(() => scrollTo(0, 0));
    await eventually(async () => (await last.locator(".uplot").count()) === 0, "the last one is out of sight");
    assert.equal((await table(page, "Layer 40/norm", "layer_40/norm")).length, 21);
    await page.getByRole("button", { name: "Show the first 12 plots" }).click();
    await more.waitFor();
    assert.equal(await page.locator(".plot").count(), 12);
  });
});

test("a series that appears while the page is open is plotted, and joins its quantity once the job tells of it", async () => {
  const [loss, validation] = RECIPE_SERIES;
  await put(53, [loss]);
  await tell(53, range(1, 19).map((step) => bare(step, { loss: 3 - step / 20 })));
  await on("/jobs/53", async (page) => {
    await page.locator(".plot").first().waitFor();
    assert.deepEqual(await titles(page), ["Loss (nats)"]);
    let held = true; // the job as it was read before
    await page.route("**/api/v1/jobs/53?ranks=0", async (route) => {
      const answer = await (await route.fetch()).json();
      await route.fulfill({ json: held ? { ...answer, series: answer.series.slice(0, 1) } : answer });
    });
    await put(53, [loss, validation]);
    await tell(53, [bare(20, { loss: 2, "validation/loss": 2.2 })]);
    await eventually(async () => (await titles(page)).join() === "Loss (nats),Validation/loss", "a plot of its own");
    held = false;
    await eventually(async () => (await titles(page)).join() === "Loss (nats)", "one plot of both");
    assert.deepEqual(await plotOf(page, "Loss").locator(".legend li").allInnerTexts(), ["loss", "validation/loss"]);
  });
});

test("a job that has ended is read again, once, for a series that it had not when it was read", async () => {
  await put(54, RECIPE_SERIES.slice(0, 2), { state: "succeeded" });
  await tell(54, range(1, 5).map((step) => bare(step, { loss: step, "validation/loss": step })));
  let asked = 0;
  await on("/jobs/54", async (page) => {
    await eventually(async () => (await titles(page)).join() === "Loss (nats)", "one plot of both");
    assert.deepEqual(await plotOf(page, "Loss").locator(".legend li").allInnerTexts(), ["loss", "validation/loss"]);
    assert.equal(asked, 2);
  }, { prepare: async (page) => {
    await page.route("**/api/v1/stream*", (route) => route.abort()); // its first word has every page load anew
    await page.route("**/api/v1/jobs/54?ranks=0", async (route) => {
      const first = ++asked === 1;
      const answer = await (await route.fetch()).json();
      await route.fulfill({ json: first ? { ...answer, series: answer.series.slice(0, 1) } : answer });
    });
    await page.route("**/api/v1/jobs/54/metrics*", async (route) => {
      await page.locator(".facts").waitFor(); // the first answer has been taken
      await route.continue();
    });
  } });
});

// A run of 6,000 steps with a peak at 3,003, of which `from` on is the second attempt.
const longRun = async (id, from = 6001) => {
  await put(id, [series("loss")], { attempts: from > 6000 ? [attempt(1)] : [attempt(1), attempt(2)] });
  const step = (number) => ({ ...bare(number, { loss: number === 3003 ? 50 : 2 + (number % 7) / 10 }), attempt: number < from ? 1 : 2 });
  await tell(id, range(1, 6000).map(step));
};
// What the page asks of a job's curves.
const questions = (page, id) => {
  const asked = [];
  page.on("request", (request) => request.url().includes(`/jobs/${id}/metrics?`) && asked.push(Object.fromEntries(new URL(request.url()).searchParams)));
  return asked;
};

test("a long run is drawn from few points that hide no peak, and a page that follows it asks for new steps alone", async () => {
  await longRun(56);
  let asked;
  const answers = [];
  await on("/jobs/56", async (page) => {
    await page.getByText("The lowest, the highest and the last value of every 12 steps are drawn. All values: muster metrics 56 --csv.").waitFor();
    const { step, value, values } = (await answers[0].json()).series[0];
    assert.ok(step.length <= 2000 && values === 6000, `${step.length} points of ${values}`);
    assert.equal(value[step.indexOf(3003)], 50);
    asked.length = 0;
    await tell(56, range(6001, 6003).map((number) => bare(number, { loss: 1 })));
    const plot = plotOf(page, "Loss");
    await plot.locator(".plot-box").focus();
    await eventually(async () => {
      await page.keyboard.press("End");
      return (await plot.locator("output").innerText()).startsWith("step 6,003,");
    }, "the newest step");
    assert.deepEqual(asked.find((one) => one.after_step === "6000"), { points: "2000", after_attempt: "1", after_step: "6000" });
    for (const one of asked) assert.ok(one.after_step, "never the whole run again");
  }, { prepare: (page) => {
    asked = questions(page, 56);
    page.on("response", (response) => response.url().includes("/jobs/56/metrics?") && answers.push(response));
  } });
});

test("a drag across a plot asks for each of its steps, for all plots; a double click shows the whole run again", async () => {
  await longRun(57, 2901);
  await on("/jobs/57", async (page) => {
    const asked = questions(page, 57);
    const plot = plotOf(page, "Loss");
    const over = plot.locator(".u-over");
    await over.waitFor();
    const dragTo = async (from, to) => {
      await plot.scrollIntoViewIfNeeded();
      const { x, y, width, height } = await eventually(() => over.boundingBox(), "a plot that is drawn");
      await page.mouse.move(x + width * from, y + height / 2);
      await page.mouse.down();
      await page.mouse.move(x + width * to, y + height / 2, { steps: 4 });
      await page.mouse.up();
    };
    await dragTo(0.45, 0.55);
    const { from_step, to_step } = await eventually(() => asked.find((one) => one.from_step), "a question");
    assert.ok(Math.abs(from_step - 2700) < 60 && Math.abs(to_step - 3300) < 60, `${from_step} to ${to_step}`);
    const count = (number) => Number(number).toLocaleString("en");
    await page.getByText(`Steps ${count(from_step)} to ${count(to_step)}`).waitFor();
    await eventually(async () => (await page.getByText("steps are drawn").count()) === 0, "each step is drawn");
    await plot.locator(".plot-box").focus();
    await page.keyboard.press("Home");
    assert.ok((await plot.locator("output").innerText()).startsWith(`step ${count(from_step)}, attempt 1:`));
    await page.keyboard.press("ArrowRight");
    assert.ok((await plot.locator("output").innerText()).startsWith(`step ${count(Number(from_step) + 1)}, attempt 1:`));
    await over.dblclick();
    await eventually(async () => (await page.getByText("Show the whole run").count()) === 0, "no zoom");
    await page.getByText("of every 12 steps are drawn").waitFor();
    await plot.locator(".plot-box").focus();
    await page.keyboard.press("End");
    await page.keyboard.press("+");
    await page.getByText("Steps 4,500 to 7,500").waitFor();
    await page.getByRole("button", { name: "Show the whole run" }).click();
    await page.getByRole("combobox", { name: "By" }).selectOption("time");
    await eventually(async () => (await plot.locator(".plot-box").getAttribute("aria-label")).startsWith("Loss by time"), "the time axis");
    await dragTo(0.1, 0.2);
    await page.getByText(/Steps [56]\d\d to 1,[12]\d\d/).waitFor();
  });
});

const shots = process.env.MUSTER_SCREENSHOTS;
if (shots) await mkdir(shots, { recursive: true });

for (const colorScheme of ["light", "dark"])
  for (const width of [1280, 390])
    test(`many series, ${colorScheme}, ${width} px: axe finds nothing and nothing sticks out`, async () => {
      const id = `55${colorScheme === "light" ? 0 : 1}${width === 390 ? 0 : 1}`;
      const long = `${"very_long_name_".repeat(8)}end`;
      await put(Number(id), [...RECIPE_SERIES, series("learning_rate"), series("grad_norm"), series("train/accuracy", { quantity: "accuracy", better: "higher" }),
        series("eval_accuracy"), series(long)]);
      const values = (step) => ({ learning_rate: 3e-4 * Math.min(1, step / 20), grad_norm: 1 + Math.cos(step), "train/accuracy": 1 - Math.exp(-step / 40),
        [long]: step, ...(step % 10 === 0 ? { eval_accuracy: 0.9 - Math.exp(-step / 40) } : {}) });
      await tell(Number(id), [...range(1, 75), ...range(61, 110).map((step) => step + 1000)].map((step) =>
        metric(step > 1000 ? 2 : 1, step % 1000, { bytes_communicated: 3e8, series: values(step % 1000) })));
      await on(`/jobs/${id}`, async (page) => {
        await page.locator(".plot").nth(8).waitFor();
        await page.locator(".plot").first().locator(".uplot").waitFor();
        if (shots) await page.screenshot({ path: `${shots}/series-${colorScheme}-${width}.png`, fullPage: true });
        assert.deepEqual(await axeViolations(page), []);
        assert.ok((await overflow(page)) <= 0, "the page scrolls sideways");
      }, { colorScheme, viewport: { width, height: 900 } });
    });
