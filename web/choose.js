// @ts-check
/** Can a kernel run on this device, and which is likely the fastest: `webmm/choose` in Python. */

import { UnsupportedError } from "./errors.js";
import { ITEM_SIZE } from "./matrix.js";
import { grouped } from "./text.js";
import { MATRIX_UNITS } from "./engine/adapters.js";
import { nameOf } from "./engine/launch.js";

/** @typedef {import("./kernels.js").Kernel} Kernel */
/** @typedef {import("./kernels.js").Fragments} Fragments */
/** @typedef {import("./kernels.js").MatrixShape} MatrixShape */
/** @typedef {import("./problems.js").Problem} Problem */
/** @typedef {import("./bundle.js").TunedRecord} TunedRecord */
/** @typedef {import("./records.js").RunRecord} RunRecord */
/** @typedef {import("./engine/device.js").Device} Device */
/**
 * What a stage asks of a device.
 * @typedef {{
 *   features: string[], subgroup: number, workgroup_size: [number, number, number], workgroup_bytes: number,
 *   binding: number, groups: number, matrix: Fragments | null,
 * }} Needs
 */

/** @type {Record<string, string>} what to do about a feature that browsers keep to themselves */
const SWITCHES = {
  [MATRIX_UNITS]: "Chromium offers it with --enable-unsafe-webgpu, on GPUs with matrix units",
};
/** The choices of one device. */
export class Choices {
  /** @type {RunRecord[]} */
  #learned = [];
  /** @type {Map<string, Kernel>} what was chosen, by problem */
  #choices = new Map();

  /** @param {Device} device */
  constructor(device) {
    this.device = device;
  }

  /**
   * @param {Kernel} kernel @param {Problem} p
   * @returns {string | null} why `kernel` cannot compute `p` here, or null
   */
  reason(kernel, p) {
    const reason = this.lacks({
      ...kernel.row,
      features: [...this.device.bundle.index.dtypes[p.dtype].features, ...kernel.row.features],
      binding: Math.max(p.m * p.k, p.k * p.n, p.m * p.n) * ITEM_SIZE[p.dtype],
      groups: Math.max(...kernel.dispatch(p, this.device.bundle.index.max_workgroups)),
    });
    if (reason || kernel.row.shaders[p.dtype]) return reason;
    const carried = Object.keys(kernel.row.shaders).join(", ");
    return carried === "float32" ? "the page carries this configuration for float32 only" : `multiplies ${carried}, not ${p.dtype}`;
  }

  /** @param {Needs} asked @returns {string | null} what of it this device does not have, or null */
  lacks({ features, subgroup, workgroup_size, workgroup_bytes, binding, groups, matrix }) {
    const name = this.device.info.name;
    const missing = features.filter((feature) => !this.device.features.has(feature));
    if (missing.length) {
      const advice = missing.flatMap((feature) => SWITCHES[feature] ?? []).join("; ");
      return `needs the feature ${missing.join(", ")}${advice ? `: ${advice}` : `, which ${name} does not have`}`;
    }
    const units = matrix && (this.lacksUnits(matrix) ?? this.#misspells(matrix));
    if (units) return units;
    if (subgroup > this.device.info.subgroup) {
      return `needs subgroups of ${subgroup} lanes, ${name} has ${this.device.info.subgroup || "none"}`;
    }
    const [x, y, z] = workgroup_size;
    /** @type {[number, keyof GPUSupportedLimits, string][]} */
    const needs = [
      [x * y * z, "maxComputeInvocationsPerWorkgroup", "invocations per workgroup"],
      [x, "maxComputeWorkgroupSizeX", "invocations along x"],
      [y, "maxComputeWorkgroupSizeY", "invocations along y"],
      [z, "maxComputeWorkgroupSizeZ", "invocations along z"],
      [workgroup_bytes, "maxComputeWorkgroupStorageSize", "bytes of workgroup memory"],
      [binding, "maxStorageBufferBindingSize", "bytes in one binding"],
      [groups, "maxComputeWorkgroupsPerDimension", "workgroups in one dimension"],
    ];
    for (const [need, limit, what] of needs) {
      const has = Number(this.device.limits[limit]);
      if (need > has) return `needs ${grouped(need)} ${what}, ${name} has ${grouped(has)}`;
    }
    return null;
  }

  /** @param {Fragments} matrix @returns {string | null} why the matrix units here cannot multiply them, or null */
  lacksUnits(matrix) {
    const { name, subgroup, subgroupMax } = this.device.info;
    if (!this.device.matrix.some((shape) => shapeInWords(shape) === shapeInWords(matrix))) {
      const offered = this.device.matrix.map(shapeInWords).join(", ") || "nothing";
      return `needs matrix units that multiply ${shapeInWords(matrix)}, those of ${name} multiply ${offered}`;
    }
    if (subgroup === matrix.lanes && subgroupMax === matrix.lanes) return null;
    return `needs subgroups of exactly ${matrix.lanes} lanes, ${name} has ${subgroup} to ${subgroupMax}`;
  }

  /** @param {Fragments} matrix @returns {string | null} why this engine does not read such a shader, or null */
  #misspells({ spelling }) {
    if (spelling === this.device.spelling) return null;
    return `is in the ${spelling} spelling of fragments, of which this engine reads ${this.device.spelling ? `the ${this.device.spelling} one` : "none"}`;
  }

  /**
   * @param {string} name
   * @param {Problem} [p]
   * @returns {Kernel} the configuration that stands for a stage on this device: for matrix units, with the largest fragments,
   *   and with the tiles that suit `p`
   */
  stage(name, p) {
    const configs = /** @type {Kernel[]} */ (this.device.bundle.kernels.get(name));
    const usual = configs[this.device.info.kind === "cpu" ? this.device.bundle.stage(name).light : 0];
    if (!usual.matrix) return usual;
    const size = (/** @type {Kernel} */ { matrix }) => (matrix ? matrix.m * matrix.n * matrix.k : 0);
    const able = configs.filter(({ matrix }) => matrix && !this.lacksUnits(matrix) && !this.#misspells(matrix));
    const largest = able.reduce((best, kernel) => (size(kernel) > size(best) ? kernel : best), able[0] ?? usual);
    return (p && this.#onMatrixUnits(p).find((kernel) => kernel.name === name && !this.reason(kernel, p))) ?? largest;
  }

  /**
   * Prefer what was measured on this adapter: `choose` then takes the fastest record of the size nearest to a problem.
   * @param {RunRecord[]} records
   */
  learn(records) {
    this.#learned = records.filter((r) => r.status === "ok" && r.adapter === this.device.info.name && r.engine === this.device.info.engine);
    this.#choices.clear();
  }

  /** @param {Problem} p @returns {Kernel} the kernel to use where the caller does not say */
  choose(p) {
    const known = this.#choices.get(nameOf(p));
    if (known) return known;
    const reasons = [];
    for (const kernel of this.#candidates(p)) {
      const reason = this.reason(kernel, p);
      if (!reason) {
        this.#choices.set(nameOf(p), kernel);
        return kernel;
      }
      reasons.push(`${kernel.name} ${reason}`);
    }
    throw new UnsupportedError(`no kernel can compute ${p.m}×${p.n}×${p.k}: ${[...new Set(reasons)].join("; ")}`);
  }

  /** @param {Problem} p @returns {Kernel[]} */
  #candidates(p) {
    const { choices } = this.device.bundle.index;
    const rows = this.device.info.kind === "cpu" ? choices.cpu : choices.gpu;
    const listed = rows
      .filter((row) => !row.fitting || this.device.bundle.kernel(row.kernel, row.config).fits(p))
      .map((row) => this.device.bundle.kernel(row.kernel, row.config));
    const simple = [this.device.bundle.kernel("tile_2d"), this.device.bundle.kernel("naive")];
    const vendor = (this.device.info.vendor || this.device.info.name.split(" ")[0]).toLowerCase();
    const learned = this.#nearest(p, this.#learned);
    const shipped = this.#nearest(p, choices.tuned.filter((r) => r.vendor === vendor));
    if (this.device.info.kind === "cpu") return [...learned, ...shipped, ...listed, ...simple];
    const filling = listed.filter((kernel) => kernel.tiles(p) >= choices.enough_tiles);
    if (filling.length === 0) filling.push(listed[listed.length - 1]);
    const others = listed.filter((kernel) => !filling.includes(kernel));
    return [...learned, ...this.#onMatrixUnits(p), ...shipped, ...filling, ...others, ...simple];
  }

  /** @param {Problem} p @returns {Kernel[]} the kernels for matrix units, if they should win: `made_for_matrix_units` in Python */
  #onMatrixUnits(p) {
    const { matrix } = this.device.bundle.index.choices;
    const usual = this.stage(matrix.kernel);
    if (this.reason(usual, p) || Math.min(p.m, p.n) <= matrix.few) return [];
    const sizes = matrix.tiles.flatMap((tiles) => this.device.bundle.carried(usual.name, { ...usual.config, ...tiles }) ?? []);
    const last = sizes[sizes.length - 1];
    const enough = (/** @type {Kernel} */ kernel) => (kernel === last ? matrix.some_tiles : matrix.enough_tiles);
    const first = sizes.findIndex((kernel) => kernel.tiles(p) >= enough(kernel));
    return first < 0 ? [] : sizes.slice(first);
  }

  /** @param {Problem} p @param {TunedRecord[]} records @returns {Kernel[]} that of the nearest record, if any is near */
  #nearest(p, records) {
    const distance = (/** @type {TunedRecord} */ r) =>
      Math.abs(Math.log2(r.m / p.m)) + Math.abs(Math.log2(r.n / p.n)) + Math.abs(Math.log2(r.k / p.k));
    const [nearest] = records
      .filter((r) => r.dtype === p.dtype && distance(r) <= 3)
      .sort((r, s) => distance(r) - distance(s) || Number(s.gflops) - Number(r.gflops));
    try {
      return nearest ? [this.device.bundle.kernel(nearest.kernel, nearest.config)] : [];
    } catch {
      return []; // measured elsewhere, with tiles that this bundle does not carry
    }
  }
}

/** @param {MatrixShape} shape */
const shapeInWords = ({ m, n, k, operands, result }) => `${m}×${n}×${k} ${operands} into ${result}`;
