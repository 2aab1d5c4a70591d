"""Candidates for float matrix products: a field that the model of cost ranks, or rules where none were recorded."""

from __future__ import annotations

import dataclasses
from typing import Any

from webmm.choose import cpu
from webmm.choose.field import field as of_gpus
from webmm.choose.field import on_matrix_units
from webmm.cut.dispatches import dispatches, longest
from webmm.cut.pieces import Limits, Piece
from webmm.dtypes import F32
from webmm.engine.device import Device
from webmm.kernels.base import Capabilities
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.matrix_unit_high import MatrixUnitHigh
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.slices import Slices, Software
from webmm.kernels.gemm.slices_unit import SlicesUnit
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.splits import SPLITS
from webmm.problems.gemm import Gemm

ENOUGH_TILES = 256  # tiles that fill a GPU; with fewer, k is split
GPU: tuple[GemmKernel, ...] = (Pipelined(), Pipelined(bm=32, bn=64, tm=4, tn=4), Pipelined(bm=32, bn=32, tm=4, tn=4))
FEW = 8  # a product with at most this many rows or columns is limited by memory bandwidth

# Tiles for float32 split into float16 on matrix units, used if there are ENOUGH_MATRIX_TILES. The second has smaller
# workgroups, of which a multiprocessor runs two at once: it is faster if there are no more. TFLOP/s on an H200:
#   4096³  97  95
#   2048³  73  79
# Smaller ones are no faster than float32: 42 at 1024³.
HIGH_TILES: tuple[dict[str, Any], ...] = ({"bk": 32, "sm": 32}, {})
ENOUGH_MATRIX_TILES = 128
LEAST_SPLIT_K = 32  # for them; the split may be off by 14 units of 2⁻²⁴, and the bound is 2·k units
LEAST_K = 256  # the smallest part of k that is worth a separate workgroup

ANYWHERE: tuple[GemmKernel, ...] = (Tile2D(), Naive(), Gemv())  # Gemv for a k beyond the drivers' limit of iterations


def candidates(problem: Gemm, device: Device) -> list[GemmKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first: [] where the model of cost ranks."""
    if problem.dtype.wide and not problem.features <= device.capabilities.features:
        return made_of_integers(problem, device.info.kind, device.capabilities)
    if device.info.kind != "cpu" and problem.dtype.wide:
        return made_of_doubles(problem)
    return list(made_for_precision(problem, device.capabilities))


def field(problem: Gemm, device: Device, multiprocessors: int) -> list[GemmKernel]:
    """Return the kernels for `problem` on `device` from which the model of cost chooses."""
    if problem.dtype.wide and not problem.features <= device.capabilities.features:
        return []
    if device.info.kind == "cpu":
        return list(cpu.field(problem, device.capabilities.subgroup_size))
    if problem.dtype.wide:
        return []
    able = device.capabilities
    units = [k for k in on_matrix_units(problem, able, multiprocessors) if k.check(problem, able) is None]
    faster = any(kernel.operands == "f16" for kernel in units)  # than anything else; units for float32 may not be
    return [*units, *(() if faster else of_gpus(problem, multiprocessors))]


def fallbacks(problem: Gemm, device: Device) -> tuple[GemmKernel, ...]:
    """Return kernels for devices with low limits."""
    del problem
    return cpu.ANY if device.info.kind == "cpu" else GPU


# Emulated float64, by integer slices. With few terms, the check that the slices are sufficient seldom succeeds. TFLOP/s
# on an H200 with matrix units (each of the tiles), with dot products (both tiles), and with software arithmetic:
#   4096³  10.7                2.5
#   2048³   8.9  6.6   4.0     2.2  2.0
#   1024³   2.7  4.0   3.4     1.5  1.7  0.10
#   512³    0.6  1.2   1.6     0.4  0.8  0.10
#   256³    0.09 0.22  0.39    0.08 0.19 0.08
LEAST_TERMS = 32
SLICES, ENOUGH_SLICES = Slices(bm=128, bn=64, bk=16, tm=8, tn=8), 512
UNIT_TILES: tuple[tuple[dict[str, Any], int], ...] = (
    ({}, 128),
    ({"bm": 64, "bn": 64, "sm": 32, "sn": 32}, 128),
    ({"bm": 32, "bn": 32, "sm": 16, "sn": 32}, 16),
)


def made_of_integers(problem: Gemm, kind: str, device: Capabilities) -> list[GemmKernel]:
    """Return the kernels that emulate float64 with integers, best first."""
    if problem.k < LEAST_TERMS:
        return [Software()]
    unit = SlicesUnit.on(device)
    tiles = UNIT_TILES if unit.matrix_shape in device.matrix_shapes else ()
    units = [(dataclasses.replace(unit, **tile), enough) for tile, enough in tiles]
    large = [] if kind == "cpu" else [(SLICES, ENOUGH_SLICES)]
    filling = [kernel for kernel, enough in [*units, *large] if kernel.grid.tiles(problem) * problem.batch >= enough]
    return [*filling, Slices(), Software()]


def made_for_precision(problem: Gemm, device: Capabilities) -> list[GemmKernel]:
    """Return the kernels for float32 on matrix units, with precision "high", best first; [] if none is faster."""
    shapes = {(shape.operands, shape.result) for shape in device.matrix_shapes}
    if problem.dtype != F32 or problem.precision != "high" or ("f16", "f32") not in shapes:
        return []
    if min(problem.m, problem.n) <= FEW or problem.k < LEAST_SPLIT_K:
        return []
    most = min(MOST_SUMS, device.limit("max-storage-buffer-binding-size"))
    if problem.batch > 1 and (problem.k > LONGEST_PHASES or kept_sums(problem) > most):  # a batch is not cut
        return []
    stage, phases = MatrixUnitHigh.on(device), phases_for(problem.k)
    tiles = stage.grid.tiles(problem) * problem.batch
    if tiles < ENOUGH_MATRIX_TILES:
        return []
    large, small = HIGH_TILES
    each = tiles / (device.workgroups or ENOUGH_MATRIX_TILES)
    return [
        dataclasses.replace(stage, **found, phases=phases)
        for found in ((small, large) if 1 < each <= 2 else HIGH_TILES)
    ]


# Precision "high": without phases, sums of k terms of equal sign lose about 0.05·k units of 2⁻²⁴, or 0.1·k if A's
# elements are float16; the largest error of float32 is 1.05·√k units (H200, measured from k = 128 to 32,768). Up to
# LONGEST_SUM, the first is less than four times the second. With phases, this loss cancels unless a few terms dominate
# the sum: then half of it is left, and LONGEST_PHASES limits it. MOST_SUMS is the largest size of the sums of a phase.
LONGEST_SUM, LONGEST_PHASES, MOST_SUMS = 1024, 8192, 2**30


def phases_for(k: int) -> int:
    """Return the number of phases with precision "high"."""
    return 1 if k <= LONGEST_SUM else 2


def kept_sums(problem: Gemm) -> int:
    """Return the bytes of the sums that one dispatch with precision "high" keeps in a buffer."""
    return MatrixUnitHigh(phases=phases_for(problem.k)).kept_sums(problem)


def asked(problem: Gemm, limits: Limits) -> str:
    """Return the axis along which precision "high" asks for a cut: k to stay exact, m or n for the kept sums; or ""."""
    if problem.precision != "high" or problem.dtype != F32 or problem.batch > 1:
        return ""
    if problem.k > LONGEST_PHASES:
        return "k"
    return longest(problem) if kept_sums(problem) > min(MOST_SUMS, limits.binding) else ""


def pieces(problem: Gemm, device: Device, limits: Limits) -> list[Piece]:
    """Return the dispatches that compute `problem` on `device`, each with the precision that it attains."""
    cut = dispatches(attainable(problem, device), limits, asked)
    return [dataclasses.replace(piece, problem=attainable(piece.problem, device)) for piece in cut]


def attainable(problem: Gemm, device: Device) -> Gemm:
    """Return `problem`, with precision "highest" if "high" would not be faster: without matrix units and slices."""
    sliced = problem.dtype.wide and not problem.features <= device.capabilities.features
    if problem.precision == "highest" or sliced:
        return problem
    # Large problems are cut later, so check a small part: only the device's features and limits matter here.
    part = dataclasses.replace(problem, m=min(problem.m, 512), n=min(problem.n, 512), batch=1)
    made = made_for_precision(problem, device.capabilities)
    if any(kernel.check(part, device.capabilities) is None for kernel in made):
        return problem
    return dataclasses.replace(problem, precision="highest")


# Native float64: tiles, each with the number of tiles from which it is used. TFLOP/s on an H200, whose FMAs reach 32.2
# without memory accesses, with each of them and with k split:
#   4096³  23.0  20.8
#   2048³  22.4  19.8  15.5
#   1024³  11.0  18.6  14.6
#   512³    2.6   4.7  12.3
DOUBLES: tuple[tuple[GemmKernel, int], ...] = (
    (Pipelined(bm=128, bn=128), 256),
    (Pipelined(bm=64, bn=64, bk=8, unroll=8), 128),
)
DOUBLES_DIVIDED = SplitK(bm=32, bn=64, tm=4, tn=4, slices=2)


def made_of_doubles(problem: Gemm) -> list[GemmKernel]:
    """Return the kernels for native float64, best first: large tiles, or small tiles with k split."""
    few = min(problem.m, problem.n)
    if few <= FEW:
        vectors = next(tj for tj in (1, 2, 4, 8) if tj >= few)
        along_k = problem.b.transposed if problem.n >= problem.m else not problem.a.transposed
        if vectors < 8:
            return [Gemv(lanes=32, groups=8, tj=vectors) if along_k else Gemv(lanes=16, groups=16, tj=vectors)]
        return [Gemv(lanes=32, groups=4, ti=2, tj=8) if along_k else Gemv(lanes=8, groups=32, tj=8)]
    if few <= 32:
        bm, bn = (32, 128) if problem.m <= problem.n else (128, 32)
        flat = SplitK(bm=bm, bn=bn, tn=4, slices=2)
        return [dataclasses.replace(flat, splits=min(8, _splits(flat, problem)))]
    filling = [kernel for kernel, enough in DOUBLES if kernel.grid.tiles(problem) * problem.batch >= enough]
    if not filling:
        return [dataclasses.replace(DOUBLES_DIVIDED, splits=_splits(DOUBLES_DIVIDED, problem, ENOUGH_TILES // 2))]
    return filling


def _splits(kernel: GemmKernel, problem: Gemm, most: int = 4 * ENOUGH_TILES) -> int:
    """Return the largest number of parts of k, each of at least LEAST_K elements, with at most `most` workgroups."""
    tiles = kernel.grid.tiles(problem) * problem.batch
    return max((n for n in SPLITS if n * LEAST_K <= problem.k and n * tiles <= most), default=1)
