// The bench at its widths and themes; every canvas has its table; nothing needs a style attribute; mistakes in the
// setup are named beside their field.

import { check, equal, shot, state, suite } from "./_lib.mjs";

const SIZES = [
  { width: 1440, height: 900 },
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
];

await suite(async ({ open }) => {
  for (const size of SIZES) {
    for (const theme of ["light", "dark"]) {
      const page = await open(`?s=write-nofsync&ui=bench&theme=${theme}`, size);
      await state(page, "done", "paused");
      await page.waitForTimeout(400);
      await shot(page, `bench-${size.width}-${theme}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      check(`no sideways scrolling at ${size.width}`, wide <= 0, String(wide));
      const small = await page.$$eval("button, select, input", (list) =>
        list
          .filter((e) => e.checkVisibility() && !e.classList.contains("link") && e.type !== "checkbox")
          .map((e) => [e.dataset.act, e.getBoundingClientRect().height])
          .filter(([, h]) => h < 23.5),
      );
      equal(`targets at ${size.width}`, small, []);
      equal(`no complaint at ${size.width} ${theme}`, page.complaints, []);
      await page.close();
    }
  }

  const page = await open("?s=write-nofsync&ui=bench", SIZES[0]);
  await state(page, "done", "paused");
  equal("no style attributes", await page.locator("[style]").count(), 0);
  for (const panel of ["map", "ring", "heat", "itable", "amp"]) {
    if (panel === "itable" || panel === "amp") await page.selectOption("[data-act=slot-2]", panel);
    await page.waitForSelector(`[data-panel=${panel}] canvas`);
    check(`${panel} has a name`, (await page.getAttribute(`[data-panel=${panel}] canvas`, "aria-label")).length > 5);
    await page.click(`[data-act=${panel}-table]`);
    await page.waitForSelector(`[data-panel=${panel}] table`);
    check(`${panel} as a table`, (await page.locator(`[data-panel=${panel}] tbody tr`).count()) > 0);
    await page.click(`[data-act=${panel}-picture]`);
  }
  const unnamed = await page.$$eval("button, input, select, textarea", (list) =>
    list
      .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
      .map((e) => e.outerHTML.slice(0, 80)),
  );
  equal("every control has a name", unnamed, []);

  await page.fill("[data-act=mount]", "data=sideways");
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector(".problem");
  check("the mistake is named", (await page.textContent(".problem")).includes("sideways"));
  await page.fill("[data-act=mount]", "");
  await page.keyboard.press("Control+Enter");
  await state(page, "done", "paused");
  equal("the problem is gone", await page.locator(".problem").count(), 0);
  equal("no complaint", page.complaints, []);
});
