"""Candidate kernels for normalisations, by shape and kind of device, from measurements.

A row stays in registers if 1024 lanes can hold it: layer norm of 8192×32768 reaches 0.98 of an H200's copy bandwidth,
softmax 0.97. Longer rows are read twice, and reach two thirds at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webmm.choose.reduce import fitting, row_tiles, splits_of
from webmm.engine.device import Device
from webmm.kernels.base import Kernel, ceil_div
from webmm.kernels.normalise.row_tiles import RowTiles
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.problems.normalise import Normalisation

# Softmax on an H200 in µs, with the time of a copy in parentheses:
# - 1,516,374 rows of 9 by `row_tiles` 39, by a workgroup per row 1879 (28); of 88, 261,605 of them, 58 and 249 (46);
# - 102,149 rows of 289 by a subgroup each 67, by `row_tiles` 85, by 64 lanes each 81 (58);
# - 2 rows of 21 million by 1024 workgroups each 175, by one 20,406 (83);
# - columns: 327 of 3853×·×147 in registers 586, read twice 752 (348); 573,472 of ·×33 by 512 workgroups 107, by `rows`
#   1190 (39); 1358 of ·×9827 by 4 workgroups per strip 65, by one 85 (28).
FEW = 132  # rows that leave a GPU partly idle with a workgroup each
LONG = 2**15  # elements that the registers of a workgroup hold
PART = 2**12  # elements of a longer row per workgroup, at least
PARTS = 4096  # workgroups for split rows
NARROW, WIDE = 48, 2048  # columns
HELD = ((4, 8), (8, 8), (16, 8), (32, 8), (32, 12))  # wy and unroll of strips that stay in registers
ENOUGH = 264  # strips of columns that occupy a GPU

ANYWHERE = (Rows(256, 8), Rows(64, 8))


def candidates(problem: Normalisation, device: Device) -> Iterator[Kernel[Any]]:
    """Yield the candidate kernels for `problem` on `device`, best first."""
    lanes, cpu = device.capabilities.subgroup_size, device.info.kind == "cpu"
    if problem.inner > 1 and problem.x.inner_stride < problem.x.stride and problem.function == "softmax":
        if not cpu:
            yield _strips(problem)
        yield Strips(8, 1, 4) if cpu else Strips(8, 16, 4)  # the latter fits where no 512 invocations do
    if cpu:  # a row by the lanes of one subgroup, without any barrier
        yield Rows(lanes, 4, "alone") if lanes else Rows(1, 4)
    else:
        yield from _by_rows(problem, lanes)


def _strips(problem: Normalisation) -> Strips:
    """Return the kernel for strided columns: held in registers if they fit, split if there are few strips."""
    p = problem
    few = p.outer * p.inner < 32 * 2 * ENOUGH
    wx = fitting(p.inner)
    if p.inner >= WIDE or (p.inner > NARROW and not few and p.length <= 128):
        wx = 16
    elif p.inner > NARROW and few:
        wx = 8
    for wy, unroll in HELD:
        if p.length <= wy * unroll:
            return Strips(wx, wy, unroll)
    wy, strips = 32 if p.inner <= NARROW else 16, p.outer * ceil_div(p.inner, 4 * wx)
    if strips >= 6 * ENOUGH or (strips >= ENOUGH and p.length < 2048):
        return Strips(wx, wy, 4)
    return Strips(wx, wy, 4, splits_of(strips, p.length // 32, 400 if p.flops < 2**22 else 800))


def _by_rows(problem: Normalisation, lanes: int) -> Iterator[Kernel[Any]]:
    """Yield the kernels for rows."""
    p, way = problem, "subgroup" if lanes else "tree"
    if p.length <= 256 and p.inner == 1:
        tiles = row_tiles(p.length, lanes)
        yield RowTiles(tiles.lanes, tiles.per_row, tiles.unroll, tiles.combine)
    elif p.length <= 512 and lanes >= 32:
        yield Rows(32, 4, "alone")
    if p.length > LONG and p.results < 4 * FEW:
        yield Rows(512, 4, way, splits_of(p.results, p.length // PART, PARTS))
    unroll = 8 if p.length > (2**14 if p.results < FEW else 2**12) else 4
    keeping = (lanes for lanes in (64, 128, 256, 512, 1024) if p.length <= 4 * unroll * lanes)
    yield Rows(next(keeping, 512), unroll, way)
