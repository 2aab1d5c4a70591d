"""Candidate kernels for reductions, by shape and kind of device, from measurements."""

from __future__ import annotations

from collections.abc import Iterator

from webmm.engine.device import Device
from webmm.kernels.base import ceil_div
from webmm.kernels.reduce.base import ReduceKernel
from webmm.kernels.reduce.columns import WIDTHS, Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import SPLITS, ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.problems.reduce import Reduction

# GPUs: sums on an H200, as shares of its copy bandwidth (more in docs/reductions.md):
# - rows of 64 elements by `vectorized` 0.76, by `tree` 0.10; of 256 0.69 and 0.40; of 1024 0.42 and 0.74;
# - workgroups are fastest with about 64 elements per lane: 8192×32768 by `subgroup` of 512 lanes 1.05, of 128 1.01;
#   16384×1024 of 64 lanes 0.72, of 512 0.24; `tree` is as good;
# - a second pass costs a dispatch: 128×32768 in one pass 0.50, in two 0.39; one row of 2^28 in two 1.04;
# - columns: 64×256×1024 over the second axis by `columns` 0.73, in two passes 0.24; 32768×8192 over the first, which is
#   128 strips, 0.73 and 0.995;
# - logsumexp of 29,055×68 by `row_tiles` 6.5 µs, by a workgroup per row 31; argmax of 5,239,256×8 by
#   `row_tiles` 66 µs, by `vectorized` 102;
# - maxima of 52,860×21×65 over the second axis: workgroups of 32×1 112 µs, of 16×16 236.
SHORT = 384  # elements of a row up to which a workgroup reduces a tile of several rows
TILES = tuple((per_row, unroll) for per_row in (1, 2, 4, 8, 16, 32) for unroll in (2, 3))  # in order of capacity
PER_LANE = 64  # elements of a row per lane
FEW = 64  # rows up to which several workgroups share one
FEW_PER_LANE = 16  # the same for few rows
ENOUGH = 512  # strips of columns that keep a GPU busy
WORKGROUPS = 2048  # in a first pass
STRIPS = 640  # workgroups in a first pass over columns that fit in a cache
MANY = 2**12  # strips from which on small workgroups are faster
CPU_ENOUGH = 16  # rows that keep a CPU busy

ANYWHERE: tuple[ReduceKernel, ...] = (Tree(lanes=64), TwoPass(lanes=64), PerRow())


def candidates(problem: Reduction, device: Device) -> Iterator[ReduceKernel]:
    """Yield the candidate kernels for `problem` on `device`, best first."""
    lanes = device.capabilities.subgroup_size
    if device.info.kind == "cpu":
        yield from _on_cpu(problem, lanes)
    elif problem.inner > 1 and problem.x.inner_stride < problem.x.stride:
        yield from _columns(problem)
    else:
        yield from made_for_gpus(problem, lanes)


def made_for_gpus(problem: Reduction, lanes: int) -> Iterator[ReduceKernel]:
    """Yield the kernels for contiguous rows on a GPU with subgroups of `lanes` lanes (0: none), best first."""
    rows, length = problem.results, problem.length
    if length <= SHORT and problem.inner == 1:
        yield row_tiles(length, lanes)
    if rows < FEW and length >= 2**16:
        yield TwoPass(512, 4, splits_of(rows, length // 2**13), "subgroup" if lanes else "tree")
    per_lane = FEW_PER_LANE if rows < FEW else PER_LANE
    share = next((share for share in (64, 128, 256) if length <= per_lane * share), 512)
    yield Subgroup(share) if lanes else Tree(share)


def row_tiles(length: int, lanes: int) -> RowTiles:
    """Return the kernel whose tiles fit rows of `length` elements, for subgroups of `lanes` lanes."""
    per_row, unroll = next((per_row, unroll) for per_row, unroll in TILES if length <= 4 * per_row * unroll)
    return RowTiles(64, per_row, unroll, "subgroup" if lanes >= per_row else "tree")


def _columns(problem: Reduction) -> Iterator[ReduceKernel]:
    p = problem
    if p.length <= 32 and p.outer * ceil_div(p.inner, 128) >= MANY:
        yield Columns(32, 1, 8)
    wx = fitting(p.inner) if p.inner <= 64 else 16
    strips, wy = p.outer * ceil_div(p.inner, 4 * wx), next((wy for wy in (16, 8) if 4 * wy <= p.length), 4)
    if (strips < 32 and p.length >= 512) or (strips < ENOUGH and p.length >= 2048):
        yield ColumnsTwoPass(wx, wy, 2, splits_of(strips, p.length // 16, STRIPS if p.flops < 2**23 else WORKGROUPS))
    yield Columns(wx, wy, 2 if wy == 16 else 4)


def fitting(inner: int) -> int:
    """Return the number of invocations along j, with four columns each, that leaves few past the last column."""
    return min((wx for wx in WIDTHS if wx <= 16), key=lambda wx: 32 * wx * ceil_div(inner, 4 * wx) - wx)


def splits_of(parts: int, most: int, workgroups: int = WORKGROUPS) -> int:
    """Return the power of two by which to split `parts` workgroups: at most `most`, and `workgroups` in all."""
    return next(n for n in reversed(SPLITS) if n == SPLITS[0] or (n * parts <= workgroups and n <= most))


def _on_cpu(problem: Reduction, lanes: int) -> Iterator[ReduceKernel]:
    """Yield kernels without workgroup memory, because barriers are slow on a CPU.

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
