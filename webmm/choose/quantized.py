"""Candidates for quantised 8-bit matrix products."""

from __future__ import annotations

import dataclasses
from typing import Any

from webmm.choose.field import MOST_SUMS_HELD, divided
from webmm.dtypes import BYTES, U8
from webmm.engine.device import Device
from webmm.kernels.base import Capabilities
from webmm.kernels.quantized.base import QuantizedKernel
from webmm.kernels.quantized.matrix_unit import MatrixUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.problems.quantized import Quantized

# Tiles for GPUs without matrix units. The best of them is within 4 % of the best of 28 candidates (mean of 84 random
# problems, H200).
GPU = (Packed(bm=32, bn=64, tn=4), Packed(bm=64, bn=32, tn=4), Packed(bm=64, bn=64, tn=4))

# Tiles for matrix units. More subgroups pay off if both operands are contiguous along k, no zero points require sums,
# and the result is 8-bit (473 → 497 TOP/s at 4096³ on an H200 under Dawn), but not otherwise (nt to float32: 536 → 303;
# nn: 440 → 423, to float32 445 → 267).
MATRIX_TILES: tuple[dict[str, Any], ...] = (
    {},
    {"bm": 64, "bn": 64, "sm": 32, "sn": 32},
    {"bm": 32, "bn": 64, "sm": 32, "sn": 32},
    {"bm": 64, "bn": 64, "bk": 128, "sm": 32, "sn": 32},
    {"bm": 64, "sm": 32},
    {"bn": 64, "sn": 32},
)
MORE_SUBGROUPS: tuple[dict[str, Any], ...] = ({"sn": 32}, {"bk": 128, "sn": 32})

# On a CPU adapter, processing four bytes at a time pays off even with workgroup memory: 8 GOP/s, compared with 2, at
# 256³ (lavapipe, two cores). Small tiles compile in half a second.
CPU = Packed(bm=32, bn=32, bk=8, tn=4, unroll=1)
ANYWHERE = (Unpacked(),)


def candidates(problem: Quantized, device: Device) -> list[QuantizedKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first: [] where the model of cost ranks."""
    del problem
    return [CPU] if device.info.kind == "cpu" else []


def field(problem: Quantized, device: Device, multiprocessors: int) -> list[QuantizedKernel]:
    """Return the kernels for `problem` on `device` from which the model of cost chooses."""
    del multiprocessors
    if device.info.kind == "cpu":
        return []
    packed = [kernel for tile in GPU for kernel in divided(tile, problem)]
    return [*on_matrix_units(problem, device.capabilities), *packed]


def fallbacks(problem: Quantized, device: Device) -> tuple[QuantizedKernel, ...]:
    """Return kernels for GPUs with low limits, without partial sums."""
    del problem
    return () if device.info.kind == "cpu" else GPU


def on_matrix_units(problem: Quantized, device: Capabilities) -> list[QuantizedKernel]:
    """Return the candidates on matrix units; [] if the device has none."""
    kinds = ("u8", "i8") if (problem.a_dtype, problem.b_dtype) == (U8, U8) else ("i8",)
    plain = problem.layout == "nt" and problem.zero_a == problem.zero_b == 0 and problem.out_dtype in BYTES
    tiles = (*MATRIX_TILES, *(MORE_SUBGROUPS if plain else ()))
    kernels = list(MatrixUnit.each(device, kinds))[:1]
    made = (dataclasses.replace(kernel, **each) for kernel in kernels for each in tiles)
    return [k for k in made if k.sums_held <= MOST_SUMS_HELD and not (k.invalid() or k.unsuited(problem))]
