// @ts-check
/**
 * Calls, and those that were made before: what one did – the arrays that it made, the dispatches that it queued – is done
 * again. What a call does depends on its arguments and on how its arrays lie, not on what is in them or where.
 */

import { checkOptions } from "../calls/options.js";
import { ProblemError } from "../errors.js";
import { ELEMENTS, HostArray, checkedShape, elementType, sizeOf } from "../host.js";
import { DeviceArray, Storage } from "./array.js";
import { ByBuffers } from "./launch.js";

/** @typedef {import("../host.js").ElementType} ElementType */
/** @typedef {import("../host.js").HostData} HostData */
/** @typedef {import("./engine.js").Engine} Device */
/** @typedef {import("./launch.js").Kernel} Kernel */
/** @typedef {import("./launch.js").Problem} Problem */
/** @typedef {import("./submissions.js").Launch} Launch */
/** A dispatch: which kernel computes which problem, and the numbers of its buffers. @typedef {{token: number, kernel: Kernel, problem: Problem, numbers: number[]}} Queued */

/** One call under way: buffers are numbered, those of its operands first, then those that it makes. */
export class Call {
  /** @type {Storage[]} */
  storages = [];
  /** @type {Queued[]} */
  steps = [];
  complete = true; // whether doing the steps again is all that the call does
  /** @type {DeviceArray[]} */
  #owned = [];

  /** @param {Device} device @param {DeviceArray[]} operands */
  constructor(device, operands) {
    this.device = device;
    this.core = device.core;
    for (const { storage } of operands) if (!this.storages.includes(storage)) this.storages.push(storage);
    this.operands = this.storages.length;
  }

  /** @param {readonly number[]} shape @param {ElementType} dtype @returns {Promise<DeviceArray>} an array of any contents */
  async empty(shape, dtype) {
    const nbytes = sizeOf(checkedShape(shape)) * ELEMENTS[elementType(dtype)].itemsize;
    const storage = new Storage(this.device, await this.device.pool.take(nbytes), nbytes);
    this.storages.push(storage);
    return new DeviceArray(storage, shape, dtype);
  }

  /** @template {DeviceArray} T @param {T} array @returns {T} to be freed when the call is over */
  own(array) {
    this.#owned.push(array);
    return array;
  }

  /** @param {DeviceArray | HostData} x @returns {DeviceArray | HostArray} where it is */
  data(x) {
    if (!(x instanceof DeviceArray)) return HostArray.from(x);
    if (x.device !== this.device)
      throw new ProblemError("the operands live on different devices; copy one: device.array(await x.read())");
    return x.storage && x;
  }

  /** @param {DeviceArray | HostArray} x @param {ElementType} [dtype] @returns {Promise<DeviceArray>} on the device */
  async array(x, dtype = x.dtype) {
    if (x instanceof DeviceArray && x.dtype === dtype) return x;
    this.complete = false;
    const host = x instanceof DeviceArray ? await x.read() : x;
    return this.own(await this.device.array(host, { dtype }));
  }

  /** @param {DeviceArray} x @returns {Promise<HostArray>} its elements in host memory */
  read(x) {
    this.complete = false;
    return x.read();
  }

  /** @param {readonly number[]} shape @param {ElementType} dtype @param {boolean} resident @returns {Promise<DeviceArray | HostArray>} for the result */
  async result(shape, dtype, resident) {
    return resident ? this.empty(shape, dtype) : new HostArray(ELEMENTS[dtype].of(sizeOf(shape)), shape, dtype);
  }

  /** @param {string | undefined} name @param {ElementType} otherwise @returns {ElementType} */
  dtype(name, otherwise) {
    return name === undefined ? otherwise : elementType(name);
  }

  /** @param {ElementType} dtype @returns {any} what Python calls a DType */
  element(dtype) {
    return this.core.DTYPES.get(dtype);
  }

  /**
   * Queue a problem, by the kernel chosen for it unless one is named.
   * @param {Problem} problem @param {DeviceArray[]} arrays @param {Kernel} [kernel]
   */
  async run(problem, arrays, kernel = this.device.chosen(problem)) {
    const launch = await this.device.launches.get(kernel, problem, arrays);
    await this.device.queue(kernel.name, launch);
    const numbers = arrays.map((array) => this.storages.indexOf(array.storage));
    if (numbers.includes(-1)) this.complete = false; // memory that neither came nor was made
    this.steps.push({ token: this.device.launches.token(kernel, problem), kernel, problem, numbers });
  }

  /** Copy the elements of one dense array to another of the same type and size. @param {DeviceArray} from @param {DeviceArray} to */
  copy(from, to) {
    this.complete = false;
    this.device.flush();
    const encoder = this.device.wgpu.createCommandEncoder();
    const { itemsize } = ELEMENTS[from.dtype];
    encoder.copyBufferToBuffer(from.buffer, from.offset * itemsize, to.buffer, to.offset * itemsize, from.nbytes);
    this.device.wgpu.queue.submit([encoder.finish()]);
  }

  close() {
    for (const array of this.#owned) array.free();
  }
}

const MAX_LAUNCHES = 64; // kept per plan: results take turns in several buffers

/** How to do a call again on other arrays that lie alike. */
class Plan {
  #launches = new ByBuffers();
  #dropped = 0;

  /** @param {Call} call @param {DeviceArray[]} arrays its operands @param {DeviceArray} result */
  constructor(call, arrays, result) {
    this.device = call.device;
    this.steps = call.steps;
    this.firsts = call.storages
      .slice(0, call.operands)
      .map((storage) => arrays.findIndex((array) => array.storage === storage));
    this.sizes = call.storages.slice(call.operands).map((storage) => storage.nbytes);
    this.result = call.storages.indexOf(result.storage);
    this.same = arrays.indexOf(result);
    this.signature = result.signature;
    this.like = { shape: result.shape, dtype: result.dtype, strides: result.strides, offset: result.offset };
  }

  /** @param {DeviceArray[]} arrays @returns {DeviceArray | Promise<DeviceArray>} the result of the call */
  run(arrays) {
    const { device } = this;
    device.guard.alive();
    const buffers = [];
    for (const first of this.firsts) buffers.push(arrays[first].buffer);
    for (const nbytes of this.sizes) {
      const idle = device.pool.idle(nbytes);
      if (!idle) return this.#make(arrays, buffers);
      buffers.push(idle);
    }
    return this.#queue(arrays, buffers) ?? this.#make(arrays, buffers);
  }

  /** @param {GPUBuffer[]} buffers @returns {Launch | null} the steps on these, one after the other; null where a launch is not kept */
  #launch(buffers) {
    const { launches } = this.device;
    if (this.#dropped !== launches.dropped || this.#launches.size >= MAX_LAUNCHES) this.#launches.clear();
    this.#dropped = launches.dropped;
    const known = this.#launches.get(buffers);
    if (known) return known;
    const all = [];
    for (const { token, numbers } of this.steps) {
      const launch = launches.kept(
        token,
        numbers.map((n) => buffers[n]),
      );
      if (!launch) return null;
      all.push(...launch);
    }
    this.#launches.set(buffers, all);
    return all;
  }

  /** @param {DeviceArray[]} arrays @param {GPUBuffer[]} buffers @returns {DeviceArray | null} nothing done where a launch is not kept */
  #queue(arrays, buffers) {
    const { device } = this;
    const launch = this.#launch(buffers);
    if (!launch) return null;
    device.submissions.queue(launch);
    for (let n = this.firsts.length; n < buffers.length; n++)
      if (n !== this.result) device.pool.give(buffers[n], this.sizes[n - this.firsts.length]);
    if (this.same >= 0) return arrays[this.same];
    const { shape, dtype, strides, offset } = this.like;
    const nbytes = this.sizes[this.result - this.firsts.length];
    const storage =
      nbytes === undefined
        ? arrays[this.firsts[this.result]].storage
        : new Storage(device, buffers[this.result], nbytes);
    const result = new DeviceArray(storage, shape, dtype, strides, offset);
    result.knownSignature = this.signature;
    return result;
  }

  /** As `#queue()`, but makes what there is not: buffers and launches. @param {DeviceArray[]} arrays @param {GPUBuffer[]} buffers @returns {Promise<DeviceArray>} */
  async #make(arrays, buffers) {
    const { device } = this;
    try {
      for (const nbytes of this.sizes.slice(buffers.length - this.firsts.length))
        buffers.push(await device.pool.take(nbytes));
      for (;;) {
        for (const { token, kernel, problem, numbers } of this.steps) {
          const these = numbers.map((n) => buffers[n]);
          if (!device.launches.kept(token, these)) await device.launches.prepare(token, kernel, problem, these);
        }
        const result = this.#queue(arrays, buffers);
        if (result) return result; // else one of them was dropped meanwhile
      }
    } catch (error) {
      for (const buffer of buffers.slice(this.firsts.length)) device.pool.give(buffer);
      throw error;
    }
  }
}

const MAX_PLANS = 1024;

/**
 * @param {string} name @param {unknown[]} operands @param {Record<string, any>} options @param {DeviceArray[]} arrays which are added here
 * @returns {string} the same for calls that do the same; "" where something lies in the host's memory: what it holds is not known beforehand
 */
function keyOf(name, operands, options, arrays) {
  let key = name;
  for (const operand of operands) {
    const its = partOf(operand, arrays);
    if (!its) return "";
    key += its;
  }
  if (typeof options !== "object" || options === null) return "";
  for (const option in options) {
    const value = options[option];
    if (value === undefined) continue;
    const its = Array.isArray(value) ? `[${value}` : partOf(value, arrays);
    if (!its) return "";
    key += `|${option}${its}`;
  }
  for (let i = 1; i < arrays.length; i++) {
    const same = arrays.findIndex((array) => array.shares(arrays[i]));
    if (same < i) key += `|${i}=${same}`;
  }
  return key;
}

/** @param {any} value @param {DeviceArray[]} arrays @returns {string} */
function partOf(value, arrays) {
  if (value instanceof DeviceArray) {
    arrays.push(value);
    return ` ${value.signature}`;
  }
  if (typeof value !== "object") return `=${typeof value === "number" ? "" : typeof value}${value}`;
  if (value === null) return "=null";
  const parts = (value.parts ?? []).map((/** @type {any} */ part) => partOf(part, arrays));
  return parts.length && parts.every(Boolean) ? ` ${value.kind}${parts.join("")}` : "";
}

/** The plans of one device. */
export class Plans {
  /** @type {Map<string, Plan>} */
  #kept = new Map();

  /** @param {Device} device */
  constructor(device) {
    this.device = device;
  }

  /**
   * Make a call, as it was made before where all its arrays are on the device and lie as those did then.
   * @param {string} name @param {readonly string[]} known options
   * @param {unknown[]} operands arrays, quantised weights, or the names of operations
   * @param {Record<string, any>} options @param {(call: Call) => Promise<any>} body
   * @returns {any}
   */
  call(name, known, operands, options, body) {
    /** @type {DeviceArray[]} */
    const arrays = [];
    const key = keyOf(name, operands, options, arrays);
    const plan = this.#kept.get(key);
    if (plan) return plan.run(arrays);
    checkOptions(name, options, known); // those of a plan were checked when it was made
    return this.#record(key, arrays, body);
  }

  /** Forget them all: what calls do may have changed. */
  clear() {
    this.#kept.clear();
  }

  /** @param {string} key "" for a call that is not to be kept @param {DeviceArray[]} arrays @param {(call: Call) => Promise<any>} body */
  async #record(key, arrays, body) {
    this.device.guard.alive();
    const call = new Call(this.device, arrays);
    try {
      const result = await body(call);
      if (key && call.complete && result instanceof DeviceArray && call.storages.includes(result.storage)) {
        if (this.#kept.size >= MAX_PLANS) this.#kept.delete(/** @type {string} */ (this.#kept.keys().next().value));
        this.#kept.set(key, new Plan(call, arrays, result));
      }
      return result;
    } finally {
      call.close();
    }
  }
}
