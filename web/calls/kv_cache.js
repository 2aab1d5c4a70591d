/** `KVCache`: the keys and values of earlier tokens, kept on a device for attention, as in webmm/calls/kv_cache.py. */

import { DeviceArray } from "../engine/array.js";
import { Engine } from "../engine/engine.js";
import { ProblemError } from "../errors.js";
import { HostArray } from "../host.js";
import { expressions } from "./elements.js";
import { checkOptions } from "./options.js";

/** @import { HostData } from "../host.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { Data } from "./operands.js" */
/**
 * Sizes of a cache. `heads` are those of the keys, which may be fewer than those of the queries; `width` is the length of a
 * key, and of a value unless `valueWidth` is given. All but `dtype` are numbers from 1 on.
 * @typedef {{layers: number, batch: number, heads: number, capacity: number, width: number, valueWidth?: number, dtype?: "float32" | "float16"}} CacheSizes
 */

const SIZES = /** @type {const} */ (["layers", "batch", "heads", "capacity", "width", "valueWidth"]);

/**
 * The keys and values of each layer of a model, for up to `capacity` tokens; `append()` adds those of new tokens.
 *
 *     const cache = await KVCache.open(gpu, { layers: 12, batch: 1, heads: 12, capacity: 1024, width: 64 });
 *     const y = await gpu.attention(q, ...(await cache.append(layer, k, v)), { causal: "end" });
 *
 * `keys()` and `values()` are views of the tokens appended so far, which `attention()` reads in place: nothing is copied when
 * they grow. A view that was taken earlier keeps its length. All memory is allocated at once, a buffer for the keys and one
 * for the values of each layer; `free()`, or the end of a block that declares the cache with `using`, releases it.
 */
export class KVCache {
  #core;
  #keys;
  #values;
  /** @type {number[]} */
  #lengths;

  /** Use `KVCache.open()`. @param {any} core @param {DeviceArray[]} keys of each layer @param {DeviceArray[]} values */
  constructor(core, keys, values) {
    this.#core = core;
    this.#keys = keys;
    this.#values = values;
    this.#lengths = keys.map(() => 0);
    this.device = keys[0].device;
    this.capacity = keys[0].shape[2];
  }

  /** @param {Engine} device @param {CacheSizes} sizes @returns {Promise<KVCache>} an empty cache; throws ProblemError for other sizes, MemoryLimitError if the device is out of memory */
  static async open(device, sizes) {
    if (!(device instanceof Engine))
      throw new ProblemError(`KVCache.open() takes a Device first, not ${typeof device}`);
    checkOptions("KVCache.open", sizes, [...SIZES, "dtype"]);
    const core = await expressions(device);
    const { layers, batch, heads, capacity, width, valueWidth = width, dtype = "float32" } = sizes;
    for (const name of SIZES) core.check_whole(name, { ...sizes, valueWidth }[name] ?? null, 1);
    device.core.check_floats("KVCache()", device.core.dtype_of(dtype));
    /** @type {DeviceArray[]} */
    const made = [];
    try {
      for (let i = 0; i < 2 * layers; i++)
        made.push(await device.empty([batch, heads, capacity, i < layers ? width : valueWidth], dtype));
    } catch (error) {
      for (const array of made) array.free();
      throw error;
    }
    return new KVCache(core, made.slice(0, layers), made.slice(layers));
  }

  /** The number of tokens of each layer. */
  get lengths() {
    return [...this.#lengths];
  }

  /** Bytes of all keys and values, empty places included. */
  get nbytes() {
    return [...this.#keys, ...this.#values].reduce((sum, x) => sum + x.nbytes, 0);
  }

  /** @param {number} layer @returns {number} its number of tokens */
  length(layer) {
    this.#core.check_layer(layer, this.#lengths.length);
    return this.#lengths[layer];
  }

  /** @param {number} layer @returns {DeviceArray} a view of its keys, (batch, heads, tokens, width) */
  keys(layer) {
    return this.#range(this.#keys, layer, 0, this.length(layer));
  }

  /** @param {number} layer @returns {DeviceArray} a view of its values, (batch, heads, tokens, width of a value) */
  values(layer) {
    return this.#range(this.#values, layer, 0, this.length(layer));
  }

  /**
   * Append keys and values of new tokens, and return `keys()` and `values()` with them. Views are read in place, such as
   * those of heads that were split by `x.reshape(b, t, h, d).transpose(0, 2, 1, 3)`. Await it before the next call that
   * appends to the same layer.
   * @param {number} layer @param {HostData | DeviceArray} k shape (batch, heads, new tokens, width) @param {HostData | DeviceArray} v
   * @returns {Promise<[DeviceArray, DeviceArray]>} throws ProblemError for other shapes and dtypes, and if the layer would hold more than `capacity` tokens; the cache is unchanged then
   */
  async append(layer, k, v) {
    const start = this.length(layer);
    const given = [k, v].map((x) => (x instanceof DeviceArray ? x : HostArray.from(x)));
    const tokens = this.#core.new_tokens(...given, this.#keys[layer].shape, this.#values[layer].shape);
    this.#core.check_room(layer, start, tokens, this.capacity);
    const into = [this.#keys, this.#values].map((of) => this.#range(of, layer, start, start + tokens));
    const body = (/** @type {Call} */ call, /** @type {Data[]} */ ...[k, v, keys, values]) =>
      this.#core.written(call, call.data(k), call.data(v), keys, values);
    await this.device.plans.call("KVCache.append", [], [...given, ...into], {}, body);
    this.#lengths[layer] = start + tokens;
    return [this.keys(layer), this.values(layer)];
  }

  /** Forget all tokens but the first `length` of each layer. @param {number} length throws ProblemError unless it is a number from 0 on */
  truncate(length) {
    this.#core.check_whole("length", length, 0);
    this.#lengths = this.#lengths.map((each) => Math.min(each, length));
  }

  /** Forget all tokens. */
  clear() {
    this.truncate(0);
  }

  /** Release the memory; freeing twice is harmless. */
  free() {
    for (const x of [...this.#keys, ...this.#values]) x.free();
  }

  /** Called at the end of a block that declares the cache with `using`. */
  [Symbol.dispose]() {
    this.free();
  }

  /** @param {DeviceArray[]} of @param {number} layer @param {number} start @param {number} stop @returns {DeviceArray} a view of these tokens */
  #range(of, layer, start, stop) {
    return of[layer].slice(null, null, [start, stop]);
  }
}
