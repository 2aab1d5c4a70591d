// Usage: node node_cases.mjs PAGE WEBGPU_PACKAGE. Prints the outcomes as JSON.
import { checkCases } from "./cases.js";
import { dawn, finish } from "./dawn.mjs";

const [page, webgpu] = process.argv.slice(2);
const gpu = await dawn(webgpu);
const webmm = await import(`${page}/webmm.js`);
const device = await webmm.Device.open({ gpu });
const outcomes = await checkCases(webmm, device, 0);
const a = webmm.Matrix.random(40, 24);
const [x, y] = [await device.array(a), await device.array(webmm.Matrix.random(24, 8, 2))];
const resident = await (await device.matmul(x, y)).read();
finish({ adapter: device.info.name, engine: device.info.engine, outcomes, resident: resident.shape });
