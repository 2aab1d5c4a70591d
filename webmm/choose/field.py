"""The kernels of float products that are candidates for a GPU; the model of cost ranks them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from webmm.kernels.base import Capabilities, ceil_div
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.matrix_unit import MatrixUnit, MatrixUnitF32
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.splits import MOST_SPLITS
from webmm.problems.gemm import Gemm
from webmm.problems.product import Product, partial_bytes

# bm, bn, bk, tm, tn, and the numbers of slices of k within a workgroup to try. Large tiles reuse more; small tiles give
# more workgroups.
TILES: tuple[tuple[int, int, int, int, int, tuple[int, ...]], ...] = (
    (128, 128, 16, 8, 8, (1,)),
    (128, 128, 8, 8, 8, (1,)),
    (128, 128, 8, 16, 8, (1,)),
    (64, 128, 16, 8, 8, (1, 2)),
    (64, 128, 8, 8, 8, (1, 2)),
    (128, 64, 16, 8, 8, (1, 2)),
    (128, 64, 8, 8, 8, (1,)),
    (64, 64, 16, 8, 8, (1, 2, 4)),
    (64, 64, 16, 8, 4, (1, 2)),
    (64, 64, 16, 4, 4, (1, 2)),
    (256, 32, 16, 8, 8, (1,)),
    (32, 256, 16, 8, 8, (1,)),
    (128, 32, 16, 8, 4, (1, 2, 4)),
    (32, 128, 16, 8, 4, (1, 2, 4)),
    (32, 128, 16, 8, 8, (1, 2)),
    (128, 32, 16, 8, 8, (1, 2)),
    (32, 64, 16, 4, 4, (1, 2, 4)),
    (32, 64, 16, 8, 4, (1, 2, 4)),
    (64, 32, 16, 4, 4, (1, 2, 4)),
    (64, 32, 16, 8, 4, (1, 2, 4)),
    (32, 32, 16, 4, 4, (1, 2, 4)),
    (32, 32, 8, 4, 4, (1, 4, 8)),
    (16, 128, 16, 4, 8, (1, 2, 4)),
    (16, 128, 16, 8, 4, (1, 2, 4)),
    (128, 16, 16, 8, 4, (1, 2, 4)),
    (256, 16, 16, 8, 8, (1, 2)),
    (16, 64, 16, 4, 4, (1, 2, 4, 8)),
    (64, 16, 16, 4, 4, (1, 2, 4, 8)),
    (16, 32, 16, 4, 4, (1, 4, 8)),
    (32, 16, 16, 4, 4, (1, 4, 8)),
    (16, 16, 16, 4, 4, (4, 8)),
    (128, 8, 16, 8, 4, (2, 4)),
    (8, 64, 16, 8, 4, (4, 8)),
    (8, 128, 16, 8, 4, (2, 4)),
)
ORDERS = ((128, 128),)  # tiles whose FMAs are ordered by rows instead of in serpentine order
MULTIPLES = (1, 2, 3, 4, 6)  # workgroups per multiprocessor to aim at when k is split
LEAST_STEPS = 4  # tiles along k in each part
MOST_PARTIAL = 2**28  # bytes of partial sums

# (lanes, groups, ti, tj, unroll) of `gemv`
VECTORS = tuple(
    (lanes, groups, ti, tj, unroll)
    for lanes, groups, ti, tj in (
        *((32, groups, ti, tj) for groups in (4, 8, 16) for ti in (1, 2) for tj in (1, 2, 4, 8)),
        *((16, groups, ti, tj) for groups in (8, 16, 32) for ti in (1, 2) for tj in (1, 2, 4, 8)),
        *((8, groups, 1, tj) for groups in (16, 32, 64) for tj in (1, 2, 4, 8)),
        *((16, 4, 4, 8), (4, 32, 1, 8), (4, 64, 1, 4), (16, 64, 1, 1), (16, 64, 1, 2)),
        *((lanes, 128 // lanes * more, 1, tj) for lanes in (64, 128) for more in (1, 2) for tj in (1, 2, 4)),
        *((lanes, 128, 1, tj) for lanes in (4, 8) for tj in (1, 2)),
    )
    for unroll in (1, 2, 4)
    if ti * tj * unroll <= 16 and 16 * lanes * groups * ti * tj <= 32_768
)
FEW = 24  # `gemv` is a candidate up to this many rows or columns


@functools.cache
def _tile(index: int, slices: int, splits: int) -> GemmKernel:
    bm, bn, bk, tm, tn, _ = TILES[index]
    order = "rows" if (bm, bn) in ORDERS else "serpentine"
    if slices * splits == 1:
        return Pipelined(bm, bn, bk, tm, tn, unroll=bk, order=order)
    return SplitK(bm, bn, bk, tm, tn, unroll=bk, order=order, slices=slices, splits=splits)


@functools.cache
def _vectors(index: int) -> Gemv:
    return Gemv(*VECTORS[index])


def field(problem: Gemm, multiprocessors: int) -> Iterator[GemmKernel]:
    """Yield the candidates for `problem` on a GPU with `multiprocessors`; `check()` says whether each can run."""
    p, few = problem, min(problem.m, problem.n)
    if few <= FEW:
        for i, (_, _, _, tj, _) in enumerate(VECTORS):
            if tj < 2 * few:
                yield _vectors(i)
    if few < 4:
        return
    for i, (bm, bn, bk, _, _, slices) in enumerate(TILES):
        if _wasteful(bm, p.m) or _wasteful(bn, p.n):
            continue
        tiles = ceil_div(p.m, bm) * ceil_div(p.n, bn) * p.batch
        for s in slices:
            for splits in parts_of_k(p, tiles, ceil_div(p.k, bk * s), multiprocessors):
                yield _tile(i, s, splits)


def _wasteful(tile: int, size: int) -> bool:
    """Return whether a tile is at least twice as long as the matrix; a tile of half its length exists."""
    return tile >= 2 * size and tile > 16


# Tiles for matrix units, and how many steps each part of k has at least. With at most FEW_LINES rows or columns, or few
# rows and few bytes, stages without matrix units are faster. µs on an H200: 5×896×1536 nt 5.4 and 7.1, 8×11008×1536 nt
# 28.4 and 12.5.
UNIT_TILES: tuple[dict[str, Any], ...] = (
    {},
    {"bk": 64, "slices": 2},
    {"bk": 64, "sn": 32},
    {"bn": 64, "bk": 64, "sn": 32},
    {"bm": 64, "sm": 32},
    {"bm": 64, "bn": 64, "sm": 32, "sn": 32},
    {"bm": 64, "bn": 64, "bk": 64, "sm": 32, "sn": 32},
    {"bm": 64, "bn": 64, "bk": 64, "sn": 32, "slices": 2},
    {"bm": 64, "bn": 32, "bk": 64, "sm": 32, "sn": 32, "slices": 2},
    {"bm": 64, "bn": 32, "bk": 16, "sm": 32, "sn": 32},
    {"bm": 32, "bn": 128, "bk": 64, "sm": 32, "sn": 32},
    {"bm": 16, "bn": 32, "bk": 128, "sm": 16, "sn": 32, "slices": 4},
    {"bm": 16, "bn": 64, "bk": 128, "sm": 16, "sn": 64, "slices": 4},
)
# For fragments of float32, which only Apple's GPUs have, and which nobody has measured with webmm: tiles of at most 32
# kB of workgroup memory.
F32_UNIT_TILES: tuple[dict[str, Any], ...] = (
    {},
    {"bk": 16},
    {"bm": 128, "bk": 16},
    {"bn": 128, "bk": 16},
    {"bm": 128, "bn": 128, "bk": 16, "sm": 64},
    {"bm": 32, "sm": 16},
    {"bn": 32, "sn": 16},
    {"bm": 32, "bn": 32, "sm": 16, "sn": 16},
)
MOST_SUMS_HELD = 128  # by a lane: H200; with subgroups of fewer lanes, large tiles would hold more
LEAST_UNIT_STEPS = 2
FEW_LINES, FEW_ROWS, FEW_BYTES = 4, 8, 2**23


def on_matrix_units(problem: Gemm, device: Capabilities, multiprocessors: int) -> Iterator[MatrixUnit]:
    """Yield the candidates for a product on matrix units; none if there are none, or if other stages are faster."""
    p = problem
    stage = unit_stage(p, device)
    if stage is None or min(p.m, p.n) <= FEW_LINES or (p.m <= FEW_ROWS and p.bytes < FEW_BYTES):
        return
    for tiles in F32_UNIT_TILES if isinstance(stage, MatrixUnitF32) else UNIT_TILES:
        kernel = dataclasses.replace(stage, **tiles)
        if kernel.sums_held > MOST_SUMS_HELD:
            continue
        count, steps = kernel.grid.tiles(p) * p.batch, ceil_div(p.k, kernel.bk)
        for splits in parts_of_k(p, count, steps, multiprocessors, LEAST_UNIT_STEPS):
            yield dataclasses.replace(kernel, splits=splits)


def unit_stage(problem: Gemm, device: Capabilities) -> MatrixUnit | None:
    """Return the stage whose fragments the device multiplies, with sums in float32; None if there is none.

    Float16 is converted to float32 where fragments of float16 have sums of float16.
    """
    for stage in (MatrixUnit, MatrixUnitF32):
        if problem.dtype in stage.multiplies and device.fragment(stage.operands, "f32"):
            return stage.on(device)
    return None


PARTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # of k: few numbers, since each is a shader of its own
MOST_PARTS_BYTES = 2**26  # of partial sums


def divided(tile: Any, problem: Product) -> Iterator[Any]:
    """Yield `tile` with each of PARTS of k that have LEAST_STEPS steps or more and need little memory."""
    yield tile
    steps = ceil_div(problem.k, tile.inner_step)
    for splits in PARTS[1:]:
        if splits * LEAST_STEPS <= steps and partial_bytes(problem, splits) <= MOST_PARTS_BYTES:
            yield dataclasses.replace(tile, splits=splits)


def parts_of_k(problem: Product, tiles: int, steps: int, multiprocessors: int, least: int = LEAST_STEPS) -> list[int]:
    """Return the numbers of parts of k to try: one, and those with which `tiles` tiles fill the multiprocessors.

    Each part has `least` of the `steps` of k, or more.
    """
    found, partial = {1}, partial_bytes(problem, 1)
    for multiple in MULTIPLES:
        wanted = round(multiple * multiprocessors / tiles)
        splits = min(wanted, MOST_SPLITS, steps // least, MOST_PARTIAL // partial)
        if splits > 1:
            found.add(ceil_div(steps, ceil_div(steps, splits)))  # without empty parts
    return sorted(found)
