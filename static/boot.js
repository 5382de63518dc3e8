// Starts the page. The names of the built files come from the attributes of this script's own element, so that
// the page works under any sub-path and without an inline script.
const self = document.querySelector("script[data-js]");
const root = document.documentElement;

function failed(error) {
  root.dataset.fsg = "error";
  const note = document.getElementById("boot-note");
  if (!note) return;
  note.hidden = false;
  note.textContent = location.protocol === "file:"
    ? "This build needs a web server: browsers refuse modules and workers from file://."
    : `The page could not start: ${error}. Reload, or try a browser from the last two years.`;
}

addEventListener("fsg-panic", (event) => failed(event.detail));

try {
  const base = new URL(self.dataset.base || "./", document.baseURI);
  root.dataset.base = base.href;
  const module = await import(new URL(self.dataset.js, base).href);
  await module.default({ module_or_path: new URL(self.dataset.wasm, base).href });
} catch (error) {
  failed(error);
}
