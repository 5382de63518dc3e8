// The disk that the page saves after a power cut is for real Linux to judge: the journal replays, the file system is
// clean, and the files are what the page's manifest says.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

import { check, equal, skip, state, suite } from "./_lib.mjs";

const LAB = "tests/kernel-lab/lab.py";

await suite(async ({ open }) => {
  const page = await open("");
  await state(page, "ready", "paused", "done");
  await page.keyboard.press("c");
  await page.waitForSelector('[data-panel="crash"]');
  await page.keyboard.press("Control+s");
  const folder = mkdtempSync(join(tmpdir(), "fsglass-saved-"));
  try {
    const names = [];
    page.on("download", (download) => names.push(save(download, folder)));
    await page.click('[data-act="export-before"]');
    await page.waitForSelector('[data-act="recipe"]');
    await page.waitForTimeout(1500);
    await Promise.all(names);
    const files = readdirSync(folder);
    check("an image and a manifest are saved", files.length >= 2, files.join(" "));
    judge(folder, files);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  equal("no complaint", page.complaints, []);
});

async function save(download, folder) {
  await download.saveAs(join(folder, download.suggestedFilename()));
}

function judge(folder, files) {
  const compressed = files.find((name) => /\.img(\.gz)?$/.test(name));
  const manifest = files.find((name) => /manifest|sha256/i.test(name));
  check("the image is there", compressed !== undefined, files.join(" "));
  check("the manifest is there", manifest !== undefined, files.join(" "));
  if (!compressed || !manifest) return;
  const image = join(folder, "saved.img");
  const bytes = readFileSync(join(folder, compressed));
  writeFileSync(image, compressed.endsWith(".gz") ? gunzipSync(bytes) : bytes);
  const probe = spawnSync("python3", [LAB, "probe"], { encoding: "utf8" });
  if (probe.status !== 0) {
    skip("Linux judges the image", (probe.stdout + probe.stderr).trim());
    return;
  }
  const out = join(folder, "verify.json");
  const verdict = spawnSync("python3", [LAB, "verify", "--crash", image, "--out", out], { encoding: "utf8" });
  check("lab.py verify --crash", verdict.status === 0, verdict.stdout + verdict.stderr);
  const tree = JSON.parse(readFileSync(out, "utf8")).state ?? {};
  const lines = readFileSync(join(folder, manifest), "utf8").split("\n").filter((line) => /^[0-9a-f]{64}  /.test(line));
  check("the manifest names files", lines.length > 0);
  for (const line of lines) {
    const path = "/" + line.slice(66).replace(/^\.?\//, "");
    equal(`content of ${path}`, tree[path]?.sha256, line.slice(0, 64));
  }
}
