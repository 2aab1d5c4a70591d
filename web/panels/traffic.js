// @ts-check
/** The memory traffic of a stage, and its place under this device's roofline. */

import { roof } from "../charts.js";
import { figures, h, s, size } from "../dom.js";
import { inWords } from "../webmm.js";

/** @typedef {import("../main.js").App} App */
/** @typedef {import("../webmm.js").Kernel} Kernel */
/** @typedef {import("../bundle.js").Python} Python */
/** Operations, and bytes that a kernel reads and writes in storage buffers and in workgroup memory (null if not known); `least` is the minimum for the problem, each operand and result once. @typedef {{flops: number, storage: number, workgroup: number | null, least: number}} Traffic */

const SPAN = 256; // around the ridge, in FLOP per byte

/**
 * @param {Kernel} kernel @param {Python} problem
 * @returns {Traffic} as counted for the cost model; for stages without such a count, from their tiles, or each buffer once
 */
export function trafficOf({ of }, problem) {
  const buffers = problem.buffers();
  const total = (/** @type {(extent: any) => number} */ bytes) =>
    buffers.reduce((/** @type {number} */ sum, /** @type {any} */ extent) => sum + bytes(extent), 0);
  const counted = of.traffic?.(problem) ?? null;
  const made = { flops: problem.flops, least: problem.bytes, workgroup: of.workgroup_bytes ? null : 0 };
  if (counted) {
    const { workgroups, invocations, steps, loaded, written, workgroup_loads, workgroup_stores } = counted;
    const workgroup = 16 * workgroups * invocations * steps * (workgroup_loads + workgroup_stores); // in vec4
    return { ...made, storage: workgroups * steps * loaded + written, workgroup };
  }
  const { tile_m, tile_n } = of.grid ?? {};
  if (!tile_m || !problem.k) return { ...made, storage: total(({ nbytes }) => nbytes) };
  const [down, across] = [Math.ceil(problem.m / tile_m), Math.ceil(problem.n / tile_n)];
  return {
    ...made,
    storage: total(({ name, nbytes, written }) => nbytes * (written ? 1 : name === "a" ? across : down)),
  };
}

/** @param {App} app */
export function trafficView(app) {
  const list = h("dl", { class: "traffic" });
  const chart = h("div", {});
  const message = h("p", { class: "hint" });
  const measure = h(
    "button",
    { type: "button", id: "explain-roofline", onclick: measureCeilings },
    "Measure this device’s roofline",
  );
  const element = h(
    "figure",
    { class: "card", id: "explain-traffic" },
    h("figcaption", {}, "Memory traffic"),
    list,
    chart,
    h("div", { class: "row" }, measure),
    message,
  );
  /** @type {{traffic: Traffic, name: string, gflops: number | null} | null} */
  let shown = null;
  /** @type {ReturnType<typeof roof> | null} */
  let drawn = null;
  const dot = /** @type {SVGCircleElement} */ (s("circle", { class: "dot best", r: 6.5 }));
  app.addEventListener("roofline", draw);
  return { element, show };

  /** @param {Kernel} kernel @param {Python} problem @param {number | null} [gflops] the measured speed, once it has run */
  function show(kernel, problem, gflops = null) {
    const traffic = trafficOf(kernel, problem);
    shown = { traffic, name: kernel.name, gflops };
    const { flops, storage, workgroup, least } = traffic;
    const rows = [
      ["Operations", `${figures(flops / 1e6)} MFLOP`],
      [
        "Storage buffers",
        `${size(storage)}${storage > 1.005 * least ? `, ${figures(storage / least)} × the minimum` : ", the minimum"}`,
      ],
      [
        "Workgroup memory",
        workgroup === null ? `${size(kernel.of.workgroup_bytes)} per workgroup` : workgroup ? size(workgroup) : "none",
      ],
      ["FLOP per byte of storage", figures(flops / storage)],
    ];
    list.replaceChildren(...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    draw();
  }

  function draw() {
    const { ceilings } = app;
    measure.hidden = ceilings !== null;
    if (!ceilings || !shown) return;
    if (!drawn) {
      const ridge = ceilings.gflops / ceilings.gbytes;
      drawn = roof(
        ceilings,
        [ridge / SPAN, ridge * SPAN],
        [ceilings.gflops / SPAN, ceilings.gflops * 2],
        "FLOP per byte of storage",
      );
      drawn.svg.append(dot);
      chart.replaceChildren(drawn.svg);
    }
    const { x, y, svg } = drawn;
    const { traffic, name, gflops } = shown;
    const intensity = traffic.flops / traffic.storage;
    const reach = Math.min(ceilings.gflops, intensity * ceilings.gbytes);
    const within = (/** @type {number} */ value, /** @type {{low: number, high: number}} */ axis) =>
      Math.min(Math.max(value, axis.low), axis.high);
    dot.style.transform = `translate(${x(within(intensity, x))}px, ${y(within(gflops ?? reach, y))}px)`;
    dot.setAttribute("class", gflops === null ? "dot roof-dot" : "dot best");
    const words =
      gflops === null
        ? `the roofline allows ${name} ${figures(reach)} GFLOP/s if all traffic reaches memory`
        : `${name} reached ${figures(gflops)} GFLOP/s; the roofline allows ${figures(reach)} if all traffic reaches memory`;
    message.textContent = `At ${figures(intensity)} FLOP per byte, ${words}${gflops !== null && gflops > reach ? "; caches serve repeated reads" : ""}.`;
    svg.setAttribute("aria-label", message.textContent);
  }

  async function measureCeilings() {
    measure.disabled = true;
    message.textContent = "Measuring this device’s peak compute and memory rates …";
    try {
      await app.exclusively(async () => void (await app.roofline()));
      if (!app.ceilings) message.textContent = "The peak rates of this device could not be measured.";
    } catch (error) {
      message.textContent = inWords(error);
    } finally {
      measure.disabled = false;
    }
  }
}
