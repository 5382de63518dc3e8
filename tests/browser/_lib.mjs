// Shared by the page tests: a fresh browser per script, named checks, one closing line.
// Environment (set by `./run test`): FSGLASS_URL, FSGLASS_CHROMIUM, FSGLASS_PLAYWRIGHT, FSGLASS_BIN.

import { mkdtempSync, rmSync, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

// Chromium's note that a preloaded module's integrity is not used; harmless, and the only message allowed.
const ALLOWED = /preload.*integrity|integrity.*preload/i;

export const url = process.env.FSGLASS_URL;
const SHOTS = process.env.FSGLASS_SHOTS;

let passed = 0;
let failed = 0;
let skipped = 0;

export function check(name, holds, detail = "") {
  if (holds) {
    passed += 1;
  } else {
    failed += 1;
    console.log(`FAILED: ${name} ${detail}`);
  }
}

export function equal(name, actual, expected) {
  const a = JSON.stringify(actual);
  const b = JSON.stringify(expected);
  check(name, a === b, `got ${a}, expected ${b}`);
}

export function skip(name, why) {
  skipped += 1;
  console.log(`SKIP ${name}: ${why}`);
}

/** Runs `body({browser, open})` in a browser of its own and ends the process with the right status. */
export async function suite(body) {
  const profile = mkdtempSync(join(tmpdir(), "fsglass-browser-"));
  let context;
  try {
    const { chromium } = await import(pathToFileURL(process.env.FSGLASS_PLAYWRIGHT).href);
    context = await chromium.launchPersistentContext(profile, {
      executablePath: process.env.FSGLASS_CHROMIUM,
      args: FLAGS,
      acceptDownloads: true,
      viewport: { width: 1280, height: 800 },
    });
    context.setDefaultTimeout(60_000);
    await body({ context, open: (path, size) => open(context, path, size) });
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${error.stack ?? error}`);
  } finally {
    await context?.close();
    rmSync(profile, { recursive: true, force: true });
  }
  console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
  process.exit(failed > 0 ? 1 : 0);
}

/** A page that records its console errors, failed requests and requests to other hosts in `page.complaints`. */
async function open(context, path = "", size = { width: 1280, height: 800 }) {
  const page = await context.newPage();
  page.complaints = [];
  page.on("console", (message) => {
    const kind = message.type();
    if ((kind === "error" || kind === "warning") && !ALLOWED.test(message.text())) {
      page.complaints.push(`${kind}: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => page.complaints.push(`exception: ${error.message}`));
  page.on("requestfailed", (request) => page.complaints.push(`failed request: ${request.url()}`));
  page.on("response", (response) => {
    if (response.status() >= 400) page.complaints.push(`${response.status()}: ${response.url()}`);
  });
  page.on("request", (request) => {
    const target = new URL(request.url());
    const own = target.origin === new URL(url).origin || ["data:", "blob:"].includes(target.protocol);
    if (!own) page.complaints.push(`third-party request: ${target}`);
  });
  await page.setViewportSize(size);
  await page.goto(new URL(path, url).href);
  return page;
}

/** Waits for one of the page's states (`data-fsg` of the root element). */
export async function state(page, ...wanted) {
  await page.waitForFunction((names) => names.includes(document.documentElement.dataset.fsg), wanted);
}

/** Keeps a screenshot where FSGLASS_SHOTS names a folder. */
export async function shot(page, name) {
  if (!SHOTS) return;
  mkdirSync(SHOTS, { recursive: true });
  await page.screenshot({ path: join(SHOTS, `${name}.png`) });
}
