"""Products as users have them, drawn at random by class, the same ones for the same seed: for `shapes.py`."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes

CLASSES = ("square", "any", "linear", "linear", "attention", "tall", "conv", "deep")
FEATURES = (768, 896, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 8192, 11008, 14336)
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 200, 256, 512, 1000, 2048)
BYTES, FLOP = 2.5e9, 1.2e12


def draw(seed: int, count: int, scale: float = 1.0) -> Iterator[dict[str, Any]]:
    """Yield `count` problems of all classes, the same ones for the same seed and scale, which divides their size."""
    source = random.Random(seed)
    while count:
        cls, batch, m, n, k, layout = _one(source)
        if 4 * batch * (m * k + k * n + m * n) > BYTES / scale or 2 * batch * m * n * k > FLOP / scale:
            continue
        count -= 1
        yield {"cls": cls, "batch": batch, "m": m, "n": n, "k": k, "layout": layout}


def _one(source: random.Random) -> tuple[str, int, int, int, int, str]:
    def between(low: int, high: int) -> int:
        return round(math.exp(source.uniform(math.log(low), math.log(high))))

    cls = source.choice(CLASSES)
    if cls == "square":
        size = between(128, 6000)
        size = source.choice((size, size // 8 * 8, max(64, size // 64 * 64)))
        return cls, 1, size, size, size, source.choice(("nn", "nt", "tn"))
    if cls == "any":
        return cls, 1, between(64, 6000), between(64, 6000), between(64, 6000), source.choice(("nn", "nt"))
    if cls == "linear":  # tokens × a layer's weights, which PyTorch stores transposed
        sizes = source.choice(TOKENS), source.choice(FEATURES), source.choice(FEATURES)
        return cls, 1, *sizes, source.choice(("nt", "nt", "nn"))
    if cls == "attention":
        heads, tokens = source.choice((8, 12, 16, 32, 64, 96)), between(64, 1500)
        width = source.choice((32, 64, 80, 96, 128))
        scores = source.random() < 0.5
        return (cls, heads, tokens, tokens, width, "nt") if scores else (cls, heads, tokens, width, tokens, "nn")
    if cls == "tall":
        return cls, 1, between(10_000, 400_000), between(8, 256), between(8, 256), "nn"
    if cls == "conv":  # images × positions, filters, 3 × 3 × channels
        positions = source.choice((7, 14, 28, 56)) ** 2 * source.choice((1, 8, 32))
        sizes = positions, source.choice((64, 128, 256, 512)), 9 * source.choice((16, 64, 128, 256))
        return cls, 1, *sizes, source.choice(("nt", "nn"))
    return cls, 1, between(16, 600), between(16, 600), between(10_000, 300_000), source.choice(("nn", "nt", "tn"))


def problem_of(row: dict[str, Any]) -> Gemm:
    """Return what a row of `draw()` says."""
    return gemm(row["m"], row["n"], row["k"], batch=row["batch"], **transposes(row["layout"]))
