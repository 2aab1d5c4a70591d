// @ts-check
/** The Explain panel: for each stage its change, a picture of its tile, its memory traffic, its shader, and sliders to try other tunables. */

import { Bench } from "../bench.js";
import { PRIMARY, button, div, drawn, field, figures, h, numbered, options, select, span, time } from "../dom.js";
import { shape, speedOf, unitOf } from "../ops.js";
import { taskOf } from "../prepared.js";
import { dataclasses } from "../python.js";
import { inWords } from "../webmm.js";
import { ablation } from "./ablate.js";
import { chapterView } from "./chapter.js";
import { codeView } from "./code.js";
import { explained, products } from "./ops.js";
import { stepsView } from "./steps.js";
import { trafficView } from "./traffic.js";

/** @import { App } from "../main.js" */
/** @import { Kernel, Tunable, RunRecord } from "../webmm.js" */

const RUN = "stages run in Explain, this browser";

/** @param {App} app @param {HTMLElement} root */
export async function setup(app, root) {
  const { bundle, device } = app;
  const { legend, owner_of: ownerOf, pictured } = await bundle.module("drawings.js");
  const { change, gained, nearest, offered } = await bundle.module("panels.js");
  const ops = explained(app);
  /** @type {import("./ops.js").Explained} */
  let source = products(app);
  let kernel = source.kernel(source.first, source.usual, "float32");
  let standard = kernel; // the configuration that the stage was opened with
  const stages = h("div", { class: "stages", role: "radiogroup", "aria-label": "Stage" });
  const about = div("about-stage");
  const changed = h("p", {});
  const picture = h("figure", { class: "tile-picture" });
  const sliders = div("sliders");
  const reason = h("p", { class: "reason", id: "explain-reason" });
  const outcome = h("p", { class: "outcome", id: "explain-outcome", role: "status" });
  const op = select({ id: "explain-op", onchange: chooseOp }, numbered(ops.map(({ title }) => title)));
  const sizes = select({ id: "explain-size", onchange: moved });
  const dtypes = select({ id: "explain-dtype", onchange: moved });
  const run = button("explain-run", "Run this configuration", measure, PRIMARY);
  const traffic = trafficView(app);
  const code = codeView(app);
  const steps = stepsView(app);
  let told = ""; // the chapter that was asked for last
  const ablate = ablation(app, () => {
    const task = chosenProblem();
    return (each) => measured(each, task);
  });
  const chapter = chapterView(app, {
    runs: (name, ...names) =>
      source.measure !== null && source.op === name && names.every((each) => source.stages.includes(each)),
    measure: measureBoth,
    gained,
  });

  root.append(
    div(
      "lead choice",
      div("", h("h2", {}, "Why each stage is faster"), h("a", { href: "#explain/contents" }, "All chapters")),
      div("controls", field("Operation", op), field("Size", sizes), field("Element type", dtypes)),
      stages,
    ),
    div(
      "explain",
      div("story", about, div("row", chapter.gain, steps.jump)),
      div(
        "workbench",
        code.element,
        div("card", picture, sliders, reason, div("row", run, ablate.run, outcome), ablate.table),
      ),
      div("story", chapter.element, steps.element, traffic.element),
    ),
  );
  app.addEventListener("place", () => void go());
  offer();
  void go();

  async function chooseOp() {
    op.disabled = true;
    try {
      source = await ops[Number(op.value)].load();
    } catch (error) {
      outcome.textContent = inWords(error);
      op.value = "0";
      source = products(app);
    } finally {
      op.disabled = false;
    }
    offer();
    await tell(`${source.op}/${kernel.name}`);
  }

  /** Open a stage that was chosen, and give it an address. @param {string} name */
  function visit(name) {
    open(name);
    app.place = `${source.op}/${name}`;
    history.pushState(null, "", `#explain/${app.place}`);
    void tell(app.place);
  }

  /** Show a chapter; a stage without one has the words of its shader's header. @param {string} name */
  async function tell(name) {
    told = name;
    changed.hidden = true;
    const shown = await chapter.show(name);
    if (told === name) changed.hidden = shown;
  }

  /** Show the chapter and the stage that the address names; without an address, those of the stage that is shown. */
  async function go() {
    const place = app.place;
    const [name, stage] = place.split("/");
    const has = (/** @type {import("./ops.js").Explained} */ each) => each.op === name && each.stages.includes(stage);
    for (let i = 0; i < ops.length && Object.hasOwn(bundle.index.ops, name) && !has(source); i++) {
      const other = await ops[i].load().catch(() => null); // offline, and not cached
      if (place !== app.place) return;
      if (!other || !has(other)) continue;
      [source, op.value] = [other, String(i)];
      offer();
    }
    if (has(source)) open(stage);
    await tell(app.place || `${source.op}/${kernel.name}`);
    if (app.place) chapter.reveal();
  }

  /** Show the op's sizes, element types and stages, and open its first stage. */
  function offer() {
    sizes.replaceChildren(...options(source.sizes));
    sizes.value = source.usual;
    dtypes.replaceChildren(...options(source.dtypes));
    const radio = (/** @type {string} */ name) => {
      const props = { value: name, checked: name === source.first, onchange: () => visit(name) };
      return h("input", { type: "radio", name: "stage", ...props });
    };
    stages.replaceChildren(...source.stages.map((name) => h("label", {}, radio(name), h("span", {}, name))));
    open(source.first);
  }

  /** @param {string} name */
  function open(name) {
    kernel = source.kernel(name, sizes.value, dtypes.value);
    const { summary, tunables } = kernel.stage;
    changed.textContent = "";
    about.replaceChildren(h("h3", {}, name), h("p", { class: "summary" }, summary), changed);
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (stages.querySelectorAll("input"))) {
      input.checked = input.value === name;
      if (input.checked) stages.scrollLeft = Number(input.parentElement?.offsetLeft) - 60; // on phones it is one line
    }
    void steps.show(source.op, name);
    sliders.replaceChildren(...tunables.map(control));
    if (!tunables.length) sliders.append(h("p", { class: "hint" }, "This stage has no tunables."));
    standard = kernel;
    choose(kernel);
  }

  /** @param {Kernel} chosen */
  function choose(chosen) {
    kernel = chosen;
    moveSliders();
    moved();
  }

  /** Show the panel for another size, element type or configuration. */
  function moved() {
    outcome.textContent = "";
    refresh();
  }

  function problem() {
    return source.problem(sizes.value, dtypes.value);
  }

  /** A slider over the candidates of a tunable, or a list if they are not numbers. @param {Tunable} tunable */
  function control(tunable) {
    const values = offered(kernel.of, tunable.name);
    const id = `tunable-${tunable.name}`;
    const output = h("output", { htmlFor: id });
    const set = () => {
      const starts = source.offered?.(kernel.name)?.map(({ of }) => of) ?? null;
      choose(bundle.wrap(nearest(kernel.of, tunable.name, values[Number(input.value)], starts)));
    };
    const range = { type: "range", id, min: 0, max: values.length - 1, step: 1, disabled: values.length < 2 };
    const input =
      typeof tunable.default === "number"
        ? h("input", { ...range, oninput: set })
        : select({ id, onchange: set }, numbered(values));
    input.dataset.tunable = tunable.name;
    return h(
      "label",
      { class: "slider" },
      span("label", tunable.name.toUpperCase(), typeof tunable.default === "number" && output),
      input,
      span("hint", tunable.doc),
    );
  }

  function moveSliders() {
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (sliders.querySelectorAll("[data-tunable]"))) {
      const name = String(input.dataset.tunable);
      const value = kernel.config[name];
      input.value = String(offered(kernel.of, name).indexOf(value));
      if (input.type === "range") input.setAttribute("aria-valuetext", String(value));
      const output = input.parentElement?.querySelector("output");
      if (output) output.textContent = String(value);
    }
  }

  function refresh() {
    const { of } = kernel;
    picture.hidden = of.grid === undefined;
    if (!picture.hidden)
      picture.replaceChildren(
        h("figcaption", {}, `Tile of one workgroup, and elements of one ${ownerOf(of)}`),
        drawn(pictured(of, true)),
        h("ul", { class: "legend-list" }, ...legend(of, problem().dtype.itemsize, intensity()).map(keyed)),
      );
    traffic.show(kernel, problem(), speed());
    const why = refused();
    reason.textContent = why ? `Cannot run here: ${why}.` : "";
    run.disabled = Boolean(why);
    ablate.show(standard, kernel, !why);
    sliders.classList.toggle("ineligible", Boolean(why));
    void showCode();
  }

  /** @returns {number | null} the measured speed of this configuration on this problem */
  function speed() {
    const task = taskOf(problem());
    const same = (/** @type {RunRecord} */ r) =>
      (r.op ?? "gemm") === kernel.of.op &&
      r.kernel === kernel.name &&
      r.dtype === task.dtype &&
      shape(r) === shape(task) &&
      JSON.stringify(r.config) === JSON.stringify(kernel.config);
    return app.measured.find(same)?.gflops ?? null;
  }

  /** FLOP per byte of storage buffers. */
  function intensity() {
    const { flops, storage } = bundle.core.moved(kernel.of, problem());
    return flops / storage;
  }

  /** @returns {string | null} why the stage cannot run, or null if it can */
  function refused() {
    return device.reason(kernel, problem()) ?? (source.measure ? null : "this page shows its code only");
  }

  async function showCode() {
    const suited = suitedTo(kernel, problem());
    const { name } = suited.dtype;
    const text = await code.show(kernel, suited, name === dtypes.value ? "" : ` for ${name}`);
    if (text) changed.textContent = change(text);
  }

  /** The problem with an element type that the stage supports. @param {Kernel} of @param {any} asked */
  function suitedTo({ of }, asked) {
    const types = of.unsuited(asked) === null ? [] : bundle.core.FLOATS;
    const others = types.map((/** @type {any} */ dtype) => dataclasses.replace(asked, { dtype, out_dtype: dtype }));
    return others.find((/** @type {any} */ other) => of.unsuited(other) === null) ?? asked;
  }

  async function measure() {
    const chosen = kernel;
    outcome.textContent = `Running ${chosen.label} at ${shape(taskOf(problem()))} …`;
    await app.attempt(run, outcome, async () => {
      const record = await measured(chosen);
      outcome.textContent =
        record.status === "ok"
          ? `${chosen.label} at ${shape(record)}: ${figures(speedOf(record))} ${unitOf(record)}, ${time(record.median_us)}, checked.`
          : `${record.status}: ${record.reason}`;
      app.announce(outcome.textContent);
    });
    run.disabled = refused() !== null;
  }

  /** @typedef {[source: import("./ops.js").Explained, size: string, dtype: string]} Chosen */

  /** @returns {Chosen} */
  function chosenProblem() {
    return [source, sizes.value, dtypes.value];
  }

  /** Measure a kernel, and keep the record for the chapters. @param {Kernel} chosen @param {Chosen} [task] @returns {Promise<RunRecord>} */
  async function measured(chosen, [on, by, at] = chosenProblem()) {
    const bench = new Bench(device, { limit: 2 });
    const record = await /** @type {NonNullable<typeof on.measure>} */ (on.measure)(bench, chosen, by, at);
    if (record.status === "ok") {
      const earlier = app.runs.find(({ name }) => name === RUN)?.records ?? [];
      app.addRun(RUN, [record, ...earlier]);
      app.showBest(record, chosen.label);
      if (chosen === kernel && by === sizes.value && at === dtypes.value)
        traffic.show(chosen, on.problem(by, at), record.gflops);
    }
    return record;
  }

  /** Measure a stage and the one that it follows. @param {string} name @param {string} follows @returns {Promise<string>} why there is no measurement, or "" */
  async function measureBoth(name, follows) {
    let words = "";
    const task = chosenProblem();
    await app.exclusively(async () => {
      for (const stage of [follows, name]) {
        const record = await measured(task[0].kernel(stage, task[1], task[2]), task);
        if (record.status !== "ok") words = `${stage}: ${record.reason}`;
      }
    });
    return words;
  }
}

/** @param {[string, string]} entry of a legend */
const keyed = ([kind, words]) => h("li", { class: `key-${kind}` }, words);
