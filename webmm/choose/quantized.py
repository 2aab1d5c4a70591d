"""Candidates for quantised 8-bit matrix products."""

from __future__ import annotations

import dataclasses
from typing import Any

from webmm.choose.divided import MULTIPROCESSORS, Costs, likely
from webmm.dtypes import BYTES, U8
from webmm.engine.device import Device
from webmm.kernels.base import Capabilities
from webmm.kernels.quantized.base import QuantizedKernel
from webmm.kernels.quantized.matrix_unit import MatrixUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.problems.quantized import Quantized

ENOUGH_TILES = 128  # the number of tiles that fills a large GPU; see `webmm.choose.gemm`
# Tiles for GPUs without matrix units. The best of them is within 4 % of the best of 28 candidates (mean of 84 random
# problems, H200).
GPU = (Packed(bm=32, bn=64, tn=4), Packed(bm=64, bn=32, tn=4), Packed(bm=64, bn=64, tn=4))
COSTS = Costs(latency=0.039, product=1.06e-5, load=3.6e-5, workgroup=0.32, sums=1.3, partial=0.1)

# Tiles for matrix units, after the default tiles of the stage. TOP/s on an H200 under Dawn, from each to the next:
# 106 → 143 at 1024³ (64 → 256 tiles; `packed`: 69), 33 → 36 at 512³ (64 → 128 tiles; `packed`: 31).
MATRIX_TILES: tuple[dict[str, Any], ...] = (
    {"bm": 64, "bn": 64, "sm": 32, "sn": 32},
    {"bm": 32, "bn": 64, "sm": 32, "sn": 32},
)

# More subgroups pay off if both operands are contiguous along k, no zero points require sums, and the result is 8-bit
# (473 → 497 TOP/s at 4096³), but not otherwise (nt to float32: 536 → 303; nn: 440 → 423, to float32 445 → 267).
MORE_SUBGROUPS = {"sn": 32}

# On a CPU adapter, processing four bytes at a time pays off even with workgroup memory: 8 GOP/s, compared with 2, at
# 256³ (lavapipe, two cores). Small tiles compile in half a second.
CPU = Packed(bm=32, bn=32, bk=8, tn=4, unroll=1)
ANYWHERE = (Unpacked(),)


def candidates(problem: Quantized, device: Device) -> list[QuantizedKernel]:
    """Return the kernels that are worth running for `problem` on `device`, best first."""
    if device.info.kind == "cpu":
        return [CPU]
    able = device.capabilities
    return [*made_for_matrix_units(problem, able), *made_for_gpus(problem, able.workgroups or MULTIPROCESSORS)]


def made_for_gpus(problem: Quantized, multiprocessors: int = MULTIPROCESSORS) -> list[Packed]:
    """Return the packed dot product kernels with the shortest predicted times."""
    return likely(GPU, problem, COSTS, multiprocessors)


def made_for_matrix_units(problem: Quantized, device: Capabilities) -> list[QuantizedKernel]:
    """Return the kernels for matrix units, best first; [] if the device has none or other stages may be faster."""
    kinds = ("u8", "i8") if (problem.a_dtype, problem.b_dtype) == (U8, U8) else ("i8",)
    plain = problem.layout == "nt" and problem.zero_a == problem.zero_b == 0 and problem.out_dtype in BYTES
    tiles = (MORE_SUBGROUPS if plain else {}, *MATRIX_TILES)
    made = (dataclasses.replace(kernel, **each) for kernel in MatrixUnit.each(device, kinds) for each in tiles)
    return [k for k in made if k.grid.tiles(problem) >= ENOUGH_TILES and not (k.invalid() or k.unsuited(problem))]
