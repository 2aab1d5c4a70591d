// Usage: node node_dispatch.mjs CASES WEBGPU_PACKAGE. Prints what dispatch() returns as JSON.
import { readFileSync } from "node:fs";
import { dawn, finish } from "./dawn.mjs";
import { dispatch } from "./dispatch.js";

const [cases, webgpu] = process.argv.slice(2);
const gpu = await dawn(webgpu);
finish(await dispatch(gpu, JSON.parse(readFileSync(cases, "utf8"))));
