// Images out and in: the crashed disk is saved with its manifest and recipe, and opens again on the page.

import { readFileSync } from "node:fs";
import { check, equal, state, suite } from "./_lib.mjs";

const EXT4_MAGIC_AT = 1024 + 0x38;

await suite(async ({ open }) => {
  const page = await open("?s=one-echo&ui=bench&t=3s", { width: 1440, height: 900 });
  await state(page, "done", "paused");
  const downloads = [];
  page.on("download", (d) => downloads.push(d));
  await page.keyboard.press("Control+s");
  await page.click("[data-act=export-before]");
  await page.waitForSelector("[data-act=recipe]", { timeout: 60_000 });
  const recipe = await page.textContent("[data-act=recipe]");
  check("the recipe mounts and compares", /mount/.test(recipe) && /sha256sum -c/.test(recipe), recipe);
  for (let i = 0; i < 50 && downloads.length < 2; i += 1) await page.waitForTimeout(100);
  const names = downloads.map((d) => d.suggestedFilename());
  check("image and manifest are saved", names.length >= 2, names.join(" "));
  const raw = downloads.find((d) => d.suggestedFilename().endsWith(".img"));
  if (raw) {
    const path = await raw.path();
    const bytes = readFileSync(path);
    equal("ext4's magic number", bytes.readUInt16LE(EXT4_MAGIC_AT), 0xef53);
    await page.keyboard.press("Escape");
    await page.setInputFiles("[data-act=upload]", path);
    await state(page, "loading");
    await state(page, "done", "paused");
    await page.click("[data-act=tree-picture]").catch(() => {});
    const files = await page.textContent("[data-panel=tree]");
    check("the file is there again", files.includes("/f"), files);
  } else {
    check("a raw image is among them", false, names.join(" "));
  }
  equal("no complaint", page.complaints, []);
});
