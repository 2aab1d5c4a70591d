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

# Reductions on an H200, in µs with the time of a copy in parentheses (docs/reductions.md has more):
# - minima of 4,986,435 rows of 69 by `row_tiles` 337 (329); logsumexp of 517×442 by it 3.6, by 64 lanes per row 5.4;
# - 69,929 maxima of 1537 elements by a subgroup each 100, by 64 lanes 110 (104); logsumexp of 65×3443 by 512 lanes per
#   row 3.7, by 64 7.4 (2.5): few rows need more lanes each;
# - two rows of 76,110 by 64 workgroups each 6.6, by 8 8.7 (2.5);
# - columns: 488 of ·×369 by strips of 8 columns 4.1, of 64 7.1 (2.6); 2045 of 190×·×28 by 64 invocations along k 9.6,
#   by 16 29.1 (11.1); sums of 62674×62×67 by strips of 64 columns 274, of 36 506 (251).
COMMON = 256  # invocations of a workgroup that every device supports
SHORT = 1024  # elements of a row up to which a workgroup reduces several rows
SPREAD = 2**15  # invocations from which on large workgroups occupy a GPU
MANY_ROWS = 2**13  # rows from which on a subgroup reduces one
PER_LANE = 15  # elements of a row per lane
MOST_PER_LANE = 128
INVOCATIONS = 2**17  # that occupy a GPU
FEW = 64  # rows up to which several workgroups share one
ENOUGH = 512  # strips of columns that keep a GPU busy
LONG = 3000  # elements of a column from which on several workgroups share it
WIDE = 1024  # columns
PER_STRIP = 375  # columns per invocation along j, so that there are enough strips
WORKGROUPS = 2048  # in a first pass
STRIPS = 640  # workgroups in a first pass over columns that fit in a cache
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
    rows, length, way = problem.results, problem.length, "subgroup" if lanes else "tree"
    if problem.inner == 1 and length <= SHORT:
        yield row_tiles(length, rows, lanes)
    if rows < FEW and length >= 2**16:
        if problem.flops < 2**24:
            yield TwoPass(256, 2 if problem.flops < 2**22 else 4, splits_of(rows, length // 2**10, 768), way)
        yield from (TwoPass(n, 4, splits_of(rows, length // 2**13), way) for n in (512, COMMON))
    if lanes == 32 and length < 2**12 and rows >= MANY_ROWS:
        yield Alone(32, 3)
    kind, size = Subgroup if lanes else Tree, lanes_for(rows, length)
    yield from (kind(n, 3) for n in dict.fromkeys((size, min(size, COMMON))))


def lanes_for(rows: int, length: int) -> int:
    """Return the invocations per row that occupy a GPU, with about PER_LANE elements each, or more if rows abound."""
    return next(
        (
            n
            for n in (64, 128, 256, 512)
            if (n * rows >= INVOCATIONS and n * MOST_PER_LANE >= length) or n * PER_LANE >= length
        ),
        1024,
    )


def row_tiles(length: int, rows: int, lanes: int, held: int = 3) -> RowTiles:
    """Return the kernel for rows of at most SHORT elements, for subgroups of `lanes` lanes.

    An invocation loads about `held` vec4.
    """
    per_row = next((n for n in (1, 2, 4, 8, 16) if length <= 4 * held * n), 32)
    size = 128 if rows * per_row >= SPREAD else 32
    return RowTiles(size, per_row, ceil_div(length, 4 * per_row), "subgroup" if lanes >= per_row else "tree")


def _columns(problem: Reduction) -> Iterator[ReduceKernel]:
    p, wx = problem, _along(problem)
    wide = 32 if p.inner >= WIDE else fitting(p.inner) if p.inner <= 64 else 16
    strips, parts = p.outer * ceil_div(p.inner, 4 * wx), p.outer * ceil_div(p.inner, 4 * wide)
    if parts < ENOUGH and p.length > (LONG if parts >= 32 else max(512, min(2000, 128 * strips))):
        splits = splits_of(parts, p.length // 16, STRIPS if p.flops < 2**23 else WORKGROUPS)
        yield ColumnsTwoPass(wide, 8, 4, splits) if wide == 32 else ColumnsTwoPass(wide, 16, 2, splits)
    smallest = 256 if p.inner <= 64 else 128
    size = next((n for n in (128, 256) if n >= smallest and n * strips >= 2 * INVOCATIONS), 512)
    wy = next((n for n in (256, 128, 64, 32, 16, 8, 4, 2) if n * wx <= size and 4 * n <= p.length), 1)
    for high in dict.fromkeys((wy, min(wy, COMMON // wx))):
        yield Columns(wx, high, min(4 if p.operation in ("argmax", "argmin") else 8, ceil_div(p.length, high)))


def _along(problem: Reduction) -> int:
    """Return the number of invocations along j, with four columns each."""
    p = problem
    wx = next((n for n in (32, 16, 8, 4) if PER_STRIP * n <= p.outer * p.inner), 2)
    return min(wx, 16 if 64 < p.inner < 200 else 32, ceil_div(p.inner, 4))


def fitting(inner: int) -> int:
    """Return the number of invocations along j, with four columns each, that leaves few past the last column."""
    least = 4 if inner <= 64 else 8
    return min((n for n in WIDTHS if least <= n <= 16), key=lambda n: 4 * n * ceil_div(inner, 4 * n) - n)


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
