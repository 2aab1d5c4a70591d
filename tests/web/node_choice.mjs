// Usage: node node_choice.mjs PACKAGE CASES VENDOR. Prints the candidates for each product, [m, n, k, bits], on an unknown
// GPU: with weights of `bits` bits, or of 8-bit integers if that is 0.
import { readFileSync } from "node:fs";

const [folder, cases, vendor] = process.argv.slice(2);
await import(`${folder}/entries/shaders.js`); // sets where the bundle is
const { Bundle } = await import(`${folder}/bundle.js`);
const { Choices } = await import(`${folder}/choose.js`);
const { make, str } = await import(`${folder}/python.js`);
const bundle = await Bundle.load();
const core = { ...(await bundle.op("quantized")), ...(await bundle.op("weights")) };
const info = { name: "a GPU", vendor, driver: "", kind: "gpu", engine: "dawn", subgroup: 0 };
const limits = new Proxy({}, { get: () => 2 ** 31 });
const choices = new Choices({ info, limits, features: new Set(), matrix: [], bundle, spelling: null });
const [f32, u8, operand] = [core.dtype_of("float32"), core.dtype_of("uint8"), (row) => make(core.Operand, [row])];
const found = JSON.parse(readFileSync(cases, "utf8")).map(([m, n, k, bits]) => {
  const problem = bits
    ? make(core.WeightOnly, [m, n, k, f32, f32, operand(k), bits, 32])
    : make(core.Quantized, [m, n, k, u8, u8, u8, operand(k), operand(n)]);
  return [...core.candidates(problem, choices.described, "off").keys()].map((kernel) => str(kernel));
});
console.log(JSON.stringify(found));
