"""Which kernels of products of floats a GPU may be best served by: the field that a model of time judges."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from webmm.kernels.base import ceil_div
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.split_k import SplitK
from webmm.problems.gemm import Gemm

# From many tiles to few, the larger ones reusing more: bm, bn, bk, tm, tn, and into how many slices k may be divided
# within a workgroup.
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
ORDERS = ((128, 128),)  # tiles whose FMAs stand in plain rows
MULTIPLES = (1, 2, 3, 4, 6)  # of the machine's multiprocessors that divided products may fill
MOST_SPLITS = 320
LEAST_STEPS = 4  # of each part of k
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
FEW = 24  # rows or columns up to which vectors are taken a few at a time


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
    """Yield what may be fastest for `problem` on so many multiprocessors; whether it can run, `check()` says."""
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
            for splits in _splits(tiles, ceil_div(p.k, bk * s), multiprocessors, 16 * p.m * ceil_div(p.n, 4) * p.batch):
                yield _tile(i, s, splits)


def _wasteful(tile: int, size: int) -> bool:
    """Tell whether a tile is more than twice as long as what it covers: then there is one of half its length."""
    return tile >= 2 * size and tile > 16


def _splits(tiles: int, steps: int, multiprocessors: int, partial: int) -> list[int]:
    """Return into how many parts to divide so many steps: one, and what fills the machine with so many tiles."""
    found = {1}
    for multiple in MULTIPLES:
        wanted = round(multiple * multiprocessors / tiles)
        splits = min(wanted, MOST_SPLITS, steps // LEAST_STEPS, MOST_PARTIAL // partial)
        if splits > 1:
            found.add(ceil_div(steps, ceil_div(steps, splits)))  # as many as have a part each
    return sorted(found)
