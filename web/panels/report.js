/** The report on this device, as `webmm report` writes it: records with what describes the device in their header. */

import { h } from "../dom.js";
import { toJson } from "../records.js";
import { hyphened } from "../text.js";

/** @import { App } from "../main.js" */
/** @import { RunRecord } from "../webmm.js" */

const CONTENTS =
  "It contains the device, driver, browser, features and limits, the measured rates, and the times of kernels. " +
  "It has no personal data, and is not sent anywhere: attach it to ";

/** @param {App} app @param {RunRecord[]} records of this device @returns {Promise<string>} the report; measures the device's rates if that was not done before */
export async function report(app, records) {
  const { device, bundle } = app;
  const { name, vendor, kind, backend, driver, engine, subgroup, subgroupMax } = device.info;
  const features = [...device.features].sort();
  const about = {
    command: "Save report, on the page",
    date: new Date().toISOString().slice(0, 10),
    report: bundle.index.report,
    system: "browser",
    adapters: [{ engine, index: 0, name, vendor, kind, backend, driver, twin: 0, features }],
    engines: [
      {
        engine,
        adapter: name,
        driver,
        first_product: { gflops: app.speed },
        limits: limitsOf(device.limits),
        features,
        subgroups: { least: subgroup, most: subgroupMax },
        matrix_units: device.matrix.map(({ operands, result, m, n, k }) => `${m}×${n}×${k} ${operands} into ${result}`),
        rates: await app.roofline(),
      },
    ],
  };
  return toJson(records, about);
}

/** @param {GPUSupportedLimits} limits @returns {Record<string, number>} by their names in Python, such as max-buffer-size */
function limitsOf(limits) {
  const names = /** @type {(keyof GPUSupportedLimits)[]} */ (Object.keys(Object.getPrototypeOf(limits)));
  const named = names.map((name) => [hyphened(name), limits[name]]);
  return Object.fromEntries(named.filter(([, value]) => typeof value === "number"));
}

/** @param {App} app @returns {(HTMLElement | string)[]} what a report contains, and where to attach it */
export function contents(app) {
  const { address, version } = app.bundle.index;
  const { name, backend, driver } = app.device.info;
  const filled = { device: name, driver: `${backend} ${driver}`.trim(), version };
  const form = new URLSearchParams({ template: "new-gpu.yml", ...filled, title: `New GPU: ${name}` });
  const link = h("a", { href: `${address}/issues/new?${form}` }, "this form");
  return [CONTENTS, address ? link : "a new issue “New GPU” of the project", "."];
}
