// The whole path without a mouse: bench, panels, table, goto, crash, recovery, undo, help, theme.

import { check, equal, state, suite } from "./_lib.mjs";

const focusedPanel = (page) =>
  page.evaluate(() => document.activeElement?.closest("[data-panel]")?.dataset.panel ?? "");

await suite(async ({ open }) => {
  const page = await open("", { width: 1440, height: 900 });
  await state(page, "done", "paused");
  await page.keyboard.press("Control+k");
  await page.waitForSelector(".dialog");
  await page.keyboard.press("Escape");
  await page.waitForSelector(".dialog", { state: "detached" });

  // Tab reaches the button that opens the bench.
  for (let i = 0; i < 12; i += 1) {
    await page.keyboard.press("Tab");
    if ((await page.evaluate(() => document.activeElement?.dataset.act)) === "bench") break;
  }
  await page.keyboard.press("Enter");
  await page.waitForSelector(".desk");

  const visited = new Set();
  for (let i = 0; i < 8; i += 1) {
    await page.keyboard.press("F6");
    await page.waitForTimeout(120);
    visited.add(await focusedPanel(page));
  }
  for (const panel of ["map", "ring", "heat", "tree", "hex", "loss"]) {
    check(`F6 reaches ${panel}`, visited.has(panel), [...visited].join(" "));
  }
  while ((await focusedPanel(page)) !== "map") {
    await page.keyboard.press("F6");
    await page.waitForTimeout(120);
  }
  await page.keyboard.press("v");
  await page.waitForSelector("[data-panel=map] table");
  await page.keyboard.press("v");
  await page.waitForSelector("[data-panel=map] [data-log]");
  await page.keyboard.press("v");
  await page.waitForSelector("[data-panel=map] canvas");

  await page.keyboard.press("g");
  await page.waitForTimeout(100);
  await page.keyboard.type("super");
  await page.keyboard.press("Enter");
  await page.waitForSelector("[data-panel=hex] .hexdump");
  const fields = await page.textContent("[data-panel=hex]");
  check("the superblock is decoded", fields.includes("s_magic"), fields.slice(0, 200));

  await page.keyboard.press("c");
  await page.waitForSelector("[data-table=recovery] li");
  const steps = await page.locator("[data-table=recovery] li").count();
  await page.keyboard.press("Shift+R");
  await page.waitForTimeout(100);
  equal("one step back", await page.locator("[data-table=recovery] li.past").count(), steps - 1);
  await page.keyboard.press("r");
  await page.waitForTimeout(100);
  equal("and forward", await page.locator("[data-table=recovery] li.past").count(), steps);
  await page.keyboard.press("Backspace");
  await page.waitForSelector("[data-table=recovery]", { state: "detached" });

  await page.keyboard.press("?");
  await page.waitForSelector(".dialog .keymap");
  await page.keyboard.press("Escape");
  await page.keyboard.press("p");
  equal("projector", await page.evaluate(() => document.documentElement.dataset.theme), "projector");
  await page.keyboard.press("p");

  // Tab leaves the editor.
  await page.focus("[data-act=workload]");
  await page.keyboard.press("Tab");
  check("Tab leaves the editor", (await page.evaluate(() => document.activeElement?.dataset.act)) !== "workload");
  equal("no complaint", page.complaints, []);
});
