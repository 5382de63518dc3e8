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

  // Typing the commands changes the form, and the form changes them.
  await page.fill("[data-act=commands]", "mkfs.ext4 -b 1024 -J size=4 /dev/vda && mount -o data=journal /dev/vda /mnt");
  equal("mkfs options of the command", await page.inputValue("[data-act=mkfs]"), "-b 1024 -J size=4");
  equal("mount options of the command", await page.inputValue("[data-act=mount-data]"), "journal");
  await page.selectOption("[data-act=mount-data]", "writeback");
  const commands = await page.inputValue("[data-act=commands]");
  check("the command of the options", commands.includes("mount -o data=writeback /dev/vda /mnt"), commands);
  check("the command of mkfs", commands.startsWith("mkfs.ext4 -b 1024 -J size=4 /dev/vda"), commands);

  // A scene chooses its panels; at its instant the lazy init thread is at work.
  await page.selectOption("[data-act=scene]", "s2-lazyinit");
  await state(page, "done", "paused");
  await page.click("[data-act=itable-table]");
  await page.waitForSelector("[data-panel=itable] tbody tr");
  // The table may still be that of the scene before, or of an earlier instant.
  await page.waitForFunction(() => {
    const cells = [...document.querySelectorAll("[data-panel=itable] tbody td")];
    return cells.filter((cell) => /^yes$/.test(cell.textContent)).length > 10;
  });
  const zeroed = await page.locator("[data-panel=itable] tbody td", { hasText: /^yes$/ }).count();
  check("some inode tables are zeroed at 20 s, not all", zeroed > 10 && zeroed < 1_192, String(zeroed));
  equal("no complaint", page.complaints, []);
});
