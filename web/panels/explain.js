/** The Explain panel: for each stage its change, a picture of its tile, its memory traffic, its shader, and sliders to try other tunables. */

import { Bench, taskOf } from "../bench.js";
import { size_of } from "../bundle/core.js";
import { intensity, legend, owner_of, pictured } from "../bundle/drawings.js";
import { choices, nearest, outcome, speed_on } from "../bundle/panels.js";
import { all, bind, byId, h, numbered, options, span } from "../dom.js";
import { chapterView } from "./chapter.js";
import { codeView } from "./code.js";
import { choosing, products } from "./subjects.js";
import { ablation, stepsView, trafficView } from "./views.js";

/** @import { Kernel, Python, RunRecord, Tunable } from "../webmm.js" */
/** @import { Subject } from "./subjects.js" */

const RUN = "stages run in Explain, this browser";

/** @param {import("../main.js").App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { bundle, device } = app;
  let subject = products(app);
  /** @type {Kernel} */
  let kernel;
  /** @type {Kernel} the configuration that the stage was opened with */
  let standard;
  const [op, sizes, dtypes] = all("select", "explain-op", "explain-size", "explain-dtype");
  const [run] = all("button", "explain-run");
  const [reason, message] = all("p", "explain-reason", "explain-outcome");
  const [stages, sliders] = all("div", "explain-stages", "explain-sliders");
  /** @type {(() => void)[]} what moves the sliders to the settings of `kernel` */
  let movers = [];

  const traffic = trafficView(app);
  const code = codeView(app);
  const steps = stepsView();
  const ablate = ablation(app, measured);
  const chapter = chapterView(app, {
    runs: (name, ...names) =>
      subject.checked && subject.op === name && names.every((each) => subject.stages.includes(each)),
    measure: measureBoth,
  });

  bind(root, { measure, moved });
  const load = choosing(app, "explain", message, (chosen) => {
    offer(chosen);
    void chapter.show(`${subject.op}/${kernel.name}`);
  });
  app.addEventListener("place", () => void go());
  offer(subject);
  void go();

  /** Open a stage that was chosen, and give it an address. @param {string} name */
  function visit(name) {
    open(name);
    app.place = `${subject.op}/${name}`;
    history.pushState(null, "", `#explain/${app.place}`);
    void chapter.show(app.place);
  }

  /** Show the chapter and the stage that the address names; without an address, those of the stage that is shown. */
  async function go() {
    const place = app.place;
    const [name, stage] = place.split("/");
    const has = (/** @type {Subject} */ each) => each.op === name && each.stages.includes(stage);
    for (let i = 0; i < op.length && bundle.index.ops.includes(name) && !has(subject); i++) {
      const other = await load(i).catch(() => null); // offline, and not cached
      if (place !== app.place) return;
      if (!other || !has(other)) continue;
      op.selectedIndex = i;
      offer(other);
    }
    if (has(subject)) open(stage);
    await chapter.show(app.place || `${subject.op}/${kernel.name}`);
    if (app.place) chapter.reveal();
  }

  /** Show an op's sizes, element types and stages, and open its first stage. @param {Subject} chosen */
  function offer(chosen) {
    subject = chosen;
    sizes.replaceChildren(...options(subject.sizes));
    [, sizes.selectedIndex] = subject.usual(app.speed);
    dtypes.replaceChildren(...options(subject.dtypes));
    const radio = (/** @type {string} */ name) =>
      h("input", { type: "radio", name: "stage", value: name, onchange: () => visit(name) });
    stages.replaceChildren(...subject.stages.map((name) => h("label", {}, radio(name), h("span", {}, name))));
    open(subject.first);
  }

  /** @param {string} name */
  function open(name) {
    kernel = standard = made(name);
    const { summary, tunables } = kernel.stage;
    byId("explain-change").textContent = "";
    byId("explain-stage").textContent = name;
    byId("explain-summary").textContent = summary;
    const radio = /** @type {HTMLInputElement} */ (stages.querySelector(`[value="${name}"]`));
    radio.checked = true;
    stages.scrollLeft = Number(radio.parentElement?.offsetLeft) - 60; // on phones it is one line
    steps.show(subject.op, name);
    movers = [];
    sliders.replaceChildren(...tunables.map(control));
    if (!tunables.length) sliders.append(h("p", { class: "hint" }, "This stage has no tunables."));
    choose(kernel);
  }

  /** @param {Kernel} chosen */
  function choose(chosen) {
    kernel = chosen;
    for (const move of movers) move();
    moved();
  }

  /** Show the panel for another size, element type or configuration. */
  function moved() {
    message.textContent = "";
    const { of } = kernel;
    byId("explain-picture").hidden = of.grid === undefined;
    if (of.grid) paint(of);
    traffic.show(kernel, problem(), speed());
    const why = refused();
    reason.textContent = why ? `Cannot run here: ${why}.` : "";
    run.disabled = Boolean(why);
    ablate.show(standard, kernel, !why);
    void code.show(kernel, problem());
  }

  function problem() {
    return subject.problem(sizes.value, dtypes.value);
  }

  /** @param {string} name of a stage @returns {Kernel} with the settings for the problem that is chosen now */
  function made(name) {
    return bundle.wrap(subject.kernel(name, problem()));
  }

  /** A slider over the candidates of a tunable, or a list if they are not numbers. @param {Tunable} tunable */
  function control({ name, doc, default: value }) {
    const values = choices(kernel.of, name);
    const id = `tunable-${name}`;
    const oninput = () => {
      const starts = subject.offered?.(kernel.name)?.map(({ of }) => of) ?? null;
      choose(bundle.wrap(nearest(kernel.of, name, values[Number(input.value)], starts)));
    };
    const range = { type: "range", min: 0, max: values.length - 1, disabled: values.length < 2 };
    const isNumber = typeof value === "number";
    const props = { id, oninput };
    const output = h("output", { htmlFor: id });
    const input = isNumber ? h("input", { ...range, ...props }) : h("select", props, ...options(numbered(values)));
    movers.push(() => {
      input.value = String(choices(kernel.of, name).indexOf(kernel.config[name]));
      output.textContent = String(kernel.config[name]);
      if (isNumber) input.ariaValueText = output.textContent;
    });
    const label = span("label", name.toUpperCase(), isNumber && output);
    return h("label", { class: "slider" }, label, input, span("hint", doc));
  }

  /** Show a picture of a kernel's tile. @param {Python} of */
  function paint(of) {
    const colours = legend(of, problem().dtype.itemsize, intensity(of, problem()));
    const keys = colours.map(([kind, words]) => h("li", { class: `key-${kind}` }, words));
    byId("explain-owner").textContent = owner_of(of);
    byId("explain-drawing").innerHTML = pictured(of, true).plain();
    byId("explain-legend").replaceChildren(...keys);
  }

  /** @returns {number | null} the measured speed of this configuration on this problem */
  function speed() {
    return speed_on(app.measured, kernel.of, problem());
  }

  /** @returns {string | null} why the stage cannot run, or null if it can */
  function refused() {
    return device.reason(kernel, problem()) ?? (subject.checked ? null : "this page shows its code only");
  }

  async function measure() {
    const chosen = kernel;
    const words = `Running ${chosen.label} at ${size_of(taskOf(problem()))} …`;
    const work = async () => {
      const [record] = await measured([chosen]);
      app.tell(message, outcome(record, chosen.label));
    };
    await app.attempt(run, message, work, { words });
    run.disabled = refused() !== null;
  }

  /** Measure kernels on the problem that is chosen now; their records are kept for the chapters. @param {Kernel[]} kernels @param {(kernel: Kernel) => unknown} [announce] called before each @returns {Promise<RunRecord[]>} */
  async function measured(kernels, announce) {
    const [on, of] = [subject, problem()];
    const bench = new Bench(device, { limit: 2 });
    const records = [];
    for (const each of kernels) {
      announce?.(each);
      const record = await bench.measure(each, on.load(of));
      records.push(record);
      if (record.status !== "ok") continue;
      app.addRun(RUN, [record, ...(app.runs.find(({ name }) => name === RUN)?.records ?? [])]);
      app.showBest(record, each.label);
      traffic.show(kernel, problem(), speed());
    }
    return records;
  }

  /** Measure a stage and the one that it follows. @param {string} name @param {string} follows @returns {Promise<string>} why there is no measurement, or "" */
  async function measureBoth(name, follows) {
    const records = await app.exclusively(() => measured([follows, name].map(made)));
    const failed = records.findLast(({ status }) => status !== "ok");
    return failed ? `${failed.kernel}: ${failed.reason}` : "";
  }
}
