// Goal: what a page shows is what is, whatever became of its stream or its session.
// Method: pages that ask for nothing by themselves, so that only the stream can bring them up to date; a stream that the
// test holds back, cuts or plays itself; a clock that the test moves.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { job } from "./fixtures.mjs";
import { eventually, jobRow, openBrowser, openStreams, openTab, Server, withPage } from "./support.mjs";

let browser;
let server;

before(async () => {
  browser = await openBrowser();
  server = await Server.start();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const on = (path, run, options) => withPage(browser, server, path, run, options);

// An ended job, whose page follows no log. That it has changed is told by no event.
const put = (reason) => server.tell({ do: "job", job: job(1, "failed", { name: "watched", reason }) });
const tellEvent = () => server.tell({ do: "event", job_id: 1, type: "note", text: "something has changed" });

const withoutPolls = (page) => page.addInitScript(() => {
  globalThis.setInterval = () => 0;
});

// Holds the request for the stream; the function that `held` gives lets it go.
async function holdStream(page) {
  let release;
  await page.route("**/api/v1/stream*", (route) => {
    release = (changes) => route.continue(changes);
  });
  return { held: () => eventually(() => release, "a request for the stream") };
}

test("when a lost stream is back, every page shows what changed meanwhile, though no event tells it", async () => {
  await put("as it was");
  await on("/", async (page) => {
    await page.getByText("as it was").waitFor();
    const tab = await openTab(page, server, "/jobs/1", withoutPolls);
    await tab.getByText("as it was").waitFor();
    await put("as an event told");
    await tellEvent();
    for (const one of [page, tab]) await one.getByText("as an event told").waitFor();

    await server.tell({ do: "down" });
    for (const one of [page, tab]) await one.getByText("Reconnecting").waitFor();
    await put("as nobody told");
    await page.route("**/api/v1/status", (route) => route.fetch().then(
      async (response) => route.fulfill({ response, json: { ...(await response.json()), store_problem: "the disk is full" } }),
      () => route.abort()));
    await server.tell({ do: "up" });
    await page.getByText("as nobody told").waitFor();
    await tab.getByText("as nobody told").waitFor();
    await page.getByText("The store takes no writes: the disk is full").waitFor();
    for (const one of [page, tab]) await eventually(async () => (await one.getByText("Reconnecting").count()) === 0, "the banner goes");
    assert.deepEqual(tab.problems, []);
  }, { prepare: withoutPolls });
});

test("a stream that musterd refuses since it has forgotten the session logs in by itself", () =>
  // No page that would ask for anything else, and log in for that.
  on("/nope", async (page) => {
    await eventually(async () => (await openStreams(server)) === 1, "the stream");
    await server.tell({ do: "down" });
    await page.getByText("Reconnecting").waitFor();
    await server.tell({ do: "up" });
    await eventually(async () => (await openStreams(server)) === 1, "the stream is back");
    await eventually(async () => (await page.getByText("Reconnecting").count()) === 0, "the banner goes");
  }, { prepare: withoutPolls }));

test("what changes after a page has loaded and before its stream says its first word is shown", async () => {
  await put("as it was");
  let stream;
  await on("/", async (page) => {
    await page.getByText("as it was").waitFor();
    const release = await stream.held();
    await put("as nobody told");
    await release();
    await page.getByText("as nobody told").waitFor();
  }, { prepare: async (page) => {
    await withoutPolls(page);
    stream = await holdStream(page);
  } });
});

test("a tab that takes over the stream and is told that too much was missed loads everything anew", async () => {
  await put("as it was");
  await on("/", async (page) => {
    await page.getByText("as it was").waitFor();
    await eventually(async () => (await openStreams(server)) === 1, "the first tab's stream");
    let stream;
    const tab = await openTab(page, server, "/", async (one) => {
      await withoutPolls(one);
      stream = await holdStream(one);
    });
    await tab.getByText("as it was").waitFor();
    await put("as an event told");
    await tellEvent();
    await tab.getByText("as an event told").waitFor();

    await page.close();
    const release = await stream.held();
    await put("as nobody told");
    // An event that the server never had: as after its store was replaced.
    await release({ url: `${server.url}/api/v1/stream?after=1000000` });
    await tab.getByText("as nobody told").waitFor();
    await put("as an event told again");
    await tellEvent();
    await tab.getByText("as an event told again").waitFor();
    assert.deepEqual(tab.problems, []);
  }, { prepare: withoutPolls });
});

test("a tab without a token gets its session from a tab that has one, and never the token", async () => {
  await put("as it was");
  // No matter how long the other tab takes.
  const patient = (page) => page.addInitScript(() => {
    const plain = setTimeout;
    globalThis.setTimeout = (work, ms, ...more) => plain(work, 10 * ms, ...more);
  });
  await on("/", async (page) => {
    await jobRow(page, "watched").waitFor();
    await page.context().clearCookies();
    const tab = await openTab(page, server, "/jobs/1", patient);
    await tab.getByRole("heading", { name: "watched" }).waitFor();
    await page.context().clearCookies();
    await tab.getByRole("link", { name: "Jobs" }).first().click();
    await jobRow(tab, "watched").waitFor();
    assert.deepEqual(await tab.evaluate(() => Object.values(sessionStorage)), []);
    assert.deepEqual(tab.problems, []);
  }, { prepare: withoutPolls });
});

test("a stream that has said nothing for 25 s is opened anew; a beat is enough to keep it", () =>
  on("/", async (page) => {
    const look = (run, ...given) => page.evaluate(run, ...given);
    const say = (type) => look((one) => EventSource.opened.at(-1).say(one), type);
    const streams = () => look(() => EventSource.opened.map((one) => (one.closed ? "closed" : "open")));
    const ticking = (done, what) => eventually(async () => {
      await page.clock.runFor(50);
      return done();
    }, what);
    const lost = async () => (await page.getByText("Reconnecting").count()) > 0;

    await ticking(async () => (await streams()).length === 1, "a stream");
    await say("hello");
    await page.clock.fastForward(24000);
    await say("beat");
    await page.clock.fastForward(24000);
    assert.deepEqual(await streams(), ["open"]);
    await page.clock.fastForward(1000);
    assert.deepEqual(await streams(), ["closed"]);
    await ticking(lost, "the banner");
    await ticking(async () => (await streams()).length === 2, "another stream");
    await say("hello");
    await ticking(async () => !(await lost()), "the banner goes");
    assert.deepEqual(await streams(), ["closed", "open"]);
  }, { prepare: async (page) => {
    await page.clock.install({ time: 0 });
    await page.clock.pauseAt(1000);
    await page.addInitScript(() => {
      globalThis.EventSource = class extends EventTarget {
        static opened = [];
        closed = false;
        constructor() {
          super();
          EventSource.opened.push(this);
        }
        close() {
          this.closed = true;
        }
        say(type) {
          this.dispatchEvent(new MessageEvent(type, { data: "{}", lastEventId: "1" }));
        }
      };
    });
  } }));
