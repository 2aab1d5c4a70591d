// @ts-check
/** Advice for visitors without WebGPU, by operating system and browser. */

import { PRIMARY, button, byId, div, h, systemName } from "../dom.js";
import { NoAdapterError, inWords } from "../webmm.js";

/** Browsers that have WebGPU, by operating system. @type {Record<string, string[]>} */
const BROWSERS = {
  Windows: ["Chrome or Edge 113 or later.", "Firefox 141 or later."],
  macOS: ["Safari 26 or later.", "Chrome or Edge 113 or later.", "Firefox 145 or later, on Apple silicon."],
  iOS: ["Every browser, on iOS 26 or later."],
  Android: ["Chrome 121 or later, on most phones with Android 12 or later."],
  ChromeOS: ["Chrome 113 or later."],
  Linux: [
    "Chrome 144 or later, on recent Intel and NVIDIA GPUs.",
    "Chrome or Chromium on other GPUs: start it with --enable-unsafe-webgpu --enable-features=Vulkan, or set chrome://flags/#enable-unsafe-webgpu to Enabled.",
    "Firefox Nightly; in other Firefox releases, set dom.webgpu.enabled to true in about:config.",
  ],
};

/** @param {HTMLElement} root @param {unknown} error */
export function showHelp(root, error) {
  const system = systemName();
  const missing = error instanceof NoAdapterError;
  const content = div(
    "",
    h("h2", {}, missing ? "This page needs WebGPU" : "The page could not start"),
    h("p", {}, missing ? advice() : inWords(error)),
    missing && h("h3", {}, `Browsers that have WebGPU on ${system}`),
    missing && h("ul", {}, ...(BROWSERS[system] ?? BROWSERS.Linux).map((line) => h("li", {}, line))),
    missing &&
      h(
        "p",
        {},
        "Without a browser, the command ",
        h("code", {}, "webmm bench"),
        " of the Python package runs the same shaders.",
      ),
    button("", "Try again", () => location.reload(), PRIMARY),
  );
  root.replaceChildren(content);
  for (const panel of document.querySelectorAll("[role=tabpanel]")) /** @type {HTMLElement} */ (panel).hidden = true;
  /** @type {HTMLElement} */ (document.querySelector(".tabs")).hidden = true;
  byId("help").hidden = false;
}

/** @returns {string} */
function advice() {
  if (!isSecureContext)
    return "Browsers offer WebGPU to secure pages only: open this page over https, or from localhost.";
  if (navigator.gpu) {
    return "This browser has WebGPU, but found no GPU for it: the driver may be too old or on the browser's blocklist. Update the graphics driver, and make sure that hardware acceleration is switched on in the browser's settings.";
  }
  return "This browser does not offer WebGPU.";
}
