// The page's figures in a real browser beside their goals: ready, playing, scrubbing, a whole S3 run. Not a timed
// test: it prints and never fails for being slow. Run by `./run bench`; environment as for tests/browser.

import { state, suite } from "../browser/_lib.mjs";

const ROUNDS = 5;
const BENCH = { width: 1440, height: 900 };

const sorted = (list) => [...list].sort((a, b) => a - b);
const at = (list, share) => sorted(list)[Math.min(list.length - 1, Math.floor(list.length * share))];

function row(name, goal, text) {
  console.log(`${name.padEnd(58)} ${goal.padStart(12)}   ${text}`);
}

await suite(async ({ open }) => {
  row("figure", "goal", "measured");
  const ready = [];
  for (let i = 0; i < ROUNDS; i += 1) {
    const page = await open("", BENCH);
    await state(page, "done", "paused");
    ready.push(await page.evaluate(() => performance.getEntriesByName("fsg-ready")[0].startTime));
    await page.close();
  }
  row("ready, first screen", "< 1500 ms", `best ${at(ready, 0).toFixed(0)}, median ${at(ready, 0.5).toFixed(0)} ms`);

  const page = await open("?s=s3-journal&ui=bench", BENCH);
  const begun = Date.now();
  page.setDefaultTimeout(180_000);
  await state(page, "done", "paused");
  row("S3 run to its end, all panels followed", "-", `${Date.now() - begun} ms`);

  const frames = await page.evaluate(async () => {
    document.querySelector("[data-act=start]").click();
    await new Promise((done) => setTimeout(done, 300));
    document.querySelector("[data-act=play]").click();
    const gaps = [];
    const drawn = new Set();
    const until = performance.now() + 4_000;
    let last = performance.now();
    while (performance.now() < until) {
      const now = await new Promise((done) => requestAnimationFrame(done));
      gaps.push(now - last);
      last = now;
      drawn.add(document.querySelector(".transport").dataset.shown);
    }
    document.querySelector("[data-act=play]").click();
    return { gaps, drawn: drawn.size };
  });
  const screen = 1000 / (frames.gaps.reduce((sum, gap) => sum + gap, 0) / frames.gaps.length);
  const slow = at(frames.gaps, 0.95).toFixed(0);
  row("S3 playing: screen", "30 fps", `${screen.toFixed(0)} fps, slowest 5 % over ${slow} ms`);
  row("S3 playing: new instants shown", "30 per s", `${(frames.drawn / 4).toFixed(0)} per s`);

  const scrub = await page.evaluate(async () => {
    const canvas = document.querySelector("[data-act=scrub]");
    const box = canvas.getBoundingClientRect();
    const bar = document.querySelector(".transport");
    const took = [];
    for (let i = 0; i < 40; i += 1) {
      await new Promise((done) => setTimeout(done, 120));
      const share = ((i * 0.618_034) % 1) * 0.98 + 0.01;
      const where = { bubbles: true, clientX: box.left + box.width * share, clientY: box.top + 20 };
      const start = performance.now();
      canvas.dispatchEvent(new MouseEvent("click", where));
      do {
        await new Promise((done) => requestAnimationFrame(done));
      } while (bar.dataset.shown !== bar.dataset.now && performance.now() - start < 5_000);
      took.push(performance.now() - start);
    }
    return took;
  });
  const ms = (share) => at(scrub, share).toFixed(0);
  row("S3 scrub to any of 40 instants, picture there", "< 50 ms", `best ${ms(0)}, median ${ms(0.5)}, slowest 5 % over ${ms(0.95)} ms`);
});
