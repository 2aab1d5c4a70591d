// Checks the prepared problems of the page's ladders for every stage that the device supports: the same code in a browser
// (test_prepared.py) and in node (node_prepared.mjs).

/**
 * @param {typeof import("../../web/prepared.js")} module @param {import("../../web/webmm.js").Device} device
 * @param {number} most operations of a problem @param {0 | 1} [half] of the stages of each problem of several: node takes 0, a browser 1
 * @param {"cpu" | "gpu"} [kind] of adapter for which it was prepared
 */
export async function checkPrepared({ PreparedCase }, device, most, half, kind = device.info.kind) {
  const { default: ladders } = await device.bundle.module("ladders.js");
  const outcomes = [];
  for (const ladder of ladders) {
    const some = ladder[kind].filter(({ problem }) => problem.flops <= most);
    for (const [i, known] of some.entries()) {
      const on = await new PreparedCase(device, known, ladder[kind]).load();
      const { m, n, k, dtype } = on.problem;
      for (const [j, stage] of on.rungs.entries()) {
        if (half !== undefined && some.length > 1 && (i + j) % 2 !== half) continue;
        const outcome = { title: ladder.title, label: stage.label, m, n, k, dtype, reason: on.reason(stage) };
        outcomes.push(outcome);
        if (outcome.reason !== null) continue;
        device.submit(await on.open(stage), 1);
        outcome.wrong = (await on.check(await on.result.read())).wrong;
      }
      on.free();
    }
  }
  return outcomes;
}
