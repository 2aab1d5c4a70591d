/** The tuner: searches for the fastest configuration within a time limit; results can be saved, shared and compared. */

import { Bench, Operands } from "../bench.js";
import { fastest, size_of } from "../bundle/core.js";
import { best_of, best_so_far, outcomes, outstanding, searched } from "../bundle/panels.js";
import { tableOf } from "../charts.js";
import { all, bind, byId, copied, download, say } from "../dom.js";
import { fromJson, toFragment, toJson } from "../records.js";
import { inWords } from "../webmm.js";
import { comparison } from "./compare.js";

/** @import { Problem, RunRecord } from "../webmm.js" */

/** @param {import("../main.js").App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { bundle, device } = app;
  const [budget, file, ...sizes] = all("input", "tune-budget", "tune-import", "tune-m", "tune-n", "tune-k");
  const [dtypes] = all("select", "tune-dtype");
  const [run, stop, save, link] = all("button", "tune-run", "tune-stop", "tune-save", "tune-link");
  const [progress] = all("progress", "tune-progress");
  const [message] = all("p", "tune-message");
  const result = byId("tune-result");
  /** @type {RunRecord[]} */
  let records = [];

  for (const input of sizes) input.value = device.info.kind === "cpu" ? "128" : "1024";
  bind(root, { search, share, load, save: () => download("webmm-records.json", toJson(records), "application/json") });
  comparison(app);

  async function search() {
    const inputs = [...sizes, budget];
    const valid = inputs.every((input) => input.reportValidity()); // by default, steps are whole
    if (!valid) return say(message, "Sizes and the time limit must be whole numbers of at least 1.", true);
    const [m, n, k] = sizes.map(({ value }) => Number(value));
    const problem = { m, n, k, dtype: /** @type {any} */ (dtypes.value) };
    records = [];
    const work = (/** @type {AbortSignal} */ signal) => collect(new Bench(device, { limit: 2, signal }), problem);
    await app.attempt([run, dtypes, ...inputs, save, link], message, work, { stop, progress, result });
    save.disabled = link.disabled = records.length === 0;
  }

  /** @param {Bench} bench @param {Problem} problem */
  async function collect(bench, problem) {
    bench.roofline = await app.roofline();
    const operands = await Operands.random(device, problem);
    await tune(bench, problem, operands).finally(() => operands.free());
    const best = fastest(records);
    if (!best) return say(message, "No kernel could run at this size on this device.", true);
    app.keepTuned([best]);
    app.addRun(`tune ${size_of(problem)} ${problem.dtype}, this browser`, records);
    app.tell(message, best_of(records));
  }

  /** Search for the fastest kernel within the time limit. @param {Bench} bench @param {Problem} problem @param {Operands} operands */
  async function tune(bench, problem, operands) {
    const started = performance.now();
    for (const [of, longest, turn] of searched(bundle.problem(problem), device.choices.now(), records)) {
      progress.value = (performance.now() - started) / 1e3 / Number(budget.value);
      if (progress.value >= 1 || bench.signal?.aborted) return;
      const kernel = bundle.wrap(of);
      say(message, `${turn}: ${kernel.label} …${best_so_far(records)}`);
      records.push(await bench.run(kernel, operands, longest));
      result.replaceChildren(tableOf(outstanding(records), outcomes(records)));
    }
  }

  async function share() {
    const url = new URL(location.href);
    url.hash = `run=${await toFragment(records)}`;
    const there = await copied(url.href);
    if (!there) history.replaceState(null, "", url);
    const place = there ? "on the clipboard" : "in the address bar";
    say(message, `The link is ${place}. It contains the results themselves; nothing was uploaded.`);
  }

  async function load() {
    const chosen = file.files?.[0];
    if (!chosen) return;
    try {
      const imported = fromJson(await chosen.text(), bundle);
      if (imported.length === 0) return say(message, `${chosen.name} contains no records.`, true);
      app.addRun(chosen.name, imported);
      const count = `${imported.length} ${imported.length === 1 ? "result" : "results"}`;
      say(message, `${chosen.name}: ${count} of ${imported[0].adapter}.`);
    } catch (error) {
      say(message, `${chosen.name}: ${inWords(error)}`, true);
    }
    file.value = "";
  }
}
