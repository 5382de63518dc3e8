// Starts the engine inside its worker.
import init from "./worker.js";

try {
  await init({ module_or_path: new URL("./worker_bg.wasm", import.meta.url) });
} catch (error) {
  // The same shape as protocol::Reply with Answer::Panic.
  postMessage({ id: 0, answer: { Panic: `the engine could not start: ${error}` } });
}
