// @ts-check
/** What to do where there is no WebGPU, for this visitor's system and browser. */

import { byId, h, systemName } from "../dom.js";
import { NoAdapterError, inWords } from "../webmm.js";

/** @type {Record<string, string[]>} */
const WHERE = {
  Windows: ["Chrome or Edge 113 and later have it switched on.", "Firefox 141 and later, too."],
  macOS: [
    "Safari 26 and later, Chrome or Edge 113 and later have it switched on.",
    "Firefox 145 and later on Apple silicon, too.",
  ],
  iOS: ["Update to iOS 26: every browser there then has it."],
  Android: ["Chrome 121 and later on Android 12 and later, on most phones."],
  ChromeOS: ["Chrome 113 and later have it switched on."],
  Linux: [
    "Chrome 144 and later have it switched on for recent Intel and NVIDIA GPUs.",
    "Elsewhere start Chrome or Chromium with --enable-unsafe-webgpu --enable-features=Vulkan, or set chrome://flags/#enable-unsafe-webgpu to Enabled.",
    "Firefox Nightly has it; in other releases set dom.webgpu.enabled to true in about:config.",
  ],
};

/** @param {HTMLElement} root @param {unknown} error */
export function showHelp(root, error) {
  const system = systemName();
  const missing = error instanceof NoAdapterError;
  const content = h(
    "div",
    {},
    h("h2", {}, missing ? "This page needs WebGPU" : "The page could not start"),
    h("p", {}, missing ? advice() : inWords(error)),
    missing && h("h3", {}, `Browsers that have WebGPU on ${system}`),
    missing && h("ul", {}, ...(WHERE[system] ?? WHERE.Linux).map((line) => h("li", {}, line))),
    missing &&
      h(
        "p",
        {},
        "Without a browser, webmm’s command ",
        h("code", {}, "webmm bench"),
        " runs the same shaders from Python.",
      ),
    h("button", { type: "button", class: "primary", onclick: () => location.reload() }, "Try again"),
  );
  root.replaceChildren(content);
  for (const panel of document.querySelectorAll("[role=tabpanel]")) /** @type {HTMLElement} */ (panel).hidden = true;
  /** @type {HTMLElement} */ (document.querySelector(".tabs")).hidden = true;
  byId("help").hidden = false;
}

/** @returns {string} */
function advice() {
  if (!isSecureContext)
    return "Browsers offer WebGPU to secure pages only: open this one over https, or from localhost.";
  if (navigator.gpu) {
    return "This browser has WebGPU, but found no GPU for it: the driver may be too old or on its block list. Update the graphics driver, and see that hardware acceleration is switched on in the browser's settings.";
  }
  return "This browser does not offer WebGPU.";
}
