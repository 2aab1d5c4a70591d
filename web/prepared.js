/** The ladders that `webmm/page/ladders.py` writes: problems with inputs made as in Python, and fingerprints of its results. */

import { filled, opened } from "./bench.js";
import { breathe } from "./check.js";
import { orFree } from "./engine/guard.js";
import { toHalf } from "./half.js";
import { ELEMENTS } from "./host.js";

/** @import { Device, DeviceArray, Task, Kernel } from "./webmm.js" */
/** @import { Verdict } from "./bench.js" */
/** @import { ElementType } from "./host.js" */
/** @typedef {{name: string, dtype: ElementType, count: number, start: number, low: number, high: number}} Input */
/** An entry of bundle/ladders.js: a translated problem, its inputs, the fingerprint of its result, and the kernels of its ladder. @typedef {{problem: any, inputs: Input[], fingerprint: number, kernels: any[]}} Known */

const CHUNK = 2 ** 20; // elements between two calls of breathe()
/** @type {Record<number, any>} */
const WORDS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: Uint32Array };

/** @param {number} x @returns {number} a hash of 32 bits (Wellons' lowbias32) */
function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Generate an input. @param {Input} input @returns {Promise<ArrayBuffer>} its elements */
export async function draw({ dtype, count, start, low, high }) {
  const { itemsize, over } = ELEMENTS[dtype];
  const bytes = new ArrayBuffer(count * itemsize);
  const elements = over(bytes, count);
  const stored = dtype === "float16" ? toHalf : (/** @type {number} */ value) => value;
  for (let i = 0; i < count; i++) {
    elements[i] = stored(low + (mix(i + start) % (high - low + 1)));
    if (i % CHUNK === CHUNK - 1) await breathe();
  }
  return bytes;
}

/** @param {Uint8Array | Uint16Array | Uint32Array} bits of the elements, 64-bit ones as two words @returns {number} a 32-bit hash of all elements and their positions */
export function fingerprint(bits) {
  let sum = 0;
  for (let i = 0; i < bits.length; i++) sum = (sum + mix(bits[i] ^ mix(i))) >>> 0;
  return sum;
}

/** @param {any} problem translated @returns {Task & {op: string, flops: number}} its fields in a record */
export function taskOf(problem) {
  const [m, n, k] = problem.sizes;
  return { op: problem.op, variant: problem.variant, m, n, k, dtype: problem.dtype.name, flops: problem.flops };
}

/** A stage of such a ladder: a kernel with the label that distinguishes it on the ladder. */
export class Rung {
  /** @param {Kernel} kernel */
  constructor(kernel) {
    this.kernel = kernel;
    this.name = kernel.name;
    this.config = kernel.config;
    this.matrix = kernel.matrix;
    this.label = kernel.config.dot === "emulated" ? `${kernel.name} emulated` : kernel.name;
    this.summary = kernel.of.summary;
  }
}

/** A `Case` of bench.js for a problem whose result is known. */
export class PreparedCase {
  /** @type {Map<string, DeviceArray>} by their buffers' names */
  #inputs = new Map();

  /** @param {Device} device @param {Known} known @param {Known[]} others problems of the same ladder, for probes */
  constructor(device, known, others) {
    this.device = device;
    this.known = known;
    this.others = others;
    this.problem = taskOf(known.problem);
  }

  get rungs() {
    const { bundle } = this.device;
    const { kernels, problem } = this.known;
    return kernels.map((kernel) => new Rung(this.device.choices.fitted(bundle.wrap(kernel), problem)));
  }

  /** The stages of the ladder: of kernels with equal labels, for different subgroup sizes, the first that can run. */
  get stages() {
    const all = this.rungs;
    return [...new Set(all.map(({ label }) => label))].map((label) => {
      const variants = all.filter((rung) => rung.label === label);
      return variants.find((rung) => !this.reason(rung)) ?? variants[0];
    });
  }

  /** Generate the inputs and upload them. */
  load() {
    const extents = this.known.problem.buffers();
    const fill = async () => {
      for (const input of this.known.inputs) {
        const extent = extents.find((/** @type {any} */ { name }) => name === input.name);
        this.#inputs.set(input.name, await filled(this.device, await draw(input), extent));
      }
      return this;
    };
    return orFree(() => this.free(), fill);
  }

  free() {
    for (const array of this.#inputs.values()) array.free();
    this.#inputs.clear();
  }

  /** @param {Rung} rung @returns {string | null} why it cannot run on this device, or null if it can */
  reason(rung) {
    return this.device.reason(rung.kernel, this.known.problem);
  }

  /** The smaller problems of the ladder; their inputs are not filled, and are freed after the run. */
  *probes() {
    const { flops, dtype } = this.problem;
    const others = this.others.map((known) => new PreparedCase(this.device, known, []));
    const smaller = others.filter(({ problem }) => problem.flops < flops && problem.dtype === dtype);
    for (const on of smaller.sort((x, y) => x.problem.flops - y.problem.flops)) {
      const same = (/** @type {Rung} */ rung) => on.stages.find(({ label }) => label === rung.label) ?? rung;
      try {
        yield { problem: on.problem, open: (/** @type {Rung} */ rung) => on.open(same(rung)) };
      } finally {
        on.free();
      }
    }
  }

  /** @param {Rung} rung */
  async open({ kernel }) {
    const { device } = this;
    const { problem } = this.known;
    const extents = problem.buffers();
    for (const { name, end, dtype, written } of extents)
      if (!written && !this.#inputs.has(name)) this.#inputs.set(name, await device.empty([end], dtype.name));
    const launch = (/** @type {DeviceArray} */ result) => {
      const arrays = extents.map((/** @type {any} */ { name }) => this.#inputs.get(name) ?? result);
      return device.launches.get(kernel.of, problem, arrays);
    };
    return opened(device, problem, launch, (result) => this.#verdict(result));
  }

  /** @param {DeviceArray} result @returns {Promise<Verdict>} */
  async #verdict(result) {
    const { data } = await result.read();
    const Words = WORDS[data.BYTES_PER_ELEMENT];
    const found = fingerprint(new Words(data.buffer, data.byteOffset, data.byteLength / Words.BYTES_PER_ELEMENT));
    if (found === this.known.fingerprint) return { wrong: null, max_error: 0, error_bound: 0 };
    const hex = (/** @type {number} */ value) => value.toString(16).padStart(8, "0");
    const wrong = `the result differs from Python's: its fingerprint is ${hex(found)}, not ${hex(this.known.fingerprint)}`;
    return { wrong, max_error: null, error_bound: 0 };
  }
}

/**
 * The problems of a ladder for this kind of device, of the element types that it has: sizes and element types as options
 * of lists, the problem that `on()` finds by these, and `others`: stages that the ladder leaves out.
 * @param {Device} device @param {number} number of the ladder
 */
export async function knownLadder(device, number) {
  /** @type {{title: string, others: string[], gpu: Known[], cpu: Known[]}[]} */
  const ladders = (await device.bundle.module("ladders.js")).default;
  const { others, ...problems } = ladders[number];
  const { dtypes } = device.bundle.index; // all others, such as float64, are computed from integers
  const able = (/** @type {any} */ { dtype }) =>
    !(dtype.name in dtypes) || [...dtype.features].every((feature) => device.features.has(feature));
  const known = problems[device.info.kind].filter(({ problem }) => able(problem));
  const cases = known.map((each) => new PreparedCase(device, each, known));
  const { size_of } = device.core;
  const on = (/** @type {string} */ size, /** @type {string} */ dtype) =>
    /** @type {PreparedCase} */ (cases.find(({ problem }) => size_of(problem) === size && problem.dtype === dtype));
  /** @type {(name: (task: Task) => string) => [string, string][]} */
  const options = (name) => [...new Set(cases.map(({ problem }) => name(problem)))].map((each) => [each, each]);
  return { first: cases[0], on, others, sizes: options(size_of), dtypes: options((task) => task.dtype) };
}
