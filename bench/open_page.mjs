// Opens a page of the dashboard in Chromium several times. Prints one line of JSON each time: the time until the selected
// element is drawn, the heap of the page, the slowest frame of a scroll to the page's end, and the number of elements.
//
// Usage: node open_page.mjs URL TOKEN PATH SELECTOR TIMES
// Runs where playwright-core is: beside the built dashboard's node_modules.
import { chromium } from "playwright-core";

const [url, token, path, selector, times] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.MUSTER_CHROMIUM ?? "/usr/bin/chromium-headless-shell",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-precise-memory-info"],
});
for (let i = 0; i < Number(times); ++i) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const begun = performance.now();
  await page.goto(`${url}${path}#token=${token}`);
  await page.locator(selector).first().waitFor();
  const drawn = performance.now() - begun;
  await page.requestGC();
  const heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
  // A scroll over the whole page shows how smooth the page is.
  const scroll = await page.evaluate(async () => {
    const frames = [];
    let last = performance.now();
    for (let step = 0; step < 120; ++step) {
      scrollTo(0, (document.documentElement.scrollHeight * step) / 120);
      await new Promise(requestAnimationFrame);
      frames.push(performance.now() - last);
      last = performance.now();
    }
    return Math.max(...frames);
  });
  console.log(JSON.stringify({ drawn_ms: drawn, heap_bytes: heap, slowest_frame_ms: scroll, elements: await page.locator("*").count() }));
  await page.close();
}
await browser.close();
