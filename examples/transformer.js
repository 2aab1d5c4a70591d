/**
 * A decoder of GPT-2's shape (Radford et al., 2019) by public calls of webmm.js, as transformer.py is by those of Python.
 * transformer.html is its form; without one, import what is exported here.
 */

import { BlockWeights, Device, Epilogue, HostArray, KVCache, ProblemError, quantizeBlocks } from "./webmm.js";

export const FORMATS = ["float32", "float16", "8bit", "4bit"];
const MATRICES = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]; // of a layer
const STORED = { F32: ["float32", Float32Array], F16: ["float16", Uint16Array] }; // types in a safetensors file
const COPY = new Epilogue("x");

/** Return the shapes of all weights, by GPT-2's names. */
function shapes({ width, layers, vocabulary, context }) {
  const found = { "wte.weight": [vocabulary, width], "wpe.weight": [context, width] };
  const outputs = [3 * width, width, 4 * width, width];
  for (let i = 0; i < layers; i++) {
    for (const [at, name] of MATRICES.entries()) {
      found[`h.${i}.${name}.weight`] = [name === "mlp.c_proj" ? 4 * width : width, outputs[at]];
      found[`h.${i}.${name}.bias`] = [outputs[at]];
    }
  }
  for (const norm of ["ln_f", ...Array.from({ length: 2 * layers }, (_, i) => `h.${i >> 1}.ln_${1 + (i % 2)}`)])
    for (const part of ["weight", "bias"]) found[`${norm}.${part}`] = [width];
  return found;
}

/** Return random weights with GPT-2's names and shapes; those of norms are near 1. */
export function randomWeights({ width = 64, layers = 2, vocabulary = 97, context = 64, seed = 1 } = {}) {
  let state = seed;
  const uniform = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const weights = {};
  for (const [name, shape] of Object.entries(shapes({ width, layers, vocabulary, context }))) {
    const mean = /ln_.*weight$/.test(name) ? 1 : 0;
    const size = shape.reduce((product, length) => product * length);
    const data = Float32Array.from({ length: size }, () => mean + normal() / Math.sqrt(width));
    weights[name] = HostArray.from(data, { shape });
  }
  return weights;
}

/** Return the weights in a safetensors file, a Blob; throws ProblemError if it cannot be read, or is not of this model. */
export async function load(file) {
  const weights = {};
  try {
    const length = Number(new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true));
    const header = JSON.parse(await file.slice(8, 8 + length).text());
    for (const [full, { dtype, shape, data_offsets: at }] of Object.entries(header)) {
      const name = full.replace(/^transformer\./, "");
      if (name === "__metadata__" || /\.attn\.(masked_)?bias$/.test(name)) continue; // masks that some files have
      if (!STORED[dtype]) throw new TypeError(`${name} is ${dtype}; F32 and F16 are read`);
      const [own, Numbers] = STORED[dtype];
      const bytes = await file.slice(8 + length + at[0], 8 + length + at[1]).arrayBuffer();
      weights[name] = HostArray.from(new Numbers(bytes), { shape, dtype: own });
    }
  } catch (error) {
    throw new ProblemError(`cannot read ${file.name ?? "the file"}: ${error.message}`);
  }
  const [vocabulary = 0, width = 0] = weights["wte.weight"]?.shape ?? [];
  const layers = Math.max(1, Object.keys(weights).filter((name) => name.endsWith("attn.c_attn.weight")).length);
  const expected = shapes({ width, layers, vocabulary, context: weights["wpe.weight"]?.shape[0] ?? 0 });
  for (const [name, shape] of Object.entries(expected))
    if (!weights[name]?.size || String(weights[name].shape) !== String(shape))
      throw new ProblemError(`${name} must be floats of shape [${shape}], with GPT-2's names and shapes`);
  return Object.fromEntries(Object.keys(expected).map((name) => [name, weights[name]]));
}

/** The model on a device. */
export class Transformer {
  /** Copy the weights to a device; `form` is one of FORMATS, in which the matrices of the layers are stored. */
  static async open(gpu, weights, heads, form = "float32") {
    const model = new Transformer();
    const dtype = form === "float16" ? "float16" : "float32";
    const layers = Object.keys(weights).filter((name) => name.endsWith("attn.c_attn.weight")).length;
    const [context, width] = weights["wpe.weight"].shape;
    if (!(heads >= 1) || width % heads) throw new ProblemError(`${heads} heads do not divide a width of ${width}`);
    Object.assign(model, { gpu, heads, dtype, layers, context, width, arrays: {} });
    // Rows of these two are looked up on the host.
    [model.words, model.places] = ["wte.weight", "wpe.weight"].map((name) => weights[name].as(dtype).floats());
    for (const [name, x] of Object.entries(weights)) {
      const quantised = form.endsWith("bit") && MATRICES.some((each) => name.endsWith(`${each}.weight`));
      model.arrays[name] = await (quantised
        ? quantizeBlocks(x, { bits: parseInt(form) }).to(gpu)
        : gpu.array(x.as(dtype)));
    }
    return model;
  }

  /** Return an empty cache for `batch` sequences of up to `capacity` tokens. */
  cache(batch, capacity) {
    const { gpu, layers, heads, dtype, context } = this;
    if (capacity > context)
      throw new ProblemError(`the model has ${context} positions, too few for ${capacity} tokens`);
    return KVCache.open(gpu, { layers, batch, heads, capacity, width: this.width / heads, dtype });
  }

  /**
   * Return the logits (batch, tokens, vocabulary) that follow each of `tokens`, lists of equal length, as an array on the
   * device, to be freed. The tokens come after those in `cache`, to which their keys and values are added. With `last`,
   * only the logits that follow the last one of each sequence, (batch, 1, vocabulary).
   */
  async logits(tokens, cache, { last = false } = {}) {
    const { gpu, heads, width, arrays } = this;
    const [batch, count] = [tokens.length, tokens[0].length];
    const made = [];
    const kept = async (promise) => made[made.push(await promise) - 1]; // until the end of this call
    try {
      let x = await kept(gpu.array(this.#embedded(tokens, cache.length(0))));
      for (let i = 0; i < this.layers; i++) {
        const layer = `h.${i}.`;
        const qkv = await kept(this.#linear(`${layer}attn.c_attn`, await kept(this.#norm(`${layer}ln_1`, x))));
        const parts = qkv.reshape(batch, count, 3, heads, -1).transpose(2, 0, 3, 1, 4);
        const [q, k, v] = [0, 1, 2].map((part) => parts.slice(part));
        const attended = await kept(gpu.attention(q, ...(await cache.append(i, k, v)), { causal: "end" }));
        const merged = (await kept(gpu.map(attended.transpose(0, 2, 1, 3), COPY))).reshape(-1, width);
        x = await kept(this.#linear(`${layer}attn.c_proj`, merged, "x + b + r", { r: x }));
        const normed = await kept(this.#norm(`${layer}ln_2`, x));
        const hidden = await kept(this.#linear(`${layer}mlp.c_fc`, normed, "gelu_tanh(x + b)"));
        x = await kept(this.#linear(`${layer}mlp.c_proj`, hidden, "x + b + r", { r: x }));
      }
      const chosen = last ? x.reshape(batch, count, width).slice(null, -1) : x;
      const normed = await kept(this.#norm("ln_f", chosen));
      const logits = await gpu.matmul(normed, arrays["wte.weight"], { transposeB: true, outDtype: "float32" });
      return logits.reshape(batch, last ? 1 : count, -1);
    } finally {
      for (const each of made) each.free();
    }
  }

  /** Return the `count` tokens that are most likely to follow each prompt, one after another; `each` is told every one. */
  async generate(prompts, count, each = () => {}) {
    if (!(count >= 1)) throw new ProblemError(`the number of tokens to generate must be at least 1, not ${count}`);
    if (!prompts[0]?.length || prompts.some((row) => row.length !== prompts[0].length))
      throw new ProblemError("prompts must be lists of equal length, of at least one token");
    const cache = await this.cache(prompts.length, prompts[0].length + count);
    const found = prompts.map(() => []);
    try {
      for (let next = prompts; found[0].length < count;) {
        const logits = await this.logits(next, cache, { last: true });
        const best = await this.gpu.reduce(logits.slice(null, 0), "argmax", { axis: -1 });
        next = Array.from((await best.read()).data, (token) => [token]);
        for (const array of [logits, best]) array.free();
        for (const [i, [token]] of next.entries()) found[i].push(token);
        each(found);
      }
    } finally {
      cache.free();
    }
    return found;
  }

  free() {
    for (const array of Object.values(this.arrays)) array.free();
  }

  /** The sums of the tokens' rows and their positions', (batch · tokens, width) in host memory. */
  #embedded(tokens, first) {
    const { words, places, width } = this;
    const vocabulary = words.length / width;
    const wrong = tokens.flat().find((token) => !Number.isInteger(token) || token < 0 || token >= vocabulary);
    if (wrong !== undefined) throw new ProblemError(`token ${wrong} is out of range for ${vocabulary} words`);
    const rows = tokens.flatMap((row) => row.map((token, t) => [token * width, (first + t) * width]));
    const data = Float32Array.from({ length: rows.length * width }, (_, i) => {
      const [word, place] = rows[Math.floor(i / width)];
      return words[word + (i % width)] + places[place + (i % width)];
    });
    return HostArray.from(data, { shape: [rows.length, width] }).as(this.dtype);
  }

  #norm(name, x) {
    return this.gpu.layerNorm(x, { weight: this.arrays[`${name}.weight`], bias: this.arrays[`${name}.bias`] });
  }

  /** `then` of the elements of x @ weight, with the bias as b: in the pass that stores the product. */
  #linear(name, x, then = "x + b", more = {}) {
    const weight = this.arrays[`${name}.weight`];
    const activation = new Epilogue(then, { b: this.arrays[`${name}.bias`], ...more });
    return weight instanceof BlockWeights
      ? this.gpu.qmatmulWeights(x, weight, { activation })
      : this.gpu.matmul(x, weight, { activation });
  }
}

/** Generate what the form asks for, and show it, or the error. */
async function answer(form, output) {
  const given = Object.fromEntries(new FormData(form));
  const prompt = given.prompt
    .trim()
    .split(/[\s,]+/)
    .map((word) => (word ? Number(word) : NaN));
  let gpu, model;
  output.textContent = "…";
  try {
    gpu = await Device.open();
    const weights = given.weights.size ? await load(given.weights) : randomWeights();
    model = await Transformer.open(gpu, weights, Number(given.heads), given.format);
    const times = [performance.now()];
    await model.generate([prompt], Number(given.tokens), ([found]) => {
      times.push(performance.now());
      output.textContent = `tokens: ${found.join(" ")}`;
    });
    const each = (times.at(-1) - times[1]) / (times.length - 2); // the first one compiles
    output.textContent +=
      times.length > 2 ? `\n${each.toFixed(2)} ms per token after the first, on ${gpu.info.name}` : "";
  } catch (error) {
    output.textContent = `${error.name}: ${error.message}`;
  } finally {
    model?.free();
    gpu?.close();
  }
}

const form = globalThis.document?.querySelector("form#transformer");
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  answer(form, form.querySelector("output")).finally(() => (button.disabled = false));
});
