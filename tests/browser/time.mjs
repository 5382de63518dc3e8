// Time: step, scrub, play, commits, typed time; forwards and backwards give the same instants.

import { check, equal, state, suite } from "./_lib.mjs";

const now = async (page) => Number(await page.getAttribute(".transport", "data-now"));
const settle = (page) => page.waitForTimeout(150);

await suite(async ({ open }) => {
  const page = await open("?s=write-nofsync&ui=bench");
  await state(page, "done", "paused");
  equal("the scene's instant", await now(page), 7e9);

  await page.keyboard.press("Home");
  await settle(page);
  equal("Home", await now(page), 0);
  const there = [];
  for (let i = 0; i < 12; i += 1) {
    await page.keyboard.press("ArrowRight");
    await settle(page);
    there.push(await now(page));
  }
  check("steps go forward", there.every((t, i) => i === 0 || t >= there[i - 1]) && there[11] > 0, there.join(" "));
  const back = [there[11]];
  for (let i = 0; i < 40 && back.at(-1) > there[0]; i += 1) {
    await page.keyboard.press("ArrowLeft");
    await settle(page);
    back.push(await now(page));
  }
  const instants = (list) => [...new Set(list)].sort((a, b) => a - b);
  equal("steps back meet the same instants", instants(back), instants(there));

  await page.keyboard.press("End");
  await settle(page);
  const end = await now(page);
  check("End", end >= 9e9, String(end));
  await page.keyboard.press("Shift+ArrowLeft");
  await settle(page);
  const commit = await now(page);
  check("previous commit", commit < end && commit > 0, String(commit));

  await page.keyboard.press("t");
  await page.fill("[data-act=time-text]", "2.5s");
  await page.keyboard.press("Enter");
  await settle(page);
  equal("typed time", await now(page), 2.5e9);

  const box = await page.locator("[data-act=scrub]").boundingBox();
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
  await settle(page);
  check("scrub by click", Math.abs((await now(page)) - end / 2) < end * 0.05, String(await now(page)));

  const before = await now(page);
  await page.keyboard.press("Space");
  await page.waitForTimeout(500);
  equal("playing", await page.evaluate(() => document.documentElement.dataset.fsg), "running");
  await page.keyboard.press("Space");
  await settle(page);
  check("time went on", (await now(page)) > before);
  const still = await now(page);
  await page.waitForTimeout(300);
  equal("paused stands still", await now(page), still);

  await page.keyboard.press(">");
  const faster = await page.inputValue("[data-act=speed]");
  await page.keyboard.press("<");
  check("speed keys", Number(faster) > Number(await page.inputValue("[data-act=speed]")));
  equal("no complaint", page.complaints, []);
});
