"""Candidates for reductions, by the shape and the kind of device, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from webmm.engine.device import Device
from webmm.kernels.base import ceil_div
from webmm.kernels.reduce.base import ReduceKernel
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import SPLITS, ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.problems.reduce import Reduction

# GPUs, by sums on an H200, as shares of its copy bandwidth (docs/reductions.md has more):
# - rows of 64 elements by `vectorized` 0.76, by `tree` 0.10; of 256 0.69 and 0.40; of 1024 0.42 and 0.74;
# - a row's workgroup does best with some 64 elements per lane: 8192×32768 by `subgroup` of 512 lanes 1.05, of 128 1.01;
#   16384×1024 of 64 lanes 0.72, of 512 0.24; `tree` is as good;
# - a second pass costs a dispatch: 128×32768 in one 0.50, in two 0.39; one row of 2^28 in two 1.04;
# - columns: 64×256×1024 over the second axis by `columns` 0.73, in two passes 0.24; 32768×8192 over the first, which is
#   128 strips, 0.73 and 0.995.
SHORT = 512  # elements of a row up to which an invocation has it for itself, where there are
MANY = 2**15  # so many rows
PER_LANE = 64  # elements
FEW = 64  # rows up to which several workgroups share one
ENOUGH = 512  # strips of columns that keep a GPU busy
WORKGROUPS = 2048  # of a first pass
STRIP = 4 * Columns().wx  # columns
CPU_ENOUGH = 16  # rows that keep a CPU busy

ANYWHERE: tuple[ReduceKernel, ...] = (Tree(lanes=64), TwoPass(lanes=64), PerRow())


def candidates(problem: Reduction, device: Device) -> Iterator[ReduceKernel]:
    """Yield the kernels that are worth running for `problem` on `device`, best first."""
    lanes = device.capabilities.subgroup_size
    if device.info.kind == "cpu":
        yield from _on_cpu(problem, lanes)
    elif problem.inner > 1 and problem.x.inner_stride < problem.x.stride:
        yield from _columns(problem)
    else:
        yield from made_for_gpus(problem, lanes)


def _lanes(length: int) -> int:
    """Return how many invocations share a row."""
    return next((lanes for lanes in (64, 128, 256) if length <= PER_LANE * lanes), 512)


def made_for_gpus(problem: Reduction, lanes: int) -> Iterator[ReduceKernel]:
    """Yield the kernels for contiguous rows on a GPU with such subgroups, best first."""
    rows, length = problem.results, problem.length
    if length < SHORT and rows >= MANY:
        yield Vectorized(32, 8 if length >= 32 else 2)
    if rows < FEW and length >= 2**16:
        yield TwoPass(512, 4, _splits(rows, length // 2**13), "subgroup" if lanes else "tree")
    yield Subgroup(_lanes(length)) if lanes else Tree(_lanes(length))


def _columns(problem: Reduction) -> Iterator[ReduceKernel]:
    strips = problem.outer * ceil_div(problem.inner, STRIP)
    if strips < ENOUGH and problem.length >= 1024:
        yield ColumnsTwoPass(splits=_splits(strips, problem.length // 64))
    yield Columns()


def _splits(parts: int, most: int) -> int:
    """Return by which power of two to multiply so many workgroups, up to `most`."""
    return next(n for n in reversed(SPLITS) if n == SPLITS[0] or (n * parts <= WORKGROUPS and n <= most))


def _on_cpu(problem: Reduction, lanes: int) -> Iterator[ReduceKernel]:
    """Yield what needs no workgroup memory: barriers are slow on a CPU.

    On lavapipe with 8 lanes, sums of 16 MiB: 512×8192 by `vectorized` 1.6 ms, by `alone` 2.2, `subgroup` 4.3, `tree`
    5.9; one row of 2^22 by `two_pass` of 32 parts 2.5; 4096×1024 over the first axis by `columns` 19, `per_row` 25.
    """
    p = problem
    if p.inner > 1 and p.x.inner_stride < p.x.stride:
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
