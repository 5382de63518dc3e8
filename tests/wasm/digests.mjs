// Native and wasm give the same bytes. FSGLASS_WASM: the module made for Node.js; FSGLASS_DIGESTS: the native program.

import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";

const engine = createRequire(import.meta.url)(process.env.FSGLASS_WASM);
const native = execFileSync(process.env.FSGLASS_DIGESTS, { encoding: "utf8" }).trim().split("\n");
const wasm = engine.digests().trim().split("\n");
const again = engine.digests().trim().split("\n");
const stepped = execFileSync(process.env.FSGLASS_DIGESTS, ["stepped"], { encoding: "utf8" }).trim().split("\n");

let passed = 0;
let failed = 0;
for (const [at, line] of native.entries()) {
  for (const [where, other] of [["wasm", wasm[at]], ["wasm, second run", again[at]]]) {
    if (other === line) {
      passed += 1;
    } else {
      failed += 1;
      console.log(`FAILED: native '${line}', ${where} '${other}'`);
    }
  }
}
for (const line of stepped) {
  if (native.includes(line)) {
    passed += 1;
  } else {
    failed += 1;
    console.log(`FAILED: in steps of three events '${line}' is another run`);
  }
}
for (const line of native.filter((text) => text.includes("problem"))) {
  failed += 1;
  console.log(`FAILED: ${line}`);
}
if (native.length < 9 || stepped.length < 6 || wasm.length !== native.length) {
  failed += 1;
  console.log(`FAILED: ${native.length} native lines, ${wasm.length} in wasm`);
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
