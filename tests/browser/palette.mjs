// The palette: contrast against the ground and distance between roles, also as colour-blind people see them.
// No browser is needed: the tokens are read from the built style sheet.

import { check, suite, url } from "./_lib.mjs";

const ROLES = ["--fixed", "--bitmap", "--itable", "--tree", "--journal", "--data", "--alert"];
const DISTANCE_MIN = 14.5;
const FILL_CONTRAST_MIN = 3;
const TEXT_CONTRAST_MIN = 4.5;

// Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
const SIGHT = {
  normal: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

const linear = (hex) =>
  [1, 3, 5]
    .map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
const luminance = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
const contrast = (a, b) => {
  const [x, y] = [luminance(linear(a)), luminance(linear(b))].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
const seen = (rgb, matrix) =>
  matrix.map((row) => Math.min(1, Math.max(0, row.reduce((sum, m, i) => sum + m * rgb[i], 0))));

function lab([r, g, b]) {
  const f = (t) => (t > 216 / 24389 ? Math.cbrt(t) : ((24389 / 27) * t + 16) / 116);
  const x = f((0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047);
  const y = f(0.2126729 * r + 0.7151522 * g + 0.072175 * b);
  const z = f((0.0193339 * r + 0.119192 * g + 0.9503041 * b) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** CIEDE2000 (Sharma, Wu and Dalal 2005). */
function distance([l1, a1, b1], [l2, a2, b2]) {
  const rad = Math.PI / 180;
  const c7 = ((Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2) ** 7;
  const g = 0.5 * (1 - Math.sqrt(c7 / (c7 + 25 ** 7)));
  const [p1, p2] = [a1 * (1 + g), a2 * (1 + g)];
  const [c1, c2] = [Math.hypot(p1, b1), Math.hypot(p2, b2)];
  const hue = (a, b) => (a === 0 && b === 0 ? 0 : (Math.atan2(b, a) / rad + 360) % 360);
  const [h1, h2] = [hue(p1, b1), hue(p2, b2)];
  let dh = h2 - h1;
  if (c1 * c2 === 0) dh = 0;
  else if (dh > 180) dh -= 360;
  else if (dh < -180) dh += 360;
  const dH = 2 * Math.sqrt(c1 * c2) * Math.sin((dh / 2) * rad);
  const [lm, cm] = [(l1 + l2) / 2, (c1 + c2) / 2];
  let hm = h1 + h2;
  if (c1 * c2 !== 0) {
    if (Math.abs(h1 - h2) <= 180) hm /= 2;
    else hm = hm < 360 ? (hm + 360) / 2 : (hm - 360) / 2;
  }
  const t =
    1 - 0.17 * Math.cos((hm - 30) * rad) + 0.24 * Math.cos(2 * hm * rad) + 0.32 * Math.cos((3 * hm + 6) * rad) -
    0.2 * Math.cos((4 * hm - 63) * rad);
  const sl = 1 + (0.015 * (lm - 50) ** 2) / Math.sqrt(20 + (lm - 50) ** 2);
  const [sc, sh] = [1 + 0.045 * cm, 1 + 0.015 * cm * t];
  const rc = 2 * Math.sqrt(cm ** 7 / (cm ** 7 + 25 ** 7));
  const rt = -rc * Math.sin(60 * rad * Math.exp(-(((hm - 275) / 25) ** 2)));
  const [dl, dc] = [(l2 - l1) / sl, (c2 - c1) / sc];
  return Math.sqrt(dl ** 2 + dc ** 2 + (dH / sh) ** 2 + rt * dc * (dH / sh));
}

function tokens(css, start) {
  const at = css.indexOf(start);
  const block = css.slice(at, css.indexOf("}", at));
  return Object.fromEntries([...block.matchAll(/(--[a-z0-9-]+):\s*(#[0-9a-fA-F]{6})/g)].map((m) => [m[1], m[2]]));
}

await suite(async () => {
  const html = await (await fetch(url)).text();
  const sheet = /href="([^"]*tokens[^"]*\.css)"/.exec(html)[1];
  const css = await (await fetch(new URL(sheet, url))).text();
  const light = tokens(css, ":root {");
  const themes = {
    light,
    dark: tokens(css, ":root[data-theme=\"dark\"]"),
    projector: { ...light, ...tokens(css, ":root[data-theme=\"projector\"]") },
  };
  for (const [name, theme] of Object.entries(themes)) {
    for (const role of ROLES) {
      const c = contrast(theme[role], theme["--ground"]);
      check(`${name} ${role} on the ground`, c >= FILL_CONTRAST_MIN, c.toFixed(2));
    }
    for (const ink of ["--ink", "--ink-2", "--ink-3"]) {
      const c = contrast(theme[ink], theme["--ground"]);
      check(`${name} ${ink} on the ground`, c >= TEXT_CONTRAST_MIN, c.toFixed(2));
    }
    for (const [sight, matrix] of Object.entries(SIGHT)) {
      const labs = ROLES.map((role) => lab(seen(linear(theme[role]), matrix)));
      for (let i = 0; i < ROLES.length; i += 1) {
        for (let j = i + 1; j < ROLES.length; j += 1) {
          const d = distance(labs[i], labs[j]);
          check(`${name}, ${sight}: ${ROLES[i]} and ${ROLES[j]}`, d >= DISTANCE_MIN, d.toFixed(1));
        }
      }
    }
  }
});
