// Usage: node node_prepared.mjs PAGE WEBGPU_PACKAGE [MOST [KIND]]. Prints the outcomes as JSON; MOST limits a problem's
// operations, KIND (gpu or cpu) says for what it was prepared, if not for what this adapter is.
import { checkPrepared } from "./prepared.js";

const [page, dawn, most, kind] = process.argv.slice(2);
const { create, globals } = await import(dawn);
Object.assign(globalThis, globals);
const webmm = await import(`${page}/webmm.js`);
const device = await webmm.Device.open({ gpu: create([]) });
const outcomes = await checkPrepared(await import(`${page}/prepared.js`), device, Number(most ?? Infinity), kind);
// Dawn keeps node alive; leaving at once would cut the text off.
process.stdout.write(JSON.stringify({ adapter: device.info.name, kind: device.info.kind, outcomes }), () => process.exit(0));
