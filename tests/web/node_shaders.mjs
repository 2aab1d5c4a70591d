// Usage: node node_shaders.mjs SHADERS_JS CASES. Prints the result of shader() for each [stage, problem], or its error's name.
import { readFileSync } from "node:fs";

const [module, cases] = process.argv.slice(2);
const { shader, stages } = await import(module);
const outcomes = [];
for (const [stage, problem, options] of JSON.parse(readFileSync(cases, "utf8"))) {
  try {
    const { dispatches, ...others } = await shader(stage, problem, options);
    outcomes.push({ ...others, dispatches: dispatches.map((each) => ({ ...each, uniform: [...each.uniform] })) });
  } catch (error) {
    outcomes.push({ error: error.name });
  }
}
const unknown = await shader("tile_2d", { op: "gemm", m: 1, n: 1, k: 1, rows: 1 }).catch((error) => error.name);
console.log(JSON.stringify({ outcomes, unknown, stages: (await stages("reduce")).map(({ name }) => name) }));
