// The embedded figure: 640 by 360, caption, two panels, transport, plug, open in full; nothing is a dialog.

import { check, equal, shot, state, suite } from "./_lib.mjs";

await suite(async ({ open }) => {
  const page = await open("e/?s=write-nofsync&caption=A%20figure", { width: 640, height: 360 });
  await state(page, "done", "paused");
  await page.waitForSelector("[data-panel=map] canvas");
  equal("caption", await page.textContent(".caption"), "A figure");
  equal("two panels", await page.locator(".pair > [data-panel]").count(), 2);
  const tall = await page.evaluate(() => document.documentElement.scrollHeight - innerHeight);
  check("it fits", tall <= 0, String(tall));
  await page.waitForTimeout(300);
  await shot(page, "embed-640");
  await page.click("[data-act=crash]");
  await page.waitForSelector("[data-table=survivors] tbody tr[data-verdict]");
  await shot(page, "embed-640-crash");
  const full = await page.getAttribute("[data-act=open-full]", "href");
  check("open in full keeps the state", /\/#1\./.test(full) && !full.includes("/e/"), full);
  equal("no complaint", page.complaints, []);
});
