// The first screen: one finding, one button; the plug, three verdicts, take back, save the file, cut again.

import { check, equal, shot, state, suite } from "./_lib.mjs";

const verdicts = (page) =>
  page.$$eval("[data-table=survivors] tbody tr[data-verdict]", (rows) =>
    Object.fromEntries(rows.map((row) => [row.querySelector(".path").textContent, row.dataset.verdict])),
  );

const cut = async (page) => {
  await page.keyboard.press("c");
  await page.waitForSelector("[data-table=survivors] tbody tr[data-verdict]");
  return verdicts(page);
};

await suite(async ({ open }) => {
  const page = await open("", { width: 1440, height: 900 });
  check("the finding is there at once", (await page.textContent("h1")).includes("The name survived"));
  await state(page, "done", "paused");
  await page.waitForSelector(".story [data-panel=map] canvas");
  equal("one primary action", await page.locator("main button.plug").count(), 1);
  const lead = await page.textContent(".story .lead");
  for (const fate of ["a is safe", "the name of b is safe", "c is only in memory"]) {
    check(`before the cut: ${fate}`, lead.includes(fate), lead);
  }
  await shot(page, "story-1440");

  const first = await cut(page);
  equal("a had fsync", first["/a"], "intact");
  equal("b kept its name only", first["/b"], "shorter");
  equal("c came after the last commit", first["/c"], "missing");
  await shot(page, "story-crash-1440");

  await page.keyboard.press("Backspace");
  await page.waitForSelector("[data-table=survivors]", { state: "detached" });
  await page.keyboard.press("1");
  await page.waitForSelector("[data-act=switch-1][aria-checked=true]");
  check("the switch is on", true);
  // At once: a plug that is pulled while the run is on its way cuts where the cursor is going.
  const second = await cut(page);
  equal("with fsync b is intact", second["/b"], "intact");

  const meter = await page.textContent("[data-panel=loss]");
  check("the meter speaks of promises", /promise/.test(meter), meter);
  equal("no complaint", page.complaints, []);
});
