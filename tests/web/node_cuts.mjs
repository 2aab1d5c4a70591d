// Usage: node node_cuts.mjs CORE_JS CASES. Prints how many pieces each case is cut into, the first and the last, or null if it is refused; see test_calls.py.
import { readFileSync } from "node:fs";

const core = await import(process.argv[2]);
const cuts = JSON.parse(readFileSync(process.argv[3], "utf8")).map(([arrays, along, limits, flops]) => {
  try {
    const extents = arrays.map((each) => new core.Extents(...each));
    const pieces = [...core.array_pieces(extents, along, "", new core.Limits(...limits), flops)];
    return [pieces.length, ...[pieces[0], pieces[pieces.length - 1]].map(({ at }) => Object.fromEntries(at))];
  } catch (error) {
    if (error.name !== "UnsupportedError") throw error;
    return null;
  }
});
console.log(JSON.stringify(cuts));
