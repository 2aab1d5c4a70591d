/** The page: opens the device, describes it, and loads the panels. */

import { byId, h, markup, options, say, systemName } from "./dom.js";
import { Bench, Operands } from "./bench.js";
import { once } from "./engine/guard.js";
import { fromFragment, fromJson, toJson } from "./records.js";
import { added } from "./templates.js";
import { Device, DeviceLostError, Matrix, NoAdapterError, UnsupportedError, inWords } from "./webmm.js";

/** @import { RunRecord, Roofline } from "./webmm.js" */
/** @typedef {HTMLButtonElement | HTMLInputElement | HTMLSelectElement} Control */

const LOOPBACK = /^(.+\.)?localhost$|^127(\.\d+){3}$|^\[::1\]$/; // other programs may use the same port later; as in sw.js
const TUNED = "webmm.tuned"; // localStorage key of the tuner's best records

/** State shared by the panels. */
export class App extends EventTarget {
  /** The rates that `roofline()` measured, or null before the first call. @type {Roofline | null} */
  ceilings = null;
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

  /** The element types that the device supports. @returns {string[]} */
  get dtypes() {
    return this.bundle.core.floats_of(this.device.choices.described);
  }

  /** The rates of the device, measured once; null if that failed. */
  async roofline() {
    try {
      if (this.ceilings) return this.ceilings;
      this.ceilings = await this.device.roofline();
      this.dispatchEvent(new Event("roofline"));
    } catch (error) {
      if (error instanceof DeviceLostError) throw error; // else results are shown without it
    }
    return this.ceilings;
  }

  /** Load a panel when it is first shown. @param {string} name of a module and of its markup */
  fill(name) {
    const make = async () => {
      /** @type {Promise<{setup: (app: App, root: HTMLElement) => void}>} */
      const loading = import(`./panels/${name}.js`);
      const [{ setup }, html] = await Promise.all([loading, markup(name)]);
      byId(name).innerHTML = html;
      for (const list of byId(name).querySelectorAll("[data-dtypes]")) list.append(...options(this.dtypes));
      setup(this, byId(name));
    };
    once(this.#panels, name, make).catch((error) => banner(`This panel could not be loaded: ${inWords(error)}`));
  }

  /** Show a checked product at the top of the page if it is the fastest so far. @param {RunRecord} record @param {string} label of its kernel */
  showBest(record, label) {
    if (record.status !== "ok" || record.op !== "gemm" || Number(record.gflops) <= this.#best) return;
    this.#best = Number(record.gflops);
    const { hero } = this.bundle.core;
    [byId("hero-figure").textContent, byId("hero-caption").textContent] = hero(record, label);
  }

  /** The measurements on this device, the newest run first. @returns {RunRecord[]} */
  get measured() {
    const records = this.runs.flatMap((run) => run.records);
    return records.filter((r) => r.status === "ok" && r.adapter === this.device.info.name);
  }

  /** Say how a task ended, also to screen readers. @param {HTMLElement} message @param {string} words @param {boolean} [wrong] */
  tell(message, words, wrong) {
    say(message, words, wrong);
    byId("status").textContent = words;
  }

  /** Run one task on the GPU at a time, so that measurements do not disturb each other. @template T @param {() => Promise<T>} work */
  async exclusively(work) {
    if (this.#busy) throw new UnsupportedError("the GPU is busy with another measurement or product; stop it or wait");
    this.#busy = true;
    try {
      return await work();
    } finally {
      this.#busy = false;
    }
  }

  /**
   * As `exclusively()`; meanwhile controls are disabled, except for the one that stops the work, and its progress is shown.
   * First, `message` has `words`, and `result` becomes empty. An error is told in `message`.
   * @param {Control | Control[]} controls @param {HTMLElement} message @param {(signal: AbortSignal) => Promise<unknown>} work
   * @param {{stop?: HTMLButtonElement, progress?: HTMLProgressElement, words?: string, result?: HTMLElement}} [more]
   */
  async attempt(controls, message, work, { stop, progress, words, result } = {}) {
    const controller = new AbortController();
    const started = (/** @type {boolean} */ on) => {
      for (const control of [controls].flat()) control.disabled = on;
      if (stop) Object.assign(stop, { disabled: !on, onclick: () => controller.abort() });
      progress?.classList.toggle("on", on);
    };
    started(true);
    result?.replaceChildren();
    say(message, words ?? message.textContent ?? "");
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
    const all = this.bundle.core.to_keep(records, this.tuned());
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
  const root = document.documentElement;
  const kept = remembered("webmm.theme") ?? "";
  if (["light", "dark"].includes(kept)) root.dataset.theme = kept;
  byId("theme").onclick = () => {
    const dark = getComputedStyle(root).getPropertyValue("--is-dark").trim() === "1";
    root.dataset.theme = dark ? "light" : "dark";
    remembered("webmm.theme", root.dataset.theme);
  };
}

/** @param {App} app */
function setupTabs(app) {
  const tabs = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[role=tab]"))];
  const panels = tabs.map((tab) => String(tab.getAttribute("aria-controls")));
  const open = (/** @type {number} */ at) => {
    for (const [i, tab] of tabs.entries()) {
      tab.ariaSelected = String(i === at);
      tab.tabIndex = i === at ? 0 : -1;
      byId(panels[i]).hidden = i !== at;
    }
    app.fill(panels[at]);
  };
  for (const [i, tab] of tabs.entries()) {
    tab.onclick = () => {
      open(i);
      history.replaceState(null, "", `#${panels[i]}`);
    };
    tab.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -i, End: -1 - i }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const at = (i + step + tabs.length) % tabs.length;
      open(at);
      tabs[at].focus();
    };
  }
  const go = () => {
    const [panel, ...rest] = location.hash.startsWith("#run=") ? ["tune"] : location.hash.slice(1).split("/");
    const at = panel ? panels.indexOf(panel) : 0;
    if (at < 0) return false;
    app.place = rest.join("/");
    open(at);
    if (app.place) app.dispatchEvent(new Event("place"));
    return true;
  };
  if (!go()) open(0);
  addEventListener("hashchange", go);
}

/** @param {string} message */
function banner(message) {
  byId("banner-words").textContent = message;
  byId("banner").hidden = false;
}

/** @param {Device} device */
function showDevice({ core, info, capabilities }) {
  const [kind, name, offers] = core.introduced(info, capabilities, systemName());
  byId("device-kind").textContent = kind;
  byId("adapter").textContent = name;
  byId("features").replaceChildren(...offers.map((/** @type {string} */ words) => h("li", {}, words)));
}

/** Compute and check one product, so that the page shows a measured figure before the first click. @param {App} app */
async function firstProduct(app) {
  const { device } = app;
  byId("hero").hidden = false;
  const n = device.info.kind === "cpu" ? 128 : 1024;
  const p = { m: n, n, k: n, dtype: /** @type {const} */ ("float32") };
  const kernel = device.info.kind === "cpu" ? device.stage("tile_2d") : device.choose(p); // tile_2d compiles quickly on CPUs
  const record = await new Bench(device, { limit: Infinity }).measure(kernel, Operands.random(device, p));
  if (record.status !== "ok") throw new Error(record.reason ?? record.status);
  app.speed = Number(record.gflops);
  app.showBest(record, kernel.name);
}

/** @param {string} reason why the device was lost */
function showLoss(reason) {
  banner(`The GPU was lost: ${reason}. Your results are still shown; save them before you reload.`);
  byId("reload").onclick = () => location.reload();
  document.body.classList.add("lost");
}

async function keepOffline() {
  const { serviceWorker } = navigator;
  if (!serviceWorker || !isSecureContext || LOOPBACK.test(location.hostname)) return;
  const kept = new Promise((resolve) => serviceWorker.addEventListener("message", resolve, { once: true }));
  await serviceWorker.register("sw.js");
  const { active } = await serviceWorker.ready;
  // Files that were loaded before the service worker was active are cached now; it caches the others itself.
  active?.postMessage(added().map((path) => `bundle/${path}`));
  await kept;
  byId("offline").textContent = "This page now also opens offline, with the shaders that you have run.";
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
    return showHelp(error);
  }
  const app = new App(device);
  device.learn(app.tuned());
  // For the console: webmm.device.matmul(webmm.Matrix.random(64, 64), webmm.Matrix.random(64, 64))
  Object.assign(globalThis, { webmm: { app, device, Matrix } });
  showDevice(device);
  void device.lost.then(showLoss);
  setupTabs(app);
  if (location.hash.startsWith("#run=")) await openLink(app).catch((error) => banner(inWords(error)));
  try {
    await app.exclusively(() => firstProduct(app));
    app.dispatchEvent(new Event("speed"));
  } catch (error) {
    if (!(error instanceof DeviceLostError))
      byId("hero-caption").textContent = `the first product failed: ${inWords(error)}`;
  }
  document.body.dataset.ready = "true";
  await keepOffline().catch(() => {}); // without a service worker the page works, but only online
}

/** @param {App} app */
async function openLink(app) {
  const records = await fromFragment(location.hash.slice("#run=".length), app.bundle);
  app.addRun(`link: ${records[0]?.adapter ?? "no records"}`, records);
}

start().catch((error) => banner(`The page could not start: ${inWords(error)}`));
