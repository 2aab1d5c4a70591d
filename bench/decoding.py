"""The model of examples/transformer.py beside PyTorch eager and ONNX Runtime's WebGPU provider, by the wall clock.

    python bench/decoding.py --adapter gpu --engine dawn --format float16 FILE.json

All have the same random weights of GPT-2's shape, and a cache that is allocated once. A sample of prefill is the last
logits of a prompt; one of decoding is several tokens, each chosen on the device and fed back, at lengths that are new
to the process, as in a conversation: by calls, by calls that get their places from the device and so have the same
sizes for all tokens ("placed"), and by captured functions. Prompts are repeated for half a second before they are
timed, since an idle GPU lowers its clock. A GPU of unknown speed is probed first, as for `webmm bench`; the record has
its rates. Logits are compared. PyTorch is left out if there is none with a GPU, and ONNX Runtime (`onnx_decoder.py`) if
it lacks a package or an operator; its kernels are the same for all lengths, and its tokens are timed with and without
graph capture. Ratios are of a peer's time to that of webmm's calls.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np
from onnx_decoder import Task, in_onnx
from results import header

import webmm
from webmm.choose import adapted
from webmm.measure import roofline
from webmm.measure.records import lines

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

from transformer import FORMATS, Transformer, Weights, random_weights

SHAPES = {"small": (768, 12, 12, 50257, 1024), "tiny": (64, 2, 4, 97, 64)}  # width, layers, heads, vocabulary, context
WARM = 2  # samples that compile
WAKE = 0.5  # seconds of samples that wake the GPU
TOLERANCE = {"float32": 1e-4, "float16": 2e-2}  # of the largest logit


class InTorch:
    """The same model in PyTorch, as its users would write it."""

    def __init__(self, torch: Any, weights: Weights, heads: int, dtype: str, capacity: int) -> None:
        self.torch, self.F, self.heads, self.capacity = torch, torch.nn.functional, heads, capacity
        self.dtype = getattr(torch, dtype)
        self.w = {name: torch.tensor(x, device="cuda", dtype=self.dtype) for name, x in weights.items()}
        self.layers = sum(name.endswith("attn.c_attn.weight") for name in weights)
        self.width = self.w["wpe.weight"].shape[1]
        shape = (self.layers, 1, self.heads, self.capacity, self.width // self.heads)
        self.keys, self.values = (self.torch.empty(shape, device="cuda", dtype=self.dtype) for _ in range(2))
        self.length = 0

    def __call__(self, tokens: Any) -> Any:
        """Return the logits (1, 1, vocabulary) that follow the last of `tokens`, (1, tokens)."""
        w, count, first = self.w, tokens.shape[1], self.length
        x = w["wte.weight"][tokens] + w["wpe.weight"][first : first + count]
        for i in range(self.layers):
            layer = f"h.{i}."
            qkv = self._linear(layer + "attn.c_attn", self._norm(layer + "ln_1", x))
            q, k, v = qkv.view(1, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            self.keys[i, :, :, first : first + count], self.values[i, :, :, first : first + count] = k, v
            k, v = (kept[i, :, :, : first + count] for kept in (self.keys, self.values))
            attended = self.F.scaled_dot_product_attention(q, k, v, is_causal=count > 1)
            x = x + self._linear(layer + "attn.c_proj", attended.transpose(1, 2).reshape(1, count, -1))
            hidden = self.F.gelu(self._linear(layer + "mlp.c_fc", self._norm(layer + "ln_2", x)), approximate="tanh")
            x = x + self._linear(layer + "mlp.c_proj", hidden)
        self.length += count
        return (self._norm("ln_f", x[:, -1:]) @ w["wte.weight"].T).float()

    def _norm(self, name: str, x: Any) -> Any:
        return self.F.layer_norm(x, (self.width,), self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def _linear(self, name: str, x: Any) -> Any:
        return self.torch.addmm(self.w[f"{name}.bias"], x.view(-1, x.shape[-1]), self.w[f"{name}.weight"]).view(
            *x.shape[:-1], -1
        )


def median(call: Callable[[], Any], samples: int, wake: float = WAKE) -> float:
    """Return the median ms of a call that waits for its result, after WARM of them and for `wake` seconds at least."""
    times: list[float] = []
    begin, warm = time.perf_counter(), 0
    while len(times) < warm + samples:
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
        if start - begin < wake or len(times) <= WARM:
            warm = len(times)
    return statistics.median(times[warm:])


def ours(model: Transformer, prompt: list[list[int]], decoded: int, samples: int) -> tuple[Any, float, float]:
    """Return the last logits, and the ms of prefill and of a decoded token, by calls."""
    with model.cache(1, len(prompt[0]) + (samples + WARM) * decoded) as cache:

        def prefill() -> Any:
            cache.clear()
            return model(prompt, cache, last=True)[:, 0].numpy()

        def decode() -> Any:
            token = webmm.Array.argmax(first, -1)
            for _ in range(decoded):
                token = model(token, cache).argmax(-1)
            return token.numpy()

        logits, once = prefill(), median(prefill, samples)
        cache.clear()
        first = model(prompt, cache, last=True)
        return logits, once, median(decode, samples, 0.0) / decoded


def placed(
    model: Transformer, prompt: list[list[int]], decoded: int, samples: int, capture: bool
) -> tuple[Any, float, float]:
    """Return the same at places on the device, by calls whose sizes are the same for all tokens, or captured."""
    device, count = model.device, len(prompt[0])
    tokens, zero = device.array(np.array(prompt, np.int32)), device.array(np.zeros(1, np.int32))
    with ExitStack() as freed:
        cache = freed.enter_context(model.cache(1, count + (samples + WARM) * decoded))

        def begin(tokens: Any, at: Any) -> Any:
            return model(tokens, cache, at, last=True)

        def step(token: Any, at: Any) -> Any:
            return model(token, cache, at).argmax(-1), at + 1

        if capture:
            begin, step = (freed.enter_context(webmm.capture(each)) for each in (begin, step))
        at = zero + count

        def prefill() -> Any:
            return begin(tokens, zero).numpy()[:, 0]

        def decode() -> Any:
            nonlocal at
            token = first
            for _ in range(decoded):
                token, at = step(token, at)
            return token.numpy()

        logits, once = prefill(), median(prefill, samples)
        first = begin(tokens, zero).argmax(-1)
        return logits, once, median(decode, samples, 0.0) / decoded


def theirs(model: InTorch, prompt: list[list[int]], decoded: int, samples: int) -> tuple[Any, float, float]:
    """Return the same of PyTorch."""
    torch = model.torch
    tokens = torch.tensor(prompt, device="cuda")

    def prefill() -> Any:
        model.length = 0
        return model(tokens)[:, 0].cpu().numpy()

    def decode() -> Any:
        token = first.argmax(-1)
        for _ in range(decoded):
            token = model(token).argmax(-1)
        return token.cpu()

    with torch.inference_mode():
        logits, once = prefill(), median(prefill, samples)
        model.length = 0
        first = model(tokens)
        return logits, once, median(decode, samples, 0.0) / decoded


def difference(logits: Any, expected: Any) -> float:
    """Return the largest error of the logits, of the largest that is expected."""
    return float(np.abs(logits - expected).max() / np.abs(expected).max())


def beside_onnx(task: Task, logits: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of ONNX Runtime; `onnx_error` is that of its logits, of all kinds of runs."""
    found: dict[str, Any] = {}
    errors = []
    for timed in in_onnx(task, median):
        errors.append(difference(timed.logits, logits[0]))
        base = row["prefill_ms" if timed.kind == "prefill" else "token_ms"]
        found[f"onnx_{timed.kind}_ms"] = round(timed.ms, 3)
        found[f"onnx_{timed.kind}_ratio"] = round(timed.ms / base, 2)
    if not errors:
        return {}
    packages = ("onnxruntime", "onnxruntime-ep-webgpu")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return {"onnx": versions, **found, "onnx_error": float(f"{np.max(errors):.1e}")}


@click.command(help=__doc__)
@click.option("--adapter", default="gpu", show_default=True)
@click.option("--engine", default="auto", show_default=True)
@click.option("--format", "form", type=click.Choice(FORMATS), default="float16", show_default=True)
@click.option("--model", "shape", type=click.Choice([*SHAPES]), default="small", show_default=True)
@click.option("--tokens", default=512, show_default=True, help="Of the prompt.")
@click.option("--decoded", default=32, show_default=True, help="Tokens of a sample of decoding.")
@click.option("--samples", default=7, show_default=True)
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
def main(
    adapter: str, engine: str, form: str, shape: str, tokens: int, decoded: int, samples: int, output: Path
) -> None:
    """Measure all, print the times and write them to OUTPUT."""
    torch: Any = None
    with suppress(ImportError):
        import torch
    width, layers, heads, vocabulary, context = SHAPES[shape]
    weights = random_weights(width, layers, vocabulary, context)
    prompt = [np.random.default_rng(0).integers(0, vocabulary, tokens).tolist()]
    row: dict[str, Any] = {"model": shape, "format": form, "prompt": tokens, "decoded": decoded}
    with webmm.Device(adapter=adapter, engine=engine) as device:
        if adapted.unprobed(device):
            roofline.probe_and_keep(device, roofline.measure(device))
        row["rates"] = adapted.origin(device)
        logits, *times = ours(Transformer(weights, heads, device, form), prompt, decoded, samples)
        row |= {"prefill_ms": round(times[0], 3), "token_ms": round(times[1], 3)}
        for kind in ("placed", "captured"):
            model = Transformer(weights, heads, device, form)
            again, *times = placed(model, prompt, decoded, samples, kind == "captured")
            error = difference(again, logits)
            assert error < TOLERANCE.get(form, TOLERANCE["float16"]), f"{kind} logits differ by {error:.1e}"
            row |= {f"{kind}_prefill_ms": round(times[0], 3), f"{kind}_token_ms": round(times[1], 3)}
        about = header(device.engine.version(), device.info)
    if torch and torch.cuda.is_available() and form in TOLERANCE:
        torch.backends.cuda.matmul.allow_tf32 = False
        model = InTorch(torch, weights, heads, form, tokens + (samples + WARM) * decoded)
        expected, *times = theirs(model, prompt, decoded, samples)
        error = difference(logits, expected)
        assert error < TOLERANCE[form], f"the logits differ by {error:.1e} of the largest"
        row |= {
            "torch": torch.__version__,
            "torch_prefill_ms": round(times[0], 3),
            "torch_token_ms": round(times[1], 3),
        }
        row |= {
            "prefill_ratio": round(times[0] / row["prefill_ms"], 2),
            "token_ratio": round(times[1] / row["token_ms"], 2),
        }
    if form in TOLERANCE:
        shaped = partial(random_weights, width, layers, vocabulary, context)
        row |= beside_onnx(Task(shaped, heads, form, prompt[0], decoded, samples), logits, row)
    print(row)
    output.write_text(lines({**about, "problems": [row]}), encoding="utf-8")
    error = row.get("onnx_error", 0.0)  # tested last: products of float16 that are also summed in it come close
    assert form not in TOLERANCE or error < TOLERANCE[form], (
        f"ONNX Runtime's logits differ by {error:.1e} of the largest"
    )


if __name__ == "__main__":
    main()
