/** Kernels: stages of a ladder with their tunables, as the panels show them. */

/** @import { Bundle, Python } from "./bundle.js" */
/** @import { Problem } from "./problems.js" */
/** @typedef {Record<string, number | string>} Config */
/**
 * Matrix-unit fragments: (m, k) times (k, n) with their element types; and with the subgroup size and the spelling in WGSL.
 * @typedef {{operands: string, result: string, m: number, n: number, k: number}} MatrixShape
 * @typedef {MatrixShape & {lanes: number, spelling: string}} Fragments
 */

/** A kernel: a stage and its settings. `of` is the translated Python kernel. */
export class Kernel {
  /** @param {Bundle} bundle @param {Python} of */
  constructor(bundle, of) {
    this.bundle = bundle;
    this.of = of;
    /** @type {string} */
    this.name = of.name;
    /** @type {Config} */
    this.config = Object.fromEntries(of.config);
  }

  /** Its stage: name, summary and tunables. */
  get stage() {
    return this.bundle.stage(this.name, this.of.op);
  }

  /** The kernel's name and the settings that differ from the defaults. */
  get label() {
    const defaults = new this.of.constructor().config;
    const changed = Object.entries(this.config).filter(([name, value]) => value !== defaults.get(name));
    return [this.name, ...changed.map((setting) => setting.join("="))].join(" ");
  }

  /** The fragments that it needs matrix units for, or null if it uses none. @returns {Fragments | null} */
  get matrix() {
    const { matrix_shape: shape, subgroup: lanes } = this.of;
    return shape && { ...shape, lanes, spelling: String(this.config.spelling ?? "current") };
  }

  /** Invocations per workgroup. @returns {number} */
  get invocations() {
    return this.of.invocations;
  }

  /** The dtypes that it multiplies. @returns {string[]} */
  get dtypes() {
    const one = (/** @type {any} */ dtype) => this.bundle.problem({ m: 1, n: 1, k: 1, dtype });
    const names = this.bundle.core.FLOATS.map((/** @type {Python} */ { name }) => name);
    return names.filter((/** @type {string} */ dtype) => !this.of.unsuited(one(dtype)));
  }

  /** @param {Problem} p @returns {Promise<string>} the WGSL that computes `p` */
  async wgsl(p) {
    return (await this.bundle.shader(this.of, this.bundle.problem(p))).wgsl;
  }
}
