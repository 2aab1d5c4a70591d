// The prepared problems of other ops, by every stage that the device allows: run in a browser by test_prepared.py, and in
// node by node_prepared.mjs, with the same code.

/**
 * @param {typeof import("../../web/prepared.js")} module @param {import("../../web/webmm.js").Device} device
 * @param {number} most operations of a problem @param {"cpu" | "gpu"} [kind] of adapter for which it was prepared
 */
export async function checkPrepared({ PreparedCase }, device, most, kind = device.info.kind) {
  const all = await device.bundle.json("prepared.json");
  const outcomes = [];
  for (const ladder of all.ladders) {
    const problems = ladder[kind];
    for (const problem of problems.filter(({ flops }) => flops <= most)) {
      const { m, n, k, dtype } = problem;
      const on = await new PreparedCase(device, all, problem, problems).load();
      for (const stage of problem.stages) {
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
