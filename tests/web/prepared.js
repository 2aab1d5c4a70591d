// Checks the prepared problems of the page's ladders for every stage that the device supports: the same code in a browser
// (test_prepared.py) and in node (node_prepared.mjs).

/**
 * @param {typeof import("../../web/prepared.js")} module @param {import("../../web/webmm.js").Device} device
 * @param {number} most operations of a problem @param {"cpu" | "gpu"} [kind] of adapter for which it was prepared
 */
export async function checkPrepared({ PreparedCase }, device, most, kind = device.info.kind) {
  const { default: ladders } = await device.bundle.module("ladders.js");
  const outcomes = [];
  for (const ladder of ladders) {
    for (const known of ladder[kind].filter(({ problem }) => problem.flops <= most)) {
      const on = await new PreparedCase(device, known, ladder[kind]).load();
      const { m, n, k, dtype } = on.problem;
      for (const stage of on.rungs) {
        const outcome = { title: ladder.title, label: stage.label, m, n, k, dtype, reason: on.reason(stage) };
        outcomes.push(outcome);
        if (outcome.reason !== null) continue;
        const { launch, verdict, free } = await on.open(stage);
        device.submit(launch, 1);
        outcome.wrong = (await verdict()).wrong;
        free();
      }
      on.free();
    }
  }
  return outcomes;
}
