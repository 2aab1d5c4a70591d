// @ts-check
/** Kernels: a stage of a ladder at given tile sizes, and which of its texts computes a problem. */

/** @typedef {import("./bundle.js").KernelRow} KernelRow */
/** @typedef {import("./bundle.js").ConfigRow} ConfigRow */
/** @typedef {import("./problems.js").Problem} Problem */
/** @typedef {Record<string, number | string>} Config */
/**
 * Fragments of (m, k) times (k, n) for the matrix units of a GPU, by how many lanes, and how the shader spells it.
 * @typedef {{operands: string, result: string, m: number, n: number, k: number}} MatrixShape
 * @typedef {MatrixShape & {lanes: number, spelling: string}} Fragments
 */

/** A stage at given tile sizes: what `webmm.kernels.base.Kernel` is in Python. */
export class Kernel {
  /** @param {KernelRow} stage @param {ConfigRow} row @param {string[]} flags */
  constructor(stage, row, flags) {
    this.stage = stage;
    this.row = row;
    this.flags = flags;
    this.name = stage.name;
    /** @type {Config} */
    this.config = Object.fromEntries(stage.tunables.map((tunable, i) => [tunable.name, row.config[i]]));
  }

  /** The kernel and what differs from its defaults. */
  get label() {
    const changed = this.stage.tunables.filter((t) => this.config[t.name] !== t.default);
    return [this.name, ...changed.map((t) => `${t.name}=${this.config[t.name]}`)].join(" ");
  }

  /** What matrix units must multiply, or null for a kernel that uses none. */
  get matrix() {
    return this.row.matrix;
  }

  get invocations() {
    return this.row.workgroup_size.reduce((product, size) => product * size, 1);
  }

  /** @param {Problem} p @returns {number} */
  tiles(p) {
    const { tile_m, tile_n, elements } = this.row.grid;
    return elements ? Math.ceil((p.m * p.n) / elements) : Math.ceil(p.m / tile_m) * Math.ceil(p.n / tile_n);
  }

  /** @param {Problem} p @param {number} most workgroups in a dimension @returns {[number, number, number]} */
  dispatch(p, most) {
    const { at_most } = this.row.grid;
    const count = at_most ? Math.min(this.tiles(p), at_most) : this.tiles(p);
    const y = Math.ceil(count / most);
    return [Math.ceil(count / y), y, 1];
  }

  /**
   * @param {Problem} p @param {number} loopLimit
   * @returns {number} the specialisation that fits, a bit per flag; as `Kernel.specialise` in Python
   */
  specialise(p, loopLimit) {
    const { grid, inner_step } = this.row;
    const [axisA, axisB] = this.stage.vector_axes;
    const whole = (/** @type {number} */ size) => size % this.stage.vector === 0;
    const ragged = grid.elements > 0 && (p.m * p.n) % grid.elements !== 0;
    /** @type {Record<string, boolean>} */
    const set = {
      vec_a: (axisA === "k" || axisA === "any") && whole(p.k) && whole(p.m * p.k),
      vec_b: (axisB === "n" || axisB === "any") && whole(p.n),
      vec_c: axisB !== "" && p.n % 4 === 0,
      edge_m: ragged || p.m % grid.tile_m !== 0,
      edge_n: ragged || p.n % grid.tile_n !== 0,
      edge_k: p.k % inner_step !== 0,
      long_k: inner_step === 1 && p.k > loopLimit,
    };
    return this.flags.reduce((bits, name, i) => bits | (set[name] ? 1 << i : 0), 0);
  }

  /** @param {Problem} p @returns {boolean} whether no tile hangs over an edge */
  fits(p) {
    const { grid, inner_step } = this.row;
    return p.m % grid.tile_m === 0 && p.n % grid.tile_n === 0 && p.k % inner_step === 0;
  }

  /**
   * The most special shader of the bundle that covers `p`: one with checks is right where none are needed, one for
   * single elements where vectors would do, but not the other way round.
   * @param {Problem} p @param {number} loopLimit
   * @returns {string | null} its file, or null if the bundle has none for this element type
   */
  shader(p, loopLimit) {
    const files = this.row.shaders[p.dtype];
    if (!files) return null;
    const needed = this.specialise(p, loopLimit);
    const vectors = this.flags.reduce((bits, name, i) => bits | (name.startsWith("vec") ? 1 << i : 0), 0);
    const covering = Object.keys(files).map(Number).filter((has) => {
      const more = has & ~needed;
      const less = needed & ~has;
      return (more & vectors) === 0 && (less & ~vectors) === 0;
    });
    if (covering.length === 0) return null;
    const distance = (/** @type {number} */ has) => bitCount(has ^ needed);
    return files[covering.reduce((best, has) => (distance(has) < distance(best) ? has : best))];
  }
}

/** @param {number} bits */
function bitCount(bits) {
  let count = 0;
  for (; bits; bits &= bits - 1) count++;
  return count;
}
