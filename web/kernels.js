// @ts-check
/** Kernels: a stage of a ladder at given tile sizes, as panels show and choose it. */

/** @typedef {import("./bundle.js").Bundle} Bundle */
/** @typedef {import("./bundle.js").Python} Python */
/** @typedef {import("./problems.js").Problem} Problem */
/** @typedef {Record<string, number | string>} Config */
/**
 * Fragments of (m, k) times (k, n) for the matrix units of a GPU, by how many lanes, and how the shader spells it.
 * @typedef {{operands: string, result: string, m: number, n: number, k: number}} MatrixShape
 * @typedef {MatrixShape & {lanes: number, spelling: string}} Fragments
 */

/** A kernel of Python's, `of`, with what the page says of it. */
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

  /** Its stage: what it changed, and its tunables. */
  get stage() {
    return this.bundle.stage(this.name, this.of.op);
  }

  /** @returns {string} the kernel and what differs from its defaults */
  get label() {
    const usual = new this.of.constructor().config;
    const changed = Object.entries(this.config).filter(([name, value]) => value !== usual.get(name));
    return [this.name, ...changed.map(([name, value]) => `${name}=${value}`)].join(" ");
  }

  /** What matrix units must multiply, or null for a kernel that uses none. @returns {Fragments | null} */
  get matrix() {
    const shape = this.of.matrix_shape;
    if (!shape) return null;
    const { operands, result, m, n, k } = shape;
    return { operands, result, m, n, k, lanes: this.of.subgroup, spelling: String(this.config.spelling ?? "current") };
  }

  /** @returns {number} of a workgroup */
  get invocations() {
    return this.of.invocations;
  }

  /** @returns {string[]} the element types that it multiplies */
  get dtypes() {
    const { core } = this.bundle;
    const suited = core.FLOATS.filter(
      (/** @type {any} */ dtype) => this.of.unsuited(this.bundle.problem({ m: 1, n: 1, k: 1, dtype })) === null,
    );
    return suited.map((/** @type {any} */ dtype) => dtype.name);
  }

  /** @param {Problem} p @returns {Promise<string>} the text that runs */
  async wgsl(p) {
    return (await this.bundle.shader(this.of, this.bundle.problem(p))).wgsl;
  }
}
