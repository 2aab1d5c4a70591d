// @ts-check
/** The page: opens the device, describes it, and loads the panels. */

import { button, byId, figures, h, say, size, systemName, time } from "./dom.js";
import { Bench, Operands } from "./bench.js";
import { shape } from "./ops.js";
import { fromFragment, fromJson, toJson } from "./records.js";
import { Device, DeviceLostError, Matrix, NoAdapterError, UnsupportedError, inWords } from "./webmm.js";

/** @import { RunRecord, Roofline } from "./webmm.js" */
/** @typedef {HTMLButtonElement | HTMLInputElement | HTMLSelectElement} Control */

/** The panels; each is loaded when it is first shown. @type {Record<string, () => Promise<{setup: (app: App, root: HTMLElement) => void}>>} */
const PANELS = {
  ladder: () => import("./panels/ladder.js"),
  multiply: () => import("./panels/multiply.js"),
  explain: () => import("./panels/explain.js"),
  own: () => import("./panels/own.js"),
  tune: () => import("./panels/tune.js"),
};
const LOOPBACK = /^(.+\.)?localhost$|^127(\.\d+){3}$|^\[::1\]$/; // other programs may use the same port later; as in sw.js
const TUNED = "webmm.tuned"; // localStorage key of the tuner's best records

/** State shared by the panels. */
export class App extends EventTarget {
  /** @type {Roofline | null} */
  #roofline = null;
  /** @type {{name: string, records: RunRecord[]}[]} runs to compare, newest first */
  runs = [];
  /** GFLOP/s of the first product; default sizes depend on it. */
  speed = 0;
  /** What the address names after the panel: a chapter or OP/STAGE; a "place" event tells when it changes. */
  place = "";
  #best = 0;
  #busy = false;
  /** @type {Map<string, Promise<void>>} */
  #panels = new Map();

  /** @param {Device} device */
  constructor(device) {
    super();
    this.device = device;
  }

  get bundle() {
    return this.device.bundle;
  }

  /** The rates that `roofline()` measured, or null before the first call. */
  get ceilings() {
    return this.#roofline;
  }

  /** @returns {Promise<Roofline | null>} measured once; null if that failed */
  async roofline() {
    try {
      if (!this.#roofline) {
        this.#roofline = await this.device.roofline();
        this.dispatchEvent(new Event("roofline"));
      }
      return this.#roofline;
    } catch (error) {
      if (error instanceof DeviceLostError) throw error;
      return null; // results are shown without it
    }
  }

  /** Load a panel when it is first shown. @param {string} name */
  async fill(name) {
    const filled = this.#panels.get(name) ?? PANELS[name]().then(({ setup }) => setup(this, byId(name)));
    this.#panels.set(name, filled);
    try {
      await filled;
    } catch (error) {
      this.#panels.delete(name); // the next attempt loads it again
      banner(`This panel could not be loaded: ${inWords(error)}`);
    }
  }

  /** Show a checked product at the top of the page if it is the fastest so far. @param {RunRecord} record @param {string} label of its kernel */
  showBest({ op, m, n, k, dtype, status, median_us, gflops }, label) {
    if (status !== "ok" || op !== "gemm" || Number(gflops) <= this.#best) return;
    this.#best = Number(gflops);
    byId("hero-figure").textContent = figures(this.#best);
    byId("hero-caption").textContent =
      `${m}×${k} times ${k}×${n}, ${dtype}, in ${time(median_us)} with kernel ${label}, result checked`;
  }

  /** The measurements on this device, the newest run first. @returns {RunRecord[]} */
  get measured() {
    const records = this.runs.flatMap((run) => run.records);
    return records.filter((r) => r.status === "ok" && r.adapter === this.device.info.name);
  }

  /** @param {string} message for screen readers */
  announce(message) {
    byId("status").textContent = message;
  }

  /**
   * Run one task on the GPU at a time, so that measurements do not disturb each other.
   * @param {() => Promise<unknown>} work
   */
  async exclusively(work) {
    if (this.#busy) throw new UnsupportedError("the GPU is busy with another measurement or product; stop it or wait");
    this.#busy = true;
    document.body.classList.add("busy");
    try {
      await work();
    } finally {
      this.#busy = false;
      document.body.classList.remove("busy");
    }
  }

  /**
   * As `exclusively()`; meanwhile controls are disabled, except for the one that stops the work, and its progress is shown.
   * An error is told in `message`.
   * @param {Control | Control[]} controls @param {HTMLElement} message @param {(signal: AbortSignal) => Promise<unknown>} work
   * @param {{stop?: HTMLButtonElement, progress?: HTMLProgressElement}} [more]
   */
  async attempt(controls, message, work, { stop, progress } = {}) {
    const controller = new AbortController();
    const started = (/** @type {boolean} */ on) => {
      for (const control of [controls].flat()) control.disabled = on;
      if (stop) Object.assign(stop, { disabled: !on, onclick: () => controller.abort() });
      progress?.classList.toggle("on", on);
    };
    started(true);
    message.classList.remove("error");
    try {
      await this.exclusively(() => work(controller.signal));
    } catch (error) {
      const lost = error instanceof DeviceLostError;
      say(message, lost ? `Stopped: the GPU was lost (${inWords(error)}).` : inWords(error), true);
    } finally {
      started(false);
      if (progress) progress.value = 0;
    }
  }

  /** @param {string} name @param {RunRecord[]} records */
  addRun(name, records) {
    this.runs = [{ name, records }, ...this.runs.filter((run) => run.name !== name)].slice(0, 12);
    this.dispatchEvent(new Event("runs"));
  }

  /** Let products use the tuner's best records, now and on later visits. @param {RunRecord[]} records */
  keepTuned(records) {
    const kept = this.tuned().filter((r) => !records.some((s) => s.dtype === r.dtype && shape(s) === shape(r)));
    const all = [...records.filter((r) => r.status === "ok"), ...kept].slice(0, 40);
    remembered(TUNED, toJson(all));
    this.device.learn(all);
  }

  /** @returns {RunRecord[]} */
  tuned() {
    try {
      return fromJson(remembered(TUNED) ?? "", this.bundle);
    } catch {
      return []; // nothing stored yet, or nothing that this version can read
    }
  }
}

/** What the browser keeps for later visits; private windows may refuse that. @param {string} key @param {string} [value] to be kept from now on @returns {string | null} */
function remembered(key, value) {
  try {
    if (value !== undefined) localStorage.setItem(key, value);
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** Use the system's colour scheme until the visitor chooses one. */
function setupTheme() {
  const show = (/** @type {string | null} */ theme) => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  };
  show(remembered("webmm.theme"));
  byId("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim() === "1";
    const theme = dark ? "light" : "dark";
    show(theme);
    remembered("webmm.theme", theme);
  });
}

/** @param {App} app */
function setupTabs(app) {
  const tabs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[role=tab]")]);
  const open = (/** @type {HTMLElement} */ tab, focus = false) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      byId(String(other.getAttribute("aria-controls"))).hidden = !chosen;
    }
    if (focus) tab.focus();
    void app.fill(String(tab.getAttribute("aria-controls")));
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => {
      open(tab);
      history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -i, End: tabs.length - 1 - i }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      open(tabs[(i + step + tabs.length) % tabs.length], true);
    });
  });
  const go = () => {
    const [panel, ...rest] = location.hash.startsWith("#run=") ? ["tune"] : location.hash.slice(1).split("/");
    const tab = panel ? tabs.find((each) => each.getAttribute("aria-controls") === panel) : tabs[0];
    app.place = tab ? rest.join("/") : app.place;
    if (tab) open(tab);
    if (tab && app.place) app.dispatchEvent(new Event("place"));
    return tab;
  };
  if (!go()) open(tabs[0]);
  addEventListener("hashchange", go);
}

/** @param {string} message @param {HTMLElement} [action] */
function banner(message, action) {
  byId("banner").replaceChildren(h("span", {}, message), action ?? "");
  byId("banner").hidden = false;
}

/** @param {Device} device */
function showDevice(device) {
  const { info, limits } = device;
  byId("device-kind").textContent =
    info.kind === "cpu" ? "Software adapter: your CPU emulates a GPU, slowly" : "Your GPU";
  byId("adapter").textContent =
    info.name === `${info.vendor} ${info.architecture}` || !info.vendor
      ? info.name
      : `${info.name} (${info.vendor} ${info.architecture})`;
  const has = (/** @type {string} */ feature, /** @type {string} */ text) =>
    device.features.has(feature) && h("li", {}, text);
  const chips = [
    h("li", {}, `${info.engine} on ${systemName()}`),
    has("shader-f16", "float16"),
    has("timestamp-query", "GPU timestamps"),
    has("subgroups", "subgroups"),
    device.matrix.length > 0 && h("li", {}, "matrix units"),
    h("li", {}, `${limits.maxComputeInvocationsPerWorkgroup} invocations per workgroup`),
    h("li", {}, `${size(limits.maxComputeWorkgroupStorageSize)} workgroup memory`),
    h("li", {}, `up to ${size(limits.maxStorageBufferBindingSize)} per matrix`),
  ];
  byId("features").replaceChildren(...chips.filter((chip) => chip instanceof Node));
}

/** Compute and check one product, so that the page shows a measured figure before the first click. @param {App} app */
async function firstProduct(app) {
  const { device } = app;
  byId("hero").hidden = false;
  const n = device.info.kind === "cpu" ? 128 : 1024;
  const p = { m: n, n, k: n, dtype: /** @type {const} */ ("float32") };
  const kernel = device.info.kind === "cpu" ? device.stage("tile_2d") : device.choose(p); // tile_2d compiles quickly on CPUs
  const operands = await Operands.random(device, p);
  try {
    const record = await new Bench(device, { limit: Infinity }).run(kernel, operands);
    if (record.status !== "ok") throw new Error(record.reason ?? record.status);
    app.speed = Number(record.gflops);
    app.showBest(record, kernel.name);
  } finally {
    operands.free();
  }
}

/** @param {App} app */
function watchForLoss(app) {
  app.device.lost.then((reason) => {
    const retry = button("", "Reload the page", () => location.reload());
    banner(`The GPU was lost: ${reason}. Your results are still shown; save them before you reload.`, retry);
    document.body.classList.add("lost");
    app.dispatchEvent(new Event("lost"));
  });
}

/** @param {App} app */
async function keepOffline(app) {
  const { serviceWorker } = navigator;
  if (!serviceWorker || !isSecureContext || LOOPBACK.test(location.hostname)) return;
  try {
    const kept = new Promise((resolve) => serviceWorker.addEventListener("message", resolve, { once: true }));
    await serviceWorker.register("sw.js");
    const { active } = await serviceWorker.ready;
    // Files that were loaded before the service worker was active are cached now; it caches the others itself.
    active?.postMessage(app.bundle.loaded.map((path) => `bundle/${path}`));
    await kept;
    byId("offline").textContent = "This page now also opens offline, with the shaders that you have run.";
  } catch {
    // no service worker on this host: the page works, but only online
  }
}

async function start() {
  setupTheme();
  let device;
  try {
    device = await Device.open();
  } catch (error) {
    const { showHelp } = await import("./panels/help.js");
    byId("device-kind").textContent =
      error instanceof NoAdapterError ? "No GPU available" : "The GPU could not be opened";
    byId("adapter").textContent = inWords(error);
    showHelp(byId("help"), error);
    return;
  }
  const app = new App(device);
  device.learn(app.tuned());
  // For the console: webmm.device.matmul(webmm.Matrix.random(64, 64), webmm.Matrix.random(64, 64))
  Object.assign(globalThis, { webmm: { app, device, Matrix } });
  showDevice(device);
  watchForLoss(app);
  setupTabs(app);
  if (location.hash.startsWith("#run=")) await openLink(app);
  try {
    await app.exclusively(() => firstProduct(app));
    app.dispatchEvent(new Event("speed"));
  } catch (error) {
    if (!(error instanceof DeviceLostError))
      byId("hero-caption").textContent = `the first product failed: ${inWords(error)}`;
  }
  document.body.dataset.ready = "true";
  await keepOffline(app);
}

/** @param {App} app */
async function openLink(app) {
  try {
    const records = await fromFragment(location.hash.slice("#run=".length), app.bundle);
    app.addRun(`link: ${records[0]?.adapter ?? "no records"}`, records);
  } catch (error) {
    banner(inWords(error));
  }
}

start().catch((error) => banner(`The page could not start: ${inWords(error)}`));
