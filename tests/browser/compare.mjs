// A/B: a difference that is real, noise that is not distinguishable, two causes, the link; PostMark in the editor.

import { check, equal, shot, state, suite } from "./_lib.mjs";

const JOB = "[j]\nrw=randwrite\nbs=4k\nsize=2M\nfsync=4\ntime_based\nruntime=60\n";

const verdict = async (page) => {
  await page.waitForFunction(() => document.querySelector("[data-act=ab-verdict]")?.textContent.length > 20);
  return page.textContent("[data-act=ab-verdict]");
};

await suite(async ({ open }) => {
  const page = await open("?s=one-echo&ui=bench", { width: 1440, height: 900 });
  await state(page, "done", "paused");
  await page.selectOption("[data-act=kind]", "fio");
  await page.fill("[data-act=workload]", JOB);
  await page.click("[data-act=ab]");
  await page.waitForSelector("[data-panel=ab]");
  check("nothing differs yet", (await page.textContent("[data-act=ab-doubt]")).includes("B is as A"));
  await page.fill("[data-act=ab-mount]", "data=journal");
  equal("one cause", await page.locator("[data-act=ab-doubt]").count(), 0);
  check("the title names it", (await page.textContent("[data-panel=ab] h2")).includes("default | data=journal"));
  await page.selectOption("[data-act=ab-seeds]", "3");
  await page.fill("[data-act=ab-length]", "40 ms");
  await page.click("[data-act=ab-run]");
  const found = await verdict(page);
  check("more bytes, and it is real", /B wrote [\d.]+× the bytes \(exact; 3 seeds.*?: real/.test(found), found);
  await page.waitForSelector("[data-panel=ab] canvas");
  await shot(page, "ab-1440");
  await page.click("[data-act=ab-table]");
  const rows = await page.$$eval("[data-table=ab] tbody tr", (list) => list.map((row) => row.textContent));
  check("the same as a table", rows.length >= 7 && rows.some((row) => row.startsWith("IOPS")), rows.join("; "));
  await page.click("[data-act=ab-log]");
  equal("each run is a line", await page.locator("[data-log=ab] li").count(), 6);

  await page.click("[data-act=ab-noise]");
  await page.waitForFunction(() => /A against A/.test(document.querySelector("[data-act=ab-verdict]")?.textContent));
  check("A/A", (await verdict(page)).includes("not distinguishable, as it must be"), await verdict(page));

  await page.fill("[data-act=ab-mount]", "data=journal,commit=30");
  check("two causes", (await page.textContent("[data-act=ab-doubt]")).includes("Two causes, one result"));
  await page.waitForTimeout(700);
  const link = await page.evaluate(() => location.hash);
  const again = await open(`?${Date.now()}${link}`);
  await again.waitForSelector("[data-act=ab-mount]");
  equal("the link keeps B", await again.inputValue("[data-act=ab-mount]"), "data=journal,commit=30");
  equal("no complaint of the second page", again.complaints, []);
  await again.close();

  // A mistake in B is named, and nothing runs.
  await page.fill("[data-act=ab-mount]", "data=sideways");
  await page.click("[data-act=ab-run]");
  await page.waitForSelector(".banner.bad:not([hidden])");
  check("the mistake in B", (await page.textContent(".banner.bad:not([hidden])")).includes("sideways"));

  // PostMark: fields edit the commands; the report is the tool's.
  await page.selectOption("[data-act=preset]", { label: "a small mail server (PostMark)" });
  equal("the kind follows", await page.inputValue("[data-act=kind]"), "postmark");
  await page.fill("[data-act=postmark-number]", "50");
  await page.fill("[data-act=postmark-transactions]", "60");
  check("the commands follow", (await page.inputValue("[data-act=workload]")).includes("set transactions 60\n"));
  await page.selectOption("[data-act=slot-2]", "heat");
  await page.keyboard.press("Control+Enter");
  await page.waitForFunction(() => /60 transactions|Transactions per second|per second/.test(document.querySelector(".fio")?.textContent));
  check("PostMark's report", (await page.textContent(".fio")).includes("Files:"), await page.textContent(".fio"));
  equal("no complaint", page.complaints, []);

  // The scene of a thread shows its numbers beside ours.
  const thread = await open("?s=s1-iversion&t=0", { width: 1440, height: 900 });
  await thread.waitForSelector("[data-table=published]");
  check("published numbers", (await thread.textContent("[data-table=published]")).includes("96.3"));
  equal("no complaint of the thread", thread.complaints, []);
});
