// The page becomes ready under a sub-path, at every width, with no complaint and no request to anyone else.

import { check, equal, shot, state, suite } from "./_lib.mjs";

const SIZES = [
  { width: 1440, height: 900 },
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
];

await suite(async ({ open }) => {
  for (const size of SIZES) {
    const page = await open("", size);
    await state(page, "ready", "running", "paused", "done");
    check(`title at ${size.width}`, (await page.title()).toLowerCase().includes("fsglass"));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(`no sideways scrolling at ${size.width}`, wide <= 0, `${wide} px too wide`);
    const mark = await page.evaluate(() => performance.getEntriesByName("fsg-ready").length);
    check("the mark fsg-ready is set", mark >= 1);
    equal(`no complaint at ${size.width}`, page.complaints, []);
    const cookies = await page.evaluate(() => document.cookie);
    equal("no cookie", cookies, "");
    await shot(page, `loads-${size.width}`);
    await page.close();
  }
});
