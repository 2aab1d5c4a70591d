/** A comparison of two runs, such as this browser and Python on the same machine. */

import { compared, hint, likely } from "../bundle/panels.js";
import { all, byId, options, scrolled } from "../dom.js";

/** @param {import("../main.js").App} app */
export function comparison(app) {
  const [left, right] = all("select", "compare-left", "compare-right");
  left.oninput = right.oninput = show;
  app.addEventListener("runs", update);
  update();

  function update() {
    const chosen = left.value;
    const names = app.runs.map((run) => run.name);
    for (const list of [left, right]) list.replaceChildren(...options(names)); // the newest run is chosen
    left.value = names.includes(chosen) ? chosen : likely(app.runs);
    show();
  }

  function show() {
    byId("compare-hint").textContent = hint(app.runs);
    const [a, b] = [app.runs[left.selectedIndex], app.runs[right.selectedIndex]];
    const tables = a && b ? [scrolled("Two runs side by side", compared(a, b))] : [];
    byId("compare-table").replaceChildren(...tables);
  }
}
