// The link in the address bar: reload and a second tab show the same screen; a damaged link says so.

import { check, equal, state, suite } from "./_lib.mjs";

const now = async (page) => Number(await page.getAttribute(".transport", "data-now"));

await suite(async ({ open }) => {
  const page = await open("?s=write-nofsync&ui=bench", { width: 1440, height: 900 });
  await state(page, "done", "paused");
  await page.selectOption("[data-act=mount-commit]", "1");
  await page.selectOption("[data-act=slot-1]", "itable");
  await page.keyboard.press("Control+Enter");
  await state(page, "done", "paused");
  await page.keyboard.press("t");
  await page.fill("[data-act=time-text]", "1.25");
  await page.keyboard.press("Enter");
  await page.waitForTimeout(900);
  const link = new URL(page.url());
  check("the bar holds the experiment", link.hash.startsWith("#1."), page.url());
  check("a custom link is short", page.url().length <= 400, String(page.url().length));

  await page.reload();
  await state(page, "done", "paused");
  equal("mount after reload", await page.inputValue("[data-act=mount]"), "commit=1");
  equal("instant after reload", await now(page), 1.25e9);
  equal("panel after reload", await page.locator(".slot-1").getAttribute("data-panel"), "itable");

  await page.click("[data-act=share]");
  const shown = await page.textContent("[data-act=link]");
  check("the dialog shows the link", shown.includes("#1."), shown);
  const other = await open("", { width: 1280, height: 800 });
  await state(other, "done", "paused");
  await other.goto(shown.trim());
  await other.reload();
  await state(other, "done", "paused");
  equal("instant in another tab", await now(other), 1.25e9);
  equal("no complaint", [...page.complaints, ...other.complaints], []);

  const broken = await open("#1.AAAA");
  await state(broken, "done", "paused");
  check("a damaged link says so", (await broken.textContent(".banner:not([hidden])")).includes("could not be opened"));
});
