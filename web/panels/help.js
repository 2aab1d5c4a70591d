/** Advice for visitors without WebGPU, by operating system and browser. */

import { byId, markup, systemName } from "../dom.js";
import { NoAdapterError, inWords } from "../webmm.js";

/** @param {unknown} error */
export async function showHelp(error) {
  const root = byId("help");
  root.innerHTML = await markup("help");
  const cause = !isSecureContext ? "insecure" : navigator.gpu ? "no adapter" : "no WebGPU";
  const told = error instanceof NoAdapterError ? ["WebGPU", cause, systemName()] : ["error"];
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-when]")))
    part.hidden = !told.includes(String(part.dataset.when));
  byId("help-system").textContent = systemName();
  byId("help-words").textContent = inWords(error);
  byId("help-again").onclick = () => location.reload();
  root.hidden = false;
}
