"""The page's prepared ladders of float matrix products."""

from __future__ import annotations

from typing import Any

from webmm.cases.exact import ExactCase, Input, Ladder, Size, product
from webmm.choose.gemm import SLICES
from webmm.dtypes import F32, F64, DType
from webmm.kernels.base import Kernel
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.slices import Slices, Software
from webmm.kernels.gemm.slices_unit import SlicesUnit
from webmm.kernels.gemm.split_k import SplitK
from webmm.problems.gemm import gemm

# Ranges of factors whose products are exact for the largest k: below 2^53 for float64, and far below 2^24 for float32.
MULTIPLIED = {F32: (-8, 7), F64: (-(2**19), 2**19 - 1)}
_TILES: dict[str, Any] = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4}
THIN: dict[str, tuple[Kernel[Any], ...]] = {
    "gpu": (Naive(), Pipelined(), SplitK(slices=2, splits=16), Gemv()),
    "cpu": (Naive(), Pipelined(**_TILES, unroll=1), SplitK(**_TILES, unroll=1, slices=1, splits=4), Gemv(8, 4)),
}
THIN_SIZES: dict[str, tuple[Size, ...]] = {
    "gpu": ((1, 1024, 1024), (1, 4096, 4096), (4096, 1, 4096), (8, 4096, 4096), (64, 64, 65536)),
    "cpu": ((1, 61, 259), (1, 512, 1024), (512, 1, 1024), (32, 32, 4096)),
}
DOUBLE: dict[str, tuple[Kernel[Any], ...]] = {
    "gpu": (Software(), SLICES, SlicesUnit()),
    "cpu": (Software(), Slices()),
}
DOUBLE_SIZES: dict[str, tuple[Size, ...]] = {
    "gpu": ((128, 128, 128), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048)),
    "cpu": ((61, 61, 61), (128, 128, 128)),
}


def multiplied(size: Size, dtype: DType) -> ExactCase:
    """Return a floating-point product."""
    m, n, k = size
    inputs = tuple(
        Input(name, dtype, count, seed, *MULTIPLIED[dtype])
        for seed, (name, count) in enumerate((("a", m * k), ("b", k * n)))
    )
    return ExactCase(gemm(m, n, k, dtype=dtype), inputs, lambda a, b: product(a.reshape(m, k), b.reshape(k, n)))


LADDERS = (
    Ladder("Matrix product, thin matrices", THIN, multiplied, THIN_SIZES, (F32,)),
    Ladder("Matrix product, float64", DOUBLE, multiplied, DOUBLE_SIZES, (F64,)),
)
