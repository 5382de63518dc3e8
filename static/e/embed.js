// The embed is the same build one folder up: take its style sheets and the names of its files from there.
const page = new URL("../", document.baseURI);
try {
  const html = await (await fetch(new URL("index.html", page))).text();
  const built = new DOMParser().parseFromString(html, "text/html");
  for (const sheet of built.querySelectorAll("link[rel=stylesheet]")) {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL(sheet.getAttribute("href"), page).href;
    document.head.append(link);
  }
  const boot = built.querySelector("script[data-js]");
  const script = document.createElement("script");
  script.type = "module";
  script.dataset.js = boot.dataset.js;
  script.dataset.wasm = boot.dataset.wasm;
  script.dataset.base = page.href;
  script.src = new URL("boot.js", page).href;
  document.head.append(script);
} catch (error) {
  document.documentElement.dataset.fsg = "error";
  document.body.textContent = `The figure could not be loaded: ${error}`;
}
