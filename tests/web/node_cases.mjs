// Usage: node node_cases.mjs PAGE WEBGPU_PACKAGE. Prints the outcomes as JSON.
import { checkCases } from "./cases.js";

const [page, dawn] = process.argv.slice(2);
const { create, globals } = await import(dawn);
Object.assign(globalThis, globals);
const webmm = await import(`${page}/webmm.js`);
const device = await webmm.Device.open({ gpu: create([]) });
const outcomes = await checkCases(webmm, device);
const a = webmm.Matrix.random(40, 24);
const [x, y] = [await device.array(a), await device.array(webmm.Matrix.random(24, 8, 2))];
const resident = await (await device.matmul(x, y)).read();
// Dawn keeps node alive; leaving at once would cut the text off.
process.stdout.write(JSON.stringify({ adapter: device.info.name, engine: device.info.engine, outcomes, resident: resident.shape }), () => process.exit(0));
