// Usage: node node_cuts.mjs PIECES_JS CASES. Prints the lengths of each case's pieces, or null if it is refused; see test_calls.py.
import { readFileSync } from "node:fs";

const { Labelled, stepsOf } = await import(process.argv[2]);
const cuts = JSON.parse(readFileSync(process.argv[3], "utf8")).map(
  ([everything, lengths, room, memory, dispatches]) => {
    const labelled = everything.map(([axes, onHost, shape]) =>
      Object.assign(new Labelled({ shape, dtype: "float32" }, axes), { onHost }),
    );
    const whole = new Map(Object.entries(lengths));
    try {
      return Object.fromEntries(stepsOf(labelled, whole, whole, room, memory, dispatches));
    } catch (error) {
      if (error.name !== "UnsupportedError") throw error;
      return null;
    }
  },
);
console.log(JSON.stringify(cuts));
