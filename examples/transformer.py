"""A decoder of GPT-2's shape (Radford et al., 2019) by public calls of webmm: prefill, and decoding with a cache.

`python examples/transformer.py` generates tokens with random weights, `--weights model.safetensors --heads 12` with
those of a file in the format of GPT-2's published checkpoints; `--format` is float32, float16, 8bit or 4bit, and
`--profile` prints where the time of a token goes.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import rich
from numpy.typing import ArrayLike, NDArray

import webmm

Weights = dict[str, NDArray[Any]]
FORMATS = ("float32", "float16", "8bit", "4bit")
MATRICES = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")  # of a layer


def shapes(width: int, layers: int, vocabulary: int, context: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights, by GPT-2's names."""
    found: dict[str, tuple[int, ...]] = {"wte.weight": (vocabulary, width), "wpe.weight": (context, width)}
    outputs = dict(zip(MATRICES, (3 * width, width, 4 * width, width), strict=True))
    for layer in (f"h.{i}." for i in range(layers)):
        for name, n in outputs.items():
            k = 4 * width if name == "mlp.c_proj" else width
            found |= {f"{layer}{name}.weight": (k, n), f"{layer}{name}.bias": (n,)}
    for norm in ("ln_f", *(f"h.{i}.ln_{j}" for i in range(layers) for j in (1, 2))):
        found |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
    return found


def random_weights(width: int = 64, layers: int = 2, vocabulary: int = 97, context: int = 64, seed: int = 0) -> Weights:
    """Return weights with GPT-2's names and shapes; those of norms are near 1."""
    rng = np.random.default_rng(seed)
    weights: Weights = {}
    for name, shape in shapes(width, layers, vocabulary, context).items():
        mean = int("ln_" in name and name.endswith("weight"))
        weights[name] = mean + (rng.standard_normal(shape) / np.sqrt(width)).astype(np.float32)
    return weights


def load(path: str) -> Weights:
    """Return the weights in a safetensors file (`pip install safetensors`), without the masks that some files have.

    Raises ProblemError if it cannot be read, or is not of this model.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = {name.removeprefix("transformer."): x for name, x in load_file(path).items()}
    except (OSError, SafetensorError, AttributeError, KeyError) as error:  # the last two of types that NumPy lacks
        raise webmm.ProblemError(f"cannot read {path}: {error}") from error
    vocabulary, width = (*np.shape(found.get("wte.weight", ())), 0, 0)[:2]
    context = len(found.get("wpe.weight", ()))
    layers = max(1, sum(name.endswith("attn.c_attn.weight") for name in found))
    expected = shapes(width, layers, vocabulary, context)
    for name, shape in expected.items():
        x = found.get(name, np.empty(0, bool))
        if x.shape != shape or x.dtype.kind != "f" or not x.size:
            raise webmm.ProblemError(f"{path}: {name} must be floats of shape {shape}, with GPT-2's names and shapes")
    return {name: found[name] for name in expected}


class Transformer:
    """The model on a device; `form` is one of FORMATS, in which the matrices of the layers are stored."""

    def __init__(self, weights: Weights, heads: int, device: webmm.Device, form: str = "float32") -> None:
        self.device, self.heads = device, heads
        self.dtype = "float16" if form == "float16" else "float32"
        self.layers = sum(name.endswith("attn.c_attn.weight") for name in weights)
        self.context, self.width = weights["wpe.weight"].shape
        if heads < 1 or self.width % heads:
            raise webmm.ProblemError(f"{heads} heads do not divide a width of {self.width}")
        matrices = {f"h.{i}.{name}.weight" for i in range(self.layers) for name in MATRICES}
        self._places = device.array(np.arange(self.context, dtype=np.int32))
        self._arrays: dict[str, Any] = {}
        for name, x in weights.items():
            if name in matrices and form.endswith("bit"):
                self._arrays[name] = webmm.quantize_blocks(x, bits=int(form[0])).to(device)
            else:
                self._arrays[name] = device.array(x, self.dtype)

    def cache(self, batch: int, capacity: int) -> webmm.KVCache:
        """Return an empty cache for `batch` sequences of up to `capacity` tokens."""
        if capacity > self.context:
            raise webmm.ProblemError(f"the model has {self.context:,} positions, too few for {capacity:,} tokens")
        width = self.width // self.heads
        return webmm.KVCache(self.device, self.layers, batch, self.heads, capacity, width, self.dtype)

    def __call__(
        self,
        tokens: ArrayLike | webmm.Array,
        cache: webmm.KVCache,
        at: webmm.Array | None = None,
        last: bool = False,
    ) -> webmm.Array:
        """Return the logits (batch, tokens, vocabulary) that follow each of `tokens`, (batch, tokens), in float32.

        With `last`, only those that follow the last one of each sequence, (batch, 1, vocabulary).

        The tokens come after those in `cache`, to which their keys and values are added. Or the first of each sequence
        is at a place in `at`, an int32 array (batch,): then no size depends on it, and the call can be captured.
        """
        ids = tokens if isinstance(tokens, webmm.Array) else np.asarray(tokens)
        batch, count = ids.shape
        words = self._arrays["wte.weight"]
        if at is None:
            first, lengths = cache.length(0), None
            positions = self._places[first : first + count]
        else:
            positions, lengths = (at[:, None] + self._places[:count]).reshape(-1), at + count
        x = words.take(ids.reshape(-1), axis=0).reshape(batch, count, self.width)
        places = self._arrays["wpe.weight"].take(positions, axis=0).reshape(-1, count, self.width)
        x = (x + places).reshape(-1, self.width)
        for i in range(self.layers):
            layer = f"h.{i}."
            qkv = self._linear(layer + "attn.c_attn", self._norm(layer + "ln_1", x))
            q, k, v = qkv.reshape(batch, count, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
            attended = webmm.attention(q, *cache.append(i, k, v, at=at), causal="end", lengths=lengths)
            merged = attended.swapaxes(1, 2).reshape(-1, self.width)
            x = self._linear(layer + "attn.c_proj", merged, "x + b + r", r=x)
            hidden = self._linear(layer + "mlp.c_fc", self._norm(layer + "ln_2", x), "gelu_tanh(x + b)")
            x = self._linear(layer + "mlp.c_proj", hidden, "x + b + r", r=x)
        if last:
            x = x.reshape(batch, count, -1)[:, -1]
        logits = webmm.matmul(self._norm("ln_f", x), words.T, out_dtype="float32")
        return logits.reshape(batch, -1, len(words))

    def _norm(self, name: str, x: webmm.Array) -> webmm.Array:
        return webmm.layer_norm(x, self._arrays[f"{name}.weight"], self._arrays[f"{name}.bias"])

    def _linear(self, name: str, x: webmm.Array, then: str = "x + b", **more: webmm.Array) -> webmm.Array:
        """Return `then` of the elements of x @ weight, with the bias as b: in the pass that stores the product."""
        weight = self._arrays[f"{name}.weight"]
        function = webmm.Epilogue(then, b=self._arrays[f"{name}.bias"], **more)
        multiply = webmm.matmul if isinstance(weight, webmm.Array) else webmm.qmatmul_weights
        return multiply(x, weight, activation=function)


def generate(model: Transformer, prompt: ArrayLike, count: int) -> NDArray[np.int32]:
    """Return the `count` tokens that are most likely to follow each prompt, (batch, tokens), one after another.

    Each is chosen and fed back on the device; the host only reads them all at the end. A step is captured: the work of
    its hundred calls in Python is done once.
    """
    start = np.asarray(prompt)
    if count < 1:
        raise webmm.ProblemError(f"the number of tokens to generate must be at least 1, not {count}")
    if start.ndim != 2 or not start.size or start.dtype.kind not in "iu" or start.min() < 0:
        raise webmm.ProblemError("prompts must be whole numbers from 0 on, (batch, tokens), at least one token each")
    with model.cache(len(start), start.shape[1] + count) as cache:
        found = [model(start, cache, last=True).argmax(-1)]
        at = model.device.array(np.full(len(start), start.shape[1], np.int32))
        with webmm.capture(lambda token, at: (model(token, cache, at).argmax(-1), at + 1)) as step:
            while len(found) < count:
                token, at = step(found[-1], at)
                found.append(token)
        return np.concatenate([x.numpy() for x in found], axis=1)


def main() -> None:
    """Generate tokens, with the time that each takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", help="a safetensors file; by default random weights")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--format", choices=FORMATS, default="float32")
    parser.add_argument("--prompt", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="numbers of tokens")
    parser.add_argument("--tokens", type=int, default=16, help="how many to generate")
    parser.add_argument("--profile", action="store_true", help="show the work for a token")
    given = parser.parse_args()
    try:
        with webmm.Device() as device:
            weights = load(given.weights) if given.weights else random_weights()
            run(Transformer(weights, given.heads, device, given.format), [given.prompt], given.tokens, given.profile)
    except webmm.WebmmError as error:
        parser.error(str(error))


def run(model: Transformer, prompt: list[list[int]], count: int, profiled: bool) -> None:
    """Generate tokens and print them, and where the time goes if that is wanted."""
    generate(model, prompt, count)  # compiles
    start = time.perf_counter()
    print("tokens:", *generate(model, prompt, count)[0])
    print(f"{1e3 * (time.perf_counter() - start) / count:.2f} ms per token")
    if profiled:
        with model.cache(1, len(prompt[0]) + 1) as cache:
            model(prompt, cache)
            with webmm.profile(model.device) as profile:
                model([[0]], cache).numpy()
        rich.print(profile.table())


if __name__ == "__main__":
    main()
