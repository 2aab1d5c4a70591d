// Usage: node node_prepared.mjs PAGE WEBGPU_PACKAGE [MOST [HALF [KIND]]]. Prints the outcomes as JSON; MOST limits a problem's
// operations, HALF (0 or 1) its stages, KIND (gpu or cpu) selects problems prepared for another kind of adapter than this one.
import { dawn, finish } from "./dawn.mjs";
import { checkPrepared } from "./prepared.js";

const [page, webgpu, most, half, kind] = process.argv.slice(2);
const gpu = await dawn(webgpu);
const webmm = await import(`${page}/webmm.js`);
const device = await webmm.Device.open({ gpu });
const outcomes = await checkPrepared(
  await import(`${page}/prepared.js`),
  device,
  Number(most ?? Infinity),
  half && Number(half),
  kind,
);
finish({ adapter: device.info.name, kind: device.info.kind, outcomes });
