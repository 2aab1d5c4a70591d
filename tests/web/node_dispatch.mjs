// Usage: node node_dispatch.mjs CASES WEBGPU_PACKAGE. Prints what dispatch() returns as JSON.
import { readFileSync } from "node:fs";
import { dispatch } from "./dispatch.js";

const [cases, dawn] = process.argv.slice(2);
const { create, globals } = await import(dawn);
Object.assign(globalThis, globals);
const gpu = create([]); // kept: the garbage collector must not take what adapter and device need
// Dawn keeps node alive; leaving at once would cut the text off.
process.stdout.write(JSON.stringify(await dispatch(gpu, JSON.parse(readFileSync(cases, "utf8")))), () => process.exit(0));
