// Everything that matters works without a mouse: running, stepping, pulling the plug, opening and closing sheets.

import { check, equal, shot, state, suite } from "./_lib.mjs";

const now = (page) => page.evaluate(() => Number(document.querySelector(".transport[data-now]").dataset.now));

await suite(async ({ open }) => {
  const page = await open("");
  await state(page, "ready", "paused", "done");

  const before = await now(page);
  await page.keyboard.press("Home");
  await page.waitForFunction((old) => document.querySelector(".transport[data-now]").dataset.now !== String(old), before);
  const start = await now(page);
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction((old) => Number(document.querySelector(".transport[data-now]").dataset.now) > old, start);
  check("the right arrow steps forward", (await now(page)) > start);

  await page.keyboard.press("Space");
  await state(page, "running");
  check("the space bar plays", true);
  await page.keyboard.press("Space");
  await state(page, "paused", "ready", "done");
  check("and pauses", true);

  await page.keyboard.press("c");
  await page.waitForSelector('[data-panel="crash"]');
  check("c pulls the plug", true);
  await shot(page, "keyboard-crash");

  await page.keyboard.press("?");
  await page.waitForSelector('[role="dialog"]');
  check("? opens the list of keys", true);
  // The focus moves in an effect, one frame after the sheet is drawn.
  const inside = await page
    .waitForFunction(() => !!document.activeElement.closest('[role="dialog"]'), null, { timeout: 2000 })
    .then(() => true, () => false);
  check("the focus is in the sheet", inside);
  await page.keyboard.press("Escape");
  await page.waitForSelector('[role="dialog"]', { state: "detached" });
  check("Escape closes it", true);

  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll("[data-act]")]
      .filter((node) => node.matches("button, input, select, textarea, a"))
      .filter((node) => {
        const label = node.labels?.length ? node.labels[0].textContent : "";
        const name = node.getAttribute("aria-label") || label || node.textContent || node.title;
        return !name.trim();
      })
      .map((node) => node.dataset.act),
  );
  equal("every control has a name", nameless, []);
  const traps = await page.evaluate(() =>
    [...document.querySelectorAll("canvas")].filter((node) => !node.closest("[aria-label], [role=img], figure")).length,
  );
  equal("every canvas has a name", traps, 0);

  await page.keyboard.press("Home");
  const seen = new Set();
  for (let presses = 0; presses < 60; presses += 1) {
    await page.keyboard.press("Tab");
    seen.add(await page.evaluate(() => document.activeElement?.dataset.act ?? document.activeElement?.tagName));
  }
  check("Tab moves over many controls", seen.size >= 8, [...seen].join(" "));
  equal("no complaint", page.complaints, []);
});
