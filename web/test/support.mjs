// A real server over scripted data, and a real browser. Everything a test starts ends with it.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const axeSource = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
// Beside other tests a page may take its time.
export const PATIENCE_MS = 60000;

export class Server {
  static async start() {
    const program = process.env.MUSTER_HTTP_TEST_SERVER;
    if (!program) throw new Error("MUSTER_HTTP_TEST_SERVER is not set: run the tests through ctest");
    const server = new Server();
    server.folder = await mkdtemp(join(tmpdir(), "muster-web-"));
    server.process = spawn(program, [server.folder], { stdio: ["pipe", "pipe", "inherit"] });
    server.lines = createInterface({ input: server.process.stdout })[Symbol.asyncIterator]();
    Object.assign(server, JSON.parse((await server.lines.next()).value));
    server.url = `http://127.0.0.1:${server.port}`;
    return server;
  }

  async tell(command) {
    this.process.stdin.write(JSON.stringify(command) + "\n");
    const answer = JSON.parse((await this.lines.next()).value);
    if (answer.error) throw new Error(answer.error);
  }

  async stop() {
    this.process.stdin.end();
    await new Promise((resolve) => this.process.once("exit", resolve));
    await rm(this.folder, { recursive: true });
  }
}

/// Debian's Chromium without windows takes half the processor time of the one with windows.
export function openBrowser() {
  return chromium.launch({
    executablePath: process.env.MUSTER_CHROMIUM ?? "/usr/bin/chromium-headless-shell",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
}

/// A browser window of its own, logged in; what goes wrong in its console is kept in page.problems. `prepare`: what is
/// done to the window's first tab before anything is loaded.
export async function openPage(browser, server, path, { prepare = () => {}, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  watch(page, server);
  await prepare(page);
  await page.goto(`${server.url}${path}${options.loggedOut ? "" : `#token=${server.token}`}`);
  return page;
}

/// Opens a page, runs the test, and looks at what the browser complained about.
export async function withPage(browser, server, path, run, options = {}) {
  const page = await openPage(browser, server, path, options);
  try {
    await run(page);
    assert.deepEqual(page.problems, []);
    assert.deepEqual(page.foreign, [], "something was loaded from elsewhere");
  } finally {
    await closeWindow(page);
  }
}

/// Answers that a test still makes up for the page are of no use to anybody then, and their failing is no failure.
export async function closeWindow(page) {
  const context = page.context();
  for (const tab of context.pages()) await tab.unrouteAll({ behavior: "ignoreErrors" });
  await context.close();
}

/// A further tab of the same window: it has the session's cookie, but no token of its own.
export async function openTab(page, server, path, prepare = () => {}) {
  const tab = await page.context().newPage();
  watch(tab, server);
  await prepare(tab);
  await tab.goto(`${server.url}${path}`);
  return tab;
}

export const jobRow = (page, name) => page.locator("tbody tr", { has: page.getByRole("link", { name, exact: true }) });

/// How many event streams the server has open.
export async function openStreams(server) {
  const answer = await fetch(`${server.url}/metrics`, { headers: { Authorization: `Bearer ${server.token}` } });
  return Number(/muster_http_streams (\d+)/.exec(await answer.text())[1]);
}

export function watch(page, server) {
  page.problems = [];
  page.foreign = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => {
    // A server that is down, and 401 before logging in, are reported by the browser itself.
    if (message.type() === "error" && !/Failed to load resource|ERR_/.test(message.text())) page.problems.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(server.url) && !request.url().startsWith("data:")) page.foreign.push(request.url());
  });
}

export async function axeViolations(page) {
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target} ${n.failureSummary}`).slice(0, 3).join(" | ")}`);
}

export const overflow = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/// Waits until `look` gives something true; returns it.
export async function eventually(look, what) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await look();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`never came: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
