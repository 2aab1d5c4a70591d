"""Random problems of realistic classes, reproducible by their seed: for `shapes.py`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from webmm.cases import op_of
from webmm.problems.base import Problem

CLASSES = ("square", "any", "linear", "linear", "attention", "tall", "conv", "deep")
FEATURES = (768, 896, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 8192, 11008, 14336)
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 200, 256, 512, 1000, 2048)
MAX_FEW = 32  # rows in the class "few rows"
WEIGHTS = ("4bit-32", "4bit-32", "4bit-128", "8bit-32", "8bit-128")
AXES = ("rows", "short rows", "few rows", "columns", "middle axis")  # classes of a reduction's axis
REDUCTIONS = ("sum", "mean", "max", "min", "argmax", "logsumexp")
BYTES, FLOP = 2.5e9, 1.2e12
ELEMENTS = 2**16, 2**29

Size = tuple[str, str, int, int, int, int, str]  # class, variant, batch, m, n, k, layout


def draw(seed: int, count: int, scale: float = 1.0, op: str = "gemm", dtype: str = "") -> Iterator[dict[str, Any]]:
    """Yield `count` problems of all classes of an op, the same ones for the same seed and scale.

    The limits on a problem's bytes and operations are divided by `scale`; an empty `dtype` means the op's default.
    """
    source, kind = random.Random(seed), dtype or default_dtype(op)
    while count:
        cls, variant, batch, m, n, k, layout = DRAWN[op](source)
        row = {"op": op, "variant": variant, "dtype": kind, "cls": cls}
        row |= {"batch": batch, "m": m, "n": n, "k": k, "layout": layout}
        problem = problem_of(row)
        if problem.bytes > BYTES / scale or problem.flops > FLOP / scale:
            continue
        count -= 1
        yield row


def default_dtype(op: str) -> str:
    """Return the dtype of an op's problems if none is named."""
    return "int8" if op == "quantized" else "float32"


def _between(source: random.Random, low: float, high: float) -> int:
    return round(math.exp(source.uniform(math.log(low), math.log(high))))


def _product(source: random.Random) -> Size:
    def between(low: int, high: int) -> int:
        return _between(source, low, high)

    cls = source.choice(CLASSES)
    if cls == "square":
        size = between(128, 6000)
        size = source.choice((size, size // 8 * 8, max(64, size // 64 * 64)))
        return cls, "", 1, size, size, size, source.choice(("nn", "nt", "tn"))
    if cls == "any":
        return cls, "", 1, between(64, 6000), between(64, 6000), between(64, 6000), source.choice(("nn", "nt"))
    if cls == "linear":  # tokens × the weights of a layer, which PyTorch stores transposed
        sizes = source.choice(TOKENS), source.choice(FEATURES), source.choice(FEATURES)
        return cls, "", 1, *sizes, source.choice(("nt", "nt", "nn"))
    if cls == "attention":
        heads, tokens = source.choice((8, 12, 16, 32, 64, 96)), between(64, 1500)
        width = source.choice((32, 64, 80, 96, 128))
        scores = source.random() < 0.5
        return (
            (cls, "", heads, tokens, tokens, width, "nt") if scores else (cls, "", heads, tokens, width, tokens, "nn")
        )
    if cls == "tall":
        return cls, "", 1, between(10_000, 400_000), between(8, 256), between(8, 256), "nn"
    if cls == "conv":  # m: positions × images, n: filters, k: 3 × 3 × channels
        positions = source.choice((7, 14, 28, 56)) ** 2 * source.choice((1, 8, 32))
        sizes = positions, source.choice((64, 128, 256, 512)), 9 * source.choice((16, 64, 128, 256))
        return cls, "", 1, *sizes, source.choice(("nt", "nn"))
    sizes = between(16, 600), between(16, 600), between(10_000, 300_000)
    return cls, "", 1, *sizes, source.choice(("nn", "nt", "tn"))


def _integers(source: random.Random) -> Size:
    """Return a product as for gemm, but without a batch, which quantized products lack."""
    while (drawn := _product(source))[2] > 1:
        pass
    return drawn


def _layer(source: random.Random) -> Size:
    tokens = 1 if source.random() < 0.4 else source.choice(TOKENS[1:])
    cls = "one row" if tokens == 1 else "few rows" if tokens <= MAX_FEW else "many rows"
    return cls, source.choice(WEIGHTS), 1, tokens, source.choice(FEATURES), source.choice(FEATURES), "nn"


def _axis(source: random.Random, classes: tuple[str, ...] = AXES) -> tuple[str, int, int, int]:
    """Return the class and the lengths m, n, k of x[m, n, k], of which n is the axis that the op reduces."""
    cls, elements = source.choice(classes), _between(source, *ELEMENTS)
    if cls in ("rows", "short rows"):
        length = _between(source, *((256, 32_768) if cls == "rows" else (8, 256)))
        return cls, max(1, elements // length), length, 1
    if cls == "few rows":
        rows = _between(source, 1, 64)
        return cls, rows, max(1, elements // rows), 1
    if cls == "columns":
        length = _between(source, 64, max(65, elements / 16))
        return cls, 1, length, max(1, elements // length)
    length, inner = _between(source, 16, 4096), _between(source, 16, 2048)
    return cls, max(1, elements // (length * inner)), length, inner


def _reduction(source: random.Random) -> Size:
    variant = source.choice(REDUCTIONS)
    cls, m, n, k = _axis(source)
    return cls, variant, 1, m, n, k, ""


def _normalisation(source: random.Random) -> Size:
    variant = source.choice(("softmax", "softmax", "layer_norm", "rms_norm"))
    cls, m, n, k = _axis(source, AXES if variant == "softmax" else AXES[:1])
    return cls, variant, 1, m, n, k, ""


DRAWN: dict[str, Callable[[random.Random], Size]] = {
    "gemm": _product,
    "quantized": _integers,
    "weights": _layer,
    "reduce": _reduction,
    "normalise": _normalisation,
}


def problem_of(row: dict[str, Any]) -> Problem:
    """Return the problem described by a row of `draw()`."""
    sizes = row["m"], row["n"], row["k"], row["batch"]
    problem: Problem = op_of(row["op"], row["variant"]).dense(sizes, row["dtype"], row["layout"])
    return problem
