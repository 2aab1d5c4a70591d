"""Candidates for reductions: on GPUs a field that the model of cost ranks, on CPUs rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webmm.engine.device import Device
from webmm.kernels.base import ceil_div
from webmm.kernels.reduce.base import LEAST_SUBGROUP, ReduceKernel
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import SPLITS, ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.problems.reduce import Reduction

SHORT, SHORTEST = 1024, 128  # elements of a row up to which a workgroup may, and must, reduce several rows
LONG = 2**16  # elements from which on a row has several workgroups, unless other rows occupy the GPU
SIZES = (64, 128, 256, 512, 1024)  # invocations of a workgroup
UNROLLS = (1, 2, 3, 4)  # vec4 that an invocation loads at once
PER_ROW = (1, 2, 4, 8, 16, 32)  # invocations of a row, of several per workgroup
MOST_HELD = 8  # vec4 of such a row per invocation
STRIPS = (2, 4, 8, 16, 32)  # invocations along j, with four columns each
HEIGHTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # along k
LEAST, MOST = 64, 512  # invocations of both
WASTE = 1.25  # columns covered by strips ÷ columns, at most, where other widths waste less
PER_PART = 8  # elements per invocation of a part of a row or column, at least
FILLING = (1, 2, 4, 8, 16, 32)  # workgroups per multiprocessor to aim at when rows or columns are split
CPU_ENOUGH = 16  # rows that keep a CPU busy

ANYWHERE: tuple[ReduceKernel, ...] = (Tree(lanes=64), TwoPass(lanes=64), PerRow())


def candidates(problem: Reduction, device: Device) -> Iterable[ReduceKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first: none where the model ranks."""
    return _on_cpu(problem, device.capabilities.subgroup_size) if device.info.kind == "cpu" else ()


def field(problem: Reduction, device: Device, multiprocessors: int) -> Iterator[ReduceKernel]:
    """Yield the kernels for `problem` on `device` from which the model of cost chooses."""
    if device.info.kind == "cpu":
        return
    p, lanes = problem, device.capabilities.subgroup_size
    if strided(p):
        yield from _columns(p, multiprocessors)
        return
    if p.inner == 1 and p.length <= SHORT:
        yield from (RowTiles(*tile) for tile in row_tiles(p, lanes))
        if p.length <= SHORTEST:
            return
    way = "subgroup" if lanes >= LEAST_SUBGROUP else "tree"
    kind = Subgroup if way == "subgroup" else Tree
    for unroll in () if few_long(p, multiprocessors) else UNROLLS:
        yield from (kind(n, unroll) for n in SIZES if n == SIZES[0] or 2 * n * unroll < p.length)
        if lanes == 32:
            yield Alone(lanes, unroll)
    for n in (128, 256, 512):
        for splits in splits_of(p.results, p.length // (PER_PART * n), multiprocessors):
            yield from (TwoPass(n, unroll, splits, way) for unroll in (1, 2, 4))


def strided(problem: Reduction) -> bool:
    """Return whether neighbouring elements of x belong to different results."""
    return problem.inner > 1 and problem.x.inner_stride < problem.x.stride


def few_long(problem: Reduction, multiprocessors: int) -> bool:
    """Return whether a workgroup per row would leave most multiprocessors idle, for long."""
    return problem.length >= LONG and 4 * problem.results <= multiprocessors


def row_tiles(problem: Reduction, lanes: int) -> Iterator[tuple[int, int, int, str]]:
    """Yield settings of `row_tiles` for rows of at most SHORT elements on subgroups of `lanes` lanes."""
    for per_row in PER_ROW:
        unroll = ceil_div(problem.length, 4 * per_row)
        if unroll <= MOST_HELD and (per_row == 1 or 4 * per_row < 2 * problem.length):
            for size in (32, 128):
                yield size, per_row, unroll, "subgroup" if lanes >= per_row else "tree"


def strips(problem: Reduction, most: int = MOST, widths: tuple[int, ...] = STRIPS) -> Iterator[tuple[int, int]]:
    """Yield the invocations along j and k of workgroups for columns, `most` in all."""
    whole = ceil_div(problem.inner, 4)  # all columns
    suited = dict.fromkeys((*widths, whole) if whole <= max(widths) else widths)
    covered = {n: 4 * n * ceil_div(problem.inner, 4 * n) / problem.inner for n in suited}
    least = min(covered.values())
    for wx, ratio in covered.items():
        if ratio <= WASTE * least:
            enough = ceil_div(LEAST, wx) if 2 * wx <= LEAST else 1
            least_wy = min(enough, 1 << max(1, problem.length // 2).bit_length() - 1)  # columns may be short
            yield from ((wx, wy) for wy in HEIGHTS if wy >= least_wy and wx * wy <= most)


def splits_of(parts: int, most: int, multiprocessors: int) -> Iterator[int]:
    """Yield numbers of splits with which `parts` workgroups fill the multiprocessors, or as many as there may be."""
    if parts < 2 * multiprocessors:
        wanted = {min(most, round(multiple * multiprocessors / parts)).bit_length() - 1 for multiple in FILLING}
        yield from (n for n in SPLITS if n.bit_length() - 1 in wanted)


def _columns(problem: Reduction, multiprocessors: int) -> Iterator[ReduceKernel]:
    p = problem
    for wx, wy in strips(p):
        if wy > 1 and 2 * wy > p.length:
            continue
        whole = ceil_div(p.length, wy)  # all rows
        for unroll in sorted({2, 4, 8, whole}):
            if unroll <= min(whole, 8):
                yield Columns(wx, wy, unroll)
        if wy in (8, 16):
            parts = p.outer * ceil_div(p.inner, 4 * wx)
            for splits in splits_of(parts, p.length // (PER_PART * wy), multiprocessors):
                yield from (ColumnsTwoPass(wx, wy, unroll, splits) for unroll in (2, 4))


def _on_cpu(problem: Reduction, lanes: int) -> Iterator[ReduceKernel]:
    """Yield kernels without workgroup memory, because barriers are slow on a CPU.

    On lavapipe with 8 lanes, sums of 16 MiB: 512×8192 by `vectorized` 1.6 ms, by `alone` 2.2, `subgroup` 4.3, `tree`
    5.9; one row of 2^22 by `two_pass` of 32 parts 2.5; 4096×1024 over the first axis by `columns` 19, `per_row` 25.
    """
    p = problem
    if strided(p):
        if p.length > 2**14 or (p.outer * p.inner < 4 * 8 * CPU_ENOUGH and p.length >= 512):
            yield ColumnsTwoPass(8, 1, 4, 16)
        yield Columns(16 if p.inner >= 64 else 8, 1, 4)
    if p.results >= CPU_ENOUGH or p.length < 2**12:
        yield Vectorized(8, 8 if p.length >= 64 else 1)
        yield PerRow(8)
    if lanes:
        yield TwoPass(min(lanes, 8), 4, 32, "alone")
        yield Alone(min(lanes, 8), 4)
    yield TwoPass(4, 4, 128)
