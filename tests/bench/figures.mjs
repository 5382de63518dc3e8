// The engine's figures, native and in wasm under Node.js, beside their goals. Not a timed test: it never fails.
// Run by `./run bench`; FSGLASS_WASM and FSGLASS_DIGESTS as for tests/wasm, FSGLASS_ONLY: part of a name.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const engine = createRequire(import.meta.url)(process.env.FSGLASS_WASM);
const native = process.env.FSGLASS_DIGESTS;
const S3 = readFileSync("static/scenes/s3-journal.toml", "utf8");
const IDLE = '[workload]\nops = "stat /"\n';

// Name, experiment, number of operations (0: only the time counts), goals in ms (native, wasm).
const FIGURES = [
  ["S3, data=journal: 750,001 writes of 4 KiB over 100 GiB, 30 s", S3.replace('options = "data=ordered"', 'options = "data=journal"'), 750_001, 1000, 3000],
  ["S3, data=ordered: the same with O_DIRECT", S3, 750_001, 1000, 3000],
  ["mkfs and mount of 149 GiB", `[device]\nsize = "149G"\n${IDLE}`, 0, 200, 0],
  ["mkfs and mount of 16 TiB", `[device]\nsize = "16T"\n${IDLE}`, 0, 0, 0],
];

const folder = mkdtempSync(join(tmpdir(), "fsglass-bench-"));
try {
  console.log("figure                                                         where    ms (goal)        per second   MiB  same");
  for (const [name, text, operations, nativeGoal, wasmGoal] of FIGURES) {
    if (process.env.FSGLASS_ONLY && !name.includes(process.env.FSGLASS_ONLY)) continue;
    const file = join(folder, "experiment.toml");
    writeFileSync(file, text);
    const [ms, mib, ...first] = execFileSync(native, ["time", file], { encoding: "utf8" }).trim().split(" ");
    const start = performance.now();
    const second = engine.run_text(text);
    const wasmMs = performance.now() - start;
    const same = second === first.join(" ") ? "yes" : `NO: ${first.join(" ")} / ${second}`;
    row(name, "native", Number(ms), nativeGoal, operations, mib, same);
    row("", "wasm", wasmMs, wasmGoal, operations, Math.round(engine.memory_bytes() / 2 ** 20), "");
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function row(name, where, ms, goal, operations, mib, same) {
  const rate = operations ? Math.round(operations / (ms / 1000)).toLocaleString("en") : "-";
  const time = `${ms.toFixed(0)} (${goal || "-"})`;
  console.log(`${name.padEnd(62)} ${where.padEnd(7)} ${time.padStart(14)} ${rate.padStart(14)} ${String(mib).padStart(6)}  ${same}`);
}
