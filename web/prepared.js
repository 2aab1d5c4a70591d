/** The ladders that `webmm/page/ladders.py` writes: problems with inputs made as in Python, and fingerprints of its results. */

import { Inputs, filled } from "./bench.js";
import { breathe } from "./check.js";
import { HostArray } from "./host.js";
import { Kernel } from "./kernels.js";

/** @import { Device, Python } from "./webmm.js" */
/** @import { Verdict } from "./bench.js" */
/** @import { ElementType } from "./host.js" */
/** @typedef {{dtype: ElementType, count: number, start: number, low: number, high: number}} Input */
/** An entry of bundle/ladders.js: a translated problem, its inputs, the fingerprint of its result, and the kernels of its ladder. @typedef {{problem: any, inputs: Input[], fingerprint: number, kernels: any[]}} Known */

const CHUNK = 2 ** 20; // elements between two calls of breathe()

/** @param {number} x @returns {number} a hash of 32 bits (Wellons' lowbias32) */
function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

/** @param {Input} input @returns {Promise<ArrayBuffer>} its elements */
async function drawn({ dtype, count, start, low, high }) {
  const integers = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    integers[i] = low + (mix(i + start) % (high - low + 1));
    if (i % CHUNK === CHUNK - 1) await breathe();
  }
  return /** @type {ArrayBuffer} */ (HostArray.from(integers, { dtype }).data.buffer);
}

/** @param {Uint8Array | Uint16Array | Uint32Array} bits of the elements, 64-bit ones as two words @returns {number} a 32-bit hash of all elements and their positions */
function fingerprint(bits) {
  let sum = 0;
  for (let i = 0; i < bits.length; i++) sum = (sum + mix(bits[i] ^ mix(i))) >>> 0;
  return sum;
}

/** A stage of such a ladder: a kernel whose label distinguishes it on the ladder. */
export class Rung extends Kernel {
  get label() {
    return this.bundle.core.label_of(this.of);
  }
}

/** A problem whose result is known. */
export class PreparedCase extends Inputs {
  /** @param {Device} device @param {Known} known @param {Known[]} others problems of the same ladder, for probes */
  constructor(device, known, others) {
    super(device, known.problem, async (result) => judged(result, known.fingerprint));
    this.known = known;
    this.others = others;
  }

  get rungs() {
    const { bundle, choices, core } = this.device;
    return this.known.kernels.map((kernel) => new Rung(bundle, core.fitted(kernel, this.of, choices.now())));
  }

  /** The stages of the ladder: of kernels with equal labels, for different subgroup sizes, the first that can run. @returns {Rung[]} */
  get stages() {
    const { bundle, choices, core } = this.device;
    const all = core.rungs(this.known.kernels, this.of, choices.now());
    return all.map((/** @type {Python} */ kernel) => new Rung(bundle, kernel));
  }

  /** Generate the inputs, which are in the order of the problem's buffers, and upload them. */
  load() {
    const extents = this.of.buffers();
    const make = async (/** @type {[number, Input]} */ [i, input]) =>
      filled(this.device, await drawn(input), extents[i]);
    return this.fill(this.known.inputs.entries(), make);
  }

  /** The smaller problems of the ladder. */
  probes() {
    const { flops, dtype } = this.problem;
    return this.others
      .map((known) => new PreparedCase(this.device, known, []))
      .filter(({ problem }) => problem.flops < flops && problem.dtype === dtype)
      .sort((x, y) => x.problem.flops - y.problem.flops);
  }

  /** @param {Kernel} kernel whose stage has other settings for this problem */
  openEmpty(kernel) {
    const name = this.device.core.label_of(kernel.of);
    return super.openEmpty(this.stages.find(({ label }) => label === name) ?? kernel);
  }
}

/** @param {HostArray} result @param {number} expected fingerprint @returns {Verdict} */
function judged({ data }, expected) {
  /** @type {any} */
  const Words = [Uint8Array, Uint16Array, Uint32Array][Math.min(data.BYTES_PER_ELEMENT, 4) >> 1];
  const found = fingerprint(new Words(data.buffer, data.byteOffset, data.byteLength / Words.BYTES_PER_ELEMENT));
  if (found === expected) return { wrong: null, max_error: 0, error_bound: 0 };
  const hex = (/** @type {number} */ value) => value.toString(16).padStart(8, "0");
  const wrong = `the result differs from Python's: its fingerprint is ${hex(found)}, not ${hex(expected)}`;
  return { wrong, max_error: null, error_bound: 0 };
}
