"""Fragments of the matrix units of every vendor, and the stages that multiply them: no device lists all.

As Dawn lists them: on Metal 8×8×8, of float32 or of float16 with sums in float16 (which webmm does not use: the error
grows with k·2⁻¹¹); on Vulkan what drivers list: Intel's have 8 rows, NVIDIA's 16, also with 8 columns or 8 along k,
AMD's are 16×16×16, of uint8 with sums in int32, from RADV also in uint32. Subgroups have 32 lanes, of Intel's GPUs 8,
16 or 32, of AMD's also 64. The sources are in docs/matrix-units.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from webmm.dtypes import F16, F32, I8, U8
from webmm.kernels.base import Kernel
from webmm.kernels.gemm.matrix_unit import MatrixUnit, MatrixUnitF32
from webmm.kernels.quantized.matrix_unit import MatrixUnit as ByteUnit
from webmm.kernels.weights.matrix_unit import MatrixUnit as WeightUnit
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm
from webmm.problems.product import LAYOUTS, Operand, transposes
from webmm.problems.quantized import Quantized
from webmm.problems.weights import BITS, WeightOnly

Settings = dict[str, Any]

FLOATS = ((16, 16, 16), (8, 8, 8), (16, 16, 8), (8, 16, 16), (8, 8, 16), (16, 8, 16))  # m, n, k
BYTES = ((16, 16, 32), (8, 8, 32), (16, 8, 32), (8, 16, 32), (16, 16, 16), (8, 8, 16))
BYTE_TYPES = (("i8", "own"), ("u8", "own"), ("u8", "i32"))  # of operands and sums
LANES = (32, 8, 16, 64)
SPELLINGS = ("current", "deprecated")
RAGGED = (129, 131, 67)  # m, n, k


def settings(shape: tuple[int, int, int], lanes: int) -> Settings:
    """Return the tunables of a fragment shape and a subgroup size."""
    m, n, k = shape
    return {"fm": m, "fn": n, "fk": k, "lanes": lanes}


def units(floats: Settings, byte_fragments: Settings, spelling: str = "current") -> Iterator[Kernel[Any]]:
    """Yield every stage of matrix units with its fragments."""
    yield MatrixUnit(**floats, spelling=spelling)
    yield MatrixUnitF32(**floats, spelling=spelling)
    yield WeightUnit(**floats)
    yield from (ByteUnit(**byte_fragments, operands=operands, sums=sums) for operands, sums in BYTE_TYPES)


def problems(kernel: Kernel[Any], layout: str) -> Iterator[Problem]:
    """Yield a ragged problem for each element type that a stage of matrix units multiplies."""
    m, n, k = RAGGED
    if isinstance(kernel, WeightUnit):
        a = Operand(m if layout[0] == "t" else k, transposed=layout[0] == "t")
        yield from (WeightOnly(m, n, k, F16, F16, a, bits, 32) for bits in BITS)
    elif isinstance(kernel, ByteUnit):
        stored = gemm(m, n, k, **transposes(layout))
        plain = Quantized(m, n, k, U8, U8, F32, stored.a, stored.b, zero_a=3, zero_b=5)
        yield plain if kernel.operands == "u8" else replace(plain, b_dtype=I8)
    elif isinstance(kernel, MatrixUnit):
        for dtype in kernel.multiplies:
            plain_product = gemm(m, n, k, dtype=dtype, out_dtype=F32, **transposes(layout))
            yield replace(plain_product, bias="column", activation="relu")


def shaders() -> Iterator[tuple[str, Kernel[Any], Problem]]:
    """Yield every stage with every fragment shape, each with one subgroup size, layout and spelling in turn."""
    turns = map(itertools.cycle, (LANES, LAYOUTS, SPELLINGS))
    for floats, byte_fragments, lanes, layout, spelling in zip(FLOATS, BYTES, *turns, strict=False):
        for kernel in units(settings(floats, lanes), settings(byte_fragments, lanes), spelling):
            yield from ((f"{layout} {RAGGED}", kernel, problem) for problem in problems(kernel, layout))
