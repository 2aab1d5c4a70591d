/**
 * Plans: the steps of a call – the arrays that it allocates and the dispatches that it queues – are recorded once, and
 * replayed when the call is repeated. They depend on the options and on the layouts of the arrays, not on their contents
 * or addresses.
 */

import { checkOptions } from "../calls/options.js";
import { ProblemError } from "../errors.js";
import { ELEMENTS, HostArray, checkedShape, elementType, sizeOf, zeros } from "../host.js";
import { DeviceArray, Storage, isResident } from "./array.js";

/** @import { ElementType, HostData } from "../host.js" */
/** @import { Engine as Device } from "./engine.js" */
/** @import { Kernel, Problem } from "./launch.js" */
/** @import { Launch } from "./submissions.js" */
/** The name of a dtype, or a translated `DType`. @typedef {ElementType | {name: ElementType}} AnyType */
/** The steps of a call, which get its operands and its options. @typedef {(call: Call, ...given: any[]) => Promise<any>} Body */
/** A recorded launch: its kernel, its problem, and the numbers of its buffers. @typedef {{token: number, kernel: Kernel, problem: Problem, numbers: number[]}} Queued */

/** @param {AnyType} dtype @returns {ElementType} */
const nameOf = (dtype) => (typeof dtype === "string" ? elementType(dtype) : dtype.name);

/** A call in progress, which records its steps. Buffers are numbered: those of its operands first, then those that it allocates. */
export class Call {
  /** @type {Queued[]} */
  steps = [];
  complete = true; // whether replaying the steps repeats the call completely
  /** @type {Kernel} the kernel to run, if the call names one */
  kernel;
  /** @type {DeviceArray | undefined} */
  #sums;
  /** @type {DeviceArray[]} */
  #owned = [];

  /** @param {Device} device @param {DeviceArray[]} operands */
  constructor(device, operands) {
    this.device = device;
    this.devices = [device]; // for translated steps
    this.core = device.core;
    this.storages = [...new Set(operands.map(({ storage }) => storage))];
    this.operands = this.storages.length;
  }

  /** @param {readonly number[]} shape @param {AnyType} dtype @returns {Promise<DeviceArray>} an array with arbitrary contents */
  async empty(shape, dtype) {
    const name = nameOf(dtype);
    const nbytes = sizeOf(checkedShape(shape)) * ELEMENTS[name].itemsize;
    const storage = new Storage(this.device, await this.device.pool.take(nbytes), nbytes);
    this.storages.push(storage);
    return new DeviceArray(storage, shape, name);
  }

  /** Free an array at the end of the call. @template {DeviceArray} T @param {T} array @returns {T} the array */
  own(array) {
    this.#owned.push(array);
    return array;
  }

  /** @param {DeviceArray | HostData} x @returns {DeviceArray | HostArray} the operand, still on its side; throws for an array that was freed or is on another device */
  data(x) {
    if (!(x instanceof DeviceArray)) return HostArray.from(x);
    if (x.device !== this.device)
      throw new ProblemError("the operands live on different devices; copy one: device.array(await x.read())");
    return x.storage && x;
  }

  /** @param {DeviceArray | HostArray} x @param {AnyType} [dtype] @returns {Promise<DeviceArray>} on the device, in that dtype */
  async array(x, dtype = x.dtype) {
    if (x instanceof DeviceArray && x.dtype === nameOf(dtype)) return x;
    this.complete = false;
    const host = x instanceof DeviceArray ? await x.read() : x;
    return this.own(await this.device.array(host, { dtype: nameOf(dtype) }));
  }

  /** @param {DeviceArray} x @returns {Promise<HostArray>} its elements in host memory */
  read(x) {
    this.complete = false;
    return x.read();
  }

  /** Allocate the result, on the device if one of the operands is there. @param {readonly number[]} shape @param {AnyType} dtype @param {...unknown} operands @returns {Promise<DeviceArray | HostArray>} */
  async result(shape, dtype, ...operands) {
    return isResident(...operands) ? this.empty(shape, dtype) : zeros(shape, nameOf(dtype));
  }

  /** @param {number} size @param {AnyType} dtype @returns {Promise<DeviceArray>} an array for `size` partial sums, the same one while it is large enough */
  async sum(size, dtype) {
    if (!this.#sums || this.#sums.size < size) this.#sums = this.own(await this.empty([size], dtype));
    return this.#sums;
  }

  /** @param {string | undefined} dtype an option @returns {any} the translated `DType`, or null if it was not given */
  element(dtype) {
    return dtype === undefined ? null : this.core.DTYPES.get(elementType(dtype));
  }

  /** Queue a problem, with the call's kernel or the chosen one. @param {Problem} problem @param {...DeviceArray} arrays */
  run(problem, ...arrays) {
    return this.queue(problem, arrays, this.kernel);
  }

  /** Queue a problem, with the chosen kernel unless another one is given. @param {Problem} problem @param {DeviceArray[]} arrays @param {Kernel} [kernel] */
  async queue(problem, arrays, kernel = this.device.choices.chosen(problem)) {
    const launch = await this.device.launches.get(kernel, problem, arrays);
    await this.device.queue(kernel.name, launch);
    const numbers = arrays.map((array) => this.storages.indexOf(array.storage));
    if (numbers.includes(-1)) this.complete = false; // a buffer that is neither an operand's nor allocated by the call
    this.steps.push({ token: this.device.launches.token(kernel, problem), kernel, problem, numbers });
  }

  close() {
    for (const array of this.#owned) array.free();
  }
}

/** The recorded steps of a call, to be replayed on other arrays of the same layouts. */
class Plan {
  /** @param {Call} call that is finished @param {DeviceArray[]} arrays its operands @param {DeviceArray} result */
  constructor(call, arrays, result) {
    this.device = call.device;
    this.token = call.device.launches.next++; // not the plan itself: the cache of launches would keep forgotten plans
    this.steps = call.steps;
    const [given, made] = [call.storages.slice(0, call.operands), call.storages.slice(call.operands)];
    this.firsts = given.map((storage) => arrays.findIndex((array) => array.storage === storage));
    this.sizes = made.map((storage) => storage.nbytes);
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
    const launch = device.launches.kept(this.token, buffers);
    return launch ? this.#queued(launch, arrays, buffers) : this.#make(arrays, buffers);
  }

  /** Queue a launch of all steps. @param {Launch} launch @param {DeviceArray[]} arrays @param {GPUBuffer[]} buffers @returns {DeviceArray} the result */
  #queued(launch, arrays, buffers) {
    const { device } = this;
    device.submissions.queue(launch);
    for (let n = this.firsts.length; n < buffers.length; n++)
      if (n !== this.result) device.pool.give(buffers[n], this.sizes[n - this.firsts.length]);
    if (this.same >= 0) return arrays[this.same];
    const { shape, dtype, strides, offset } = this.like;
    const nbytes = this.sizes[this.result - this.firsts.length]; // undefined for an operand
    const own = nbytes === undefined ? null : new Storage(device, buffers[this.result], nbytes);
    const storage = own ?? arrays[this.firsts[this.result]].storage;
    const result = new DeviceArray(storage, shape, dtype, strides, offset);
    result.knownSignature = this.signature;
    return result;
  }

  /** Allocate missing buffers, prepare missing launches, and queue all steps, as one launch that is kept. @param {DeviceArray[]} arrays @param {GPUBuffer[]} buffers @returns {Promise<DeviceArray>} */
  async #make(arrays, buffers) {
    const { device } = this;
    try {
      for (const nbytes of this.sizes.slice(buffers.length - this.firsts.length))
        buffers.push(await device.pool.take(nbytes));
      const all = []; // held here: the cache may be cleared meanwhile, and a plan may have more launches than it holds
      for (const { token, kernel, problem, numbers } of this.steps) {
        const these = numbers.map((n) => buffers[n]);
        const known = device.launches.kept(token, these);
        all.push(...(known ?? (await device.launches.prepare(token, kernel, problem, these))));
      }
      device.launches.keep(this.token, buffers, all);
      return this.#queued(all, arrays, buffers);
    } catch (error) {
      for (const buffer of buffers.slice(this.firsts.length)) device.pool.give(buffer);
      throw error;
    }
  }
}

const MAX_PLANS = 1024;

/**
 * The cache key of a call.
 * @param {string} name @param {unknown[]} operands @param {Record<string, any>} options @param {DeviceArray[]} arrays the arrays found are appended
 * @returns {string} equal for calls with the same plan; "" if an operand or option is in host memory, whose contents a plan would not see
 */
function keyOf(name, operands, options, arrays) {
  let key = name;
  for (const operand of operands) {
    const part = partOf(operand, arrays);
    if (!part) return "";
    key += part;
  }
  if (typeof options !== "object" || options === null) return "";
  for (const option in options) {
    const value = options[option];
    if (value === undefined) continue;
    const part = Array.isArray(value) ? listOf(value) : partOf(value, arrays);
    if (!part) return "";
    key += `|${option}${part}`;
  }
  for (let i = 1; i < arrays.length; i++) {
    const same = arrays.findIndex((array) => array.shares(arrays[i]));
    if (same < i) key += `|${i}=${same}`;
  }
  return key;
}

/** @param {unknown} value neither an object nor null @returns {string} equal for equal values of one type only; -0 differs from 0 */
function plain(value) {
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  return typeof value === "string" ? JSON.stringify(value) : `${typeof value} ${String(value)}`;
}

/** @param {unknown[]} list @returns {string} the part of the key for an option that is a list; "" if it holds objects */
function listOf(list) {
  return list.some((value) => typeof value === "object") ? "" : `[${list.map(plain)}]`;
}

/** @param {any} value @param {DeviceArray[]} arrays @returns {string} the part of the key for one operand or option; "" if it is in host memory */
function partOf(value, arrays) {
  if (value instanceof DeviceArray) {
    arrays.push(value);
    return ` ${value.signature}`;
  }
  if (typeof value !== "object") return `=${plain(value)}`;
  if (value === null) return "=null";
  const parts = (value.parts ?? []).map((/** @type {any} */ part) => partOf(part, arrays));
  return value.kind !== undefined && parts.every(Boolean) ? ` ${value.kind}${parts.join("")}` : "";
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
   * Make a call: replay its plan if all its arrays are on the device and a call with the same key was recorded, else run
   * `body` and record it.
   * @param {string} name @param {readonly string[]} known names of its options
   * @param {unknown[]} operands arrays, quantised weights, or the names of operations
   * @param {Record<string, any>} options @param {Body} body
   * @returns {any}
   */
  call(name, known, operands, options, body) {
    /** @type {DeviceArray[]} */
    const arrays = [];
    const key = keyOf(name, operands, options, arrays);
    const plan = this.#kept.get(key);
    if (plan) return plan.run(arrays);
    checkOptions(name, options, known); // the options of a plan were checked when it was recorded
    return this.#record(key, arrays, (call) => body(call, ...operands, options));
  }

  /** Forget all plans, when the steps of a call may have changed. */
  clear() {
    this.#kept.clear();
  }

  /** @param {string} key "" for a call without a plan @param {DeviceArray[]} arrays @param {(call: Call) => Promise<any>} body */
  async #record(key, arrays, body) {
    this.device.guard.alive();
    const call = new Call(this.device, arrays);
    try {
      const result = await body(call);
      if (key && call.complete && result instanceof DeviceArray && call.storages.includes(result.storage)) {
        if (this.#kept.size >= MAX_PLANS) this.#kept.delete(/** @type {string} */ (this.#kept.keys().next().value));
        this.#kept.set(key, new Plan(call, arrays, result));
        this.device.launches.reserve(call.steps.length);
      }
      return result;
    } finally {
      call.close();
    }
  }
}
