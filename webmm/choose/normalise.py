"""Candidate kernels for normalisations, by shape and kind of device, from measurements.

A row stays in registers if 1024 lanes can hold it: layer norm of 8192×32768 reaches 0.98 of an H200's copy bandwidth,
softmax 0.97. Longer rows are read twice, and reach two thirds at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webmm.choose.reduce import COMMON, fitting, row_tiles, splits_of
from webmm.engine.device import Device
from webmm.kernels.base import Kernel, ceil_div
from webmm.kernels.normalise.row_tiles import RowTiles
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.reduce.columns import WIDTHS
from webmm.problems.normalise import Normalisation

# Softmax on an H200 in µs, with the time of a copy in parentheses:
# - 1,516,374 rows of 9 through workgroup memory 39, by a workgroup per row 1879 (28); 104,805 of 96 by `row_tiles`
#   directly 23, through workgroup memory 34 (22);
# - 33,298×2 by 128 workgroups per row 9, by 8 14 (3); 11,124,633 by 1024 workgroups 47, by 2048 56 (24); 7 of
#   36,125,862 by 2048 workgroups per row 899, by 512 1096, by 64 1534 (474);
# - columns: 766 of 2817×·×48 in registers 214, read twice 313 (197); 915 of 589×·×51, which are not aligned, by three
#   invocations along j in registers 210, by 14 that read twice 127 (54); 377,902 of ·×44 by 128 workgroups of 768
#   invocations 66, by 512 of 352 198 (34); 318,505 of ·×641 by strips of 128 columns 868, of 64 1024 (384); 822 of
#   ·×180,359 558 and 600 (282); aligned ones, such as 16,271 of ·×4960, 283 and 257 (155);
# - columns of few strips, such as 4526 of ·×31, by one workgroup of 512 per four columns, instead of two dispatches:
#   32 instead of 13 (5).
FEW = 132  # rows that leave a GPU partly idle with a workgroup each
LONG = 2**15  # elements that the registers of a workgroup hold
PART = 2**12  # elements of a longer row per workgroup, at least
PARTS, MORE_PARTS, HUGE = 4096, 2**14, 2**27  # workgroups for split rows, and for those of at least HUGE elements
SMALL = 2**20  # elements that are in flight at once: latency is the limit
TILE = 64  # elements from which on rows are loaded directly
HELD = 8  # vec4 of a column per invocation, in strips that stay in registers
ENOUGH = 264  # strips of columns that occupy a GPU
WIDE, WIDEST = 256, 32  # columns, if not aligned, from which on strips are wide; invocations along j of such strips

ANYWHERE = (Rows(256, 8), Rows(64, 8))


def candidates(problem: Normalisation, device: Device) -> Iterator[Kernel[Any]]:
    """Yield the candidate kernels for `problem` on `device`, best first."""
    lanes, cpu = device.capabilities.subgroup_size, device.info.kind == "cpu"
    if problem.inner > 1 and problem.x.inner_stride < problem.x.stride and problem.function == "softmax":
        if not cpu:  # not all devices have enough invocations and workgroup memory for wide strips
            yield from dict.fromkeys((_strips(problem, WIDEST), _strips(problem)))
        yield Strips(8, 1, 4) if cpu else Strips(8, 16, 4)  # the latter fits where no 512 invocations do
    if cpu:  # a row by the lanes of one subgroup, without any barrier
        yield Rows(lanes, 4, "alone") if lanes else Rows(1, 4)
    else:
        yield from _by_rows(problem, lanes)


def _strips(problem: Normalisation, widest: int = 0) -> Strips:
    """Return the kernel for strided columns: held in registers if they fit, split if there are few strips.

    Strips of many unaligned columns have `widest` invocations along j, if not 0.
    """
    p = problem
    held = HELD // 2 if p.flops < SMALL else HELD
    heights = (n for n in (1, 2, 4, 8, 16, 32, 64) if p.length <= (12 if n == 32 and p.inner % 8 else held) * n)
    wy = next(heights, 128)
    wx = _held(p, min(32, 512 // wy))
    if wx and p.length <= (12 if wy == 32 else HELD) * wy:
        return Strips(wx, wy, ceil_div(p.length, wy))
    wx = fitting(p.inner) if p.inner < 200 else 16
    strips = p.outer * ceil_div(p.inner, 4 * wx)
    wide = bool(widest and p.inner % 4 and p.inner >= WIDE)
    wide = wide and 4 * widest * ceil_div(p.inner, 4 * widest) <= 1.2 * p.inner
    if strips >= (ENOUGH if p.length >= 2048 else ENOUGH // 2):
        return Strips(widest if wide else wx, 32 if p.length >= 256 else 16, 4)
    if p.flops < SMALL:
        return Strips(min(wx, 10), 32, 1, splits_of(strips, p.length // 24, 128))
    if wide and p.flops >= 2**25:
        return Strips(widest, 32, 4, splits_of(p.outer * ceil_div(p.inner, 4 * widest), min(256, p.length // 128)))
    workgroups = next((n for n, most in ((400, 2**22), (840, 2**24)) if p.flops < most), 2048)
    splits = splits_of(strips, min(256, p.length // 32), workgroups)  # each workgroup reads all partial results
    return Strips(wx, 16 if p.inner > 64 else 64 if p.flops >= 2**23 else 32, 4, splits)


def _held(problem: Normalisation, most: int) -> int:
    """Return the number of invocations along j of strips in registers, at most `most`; 0 if strips are too narrow.

    Small problems leave a GPU idle anyway. Others read and write parts of sectors at both ends of a strip, unless it
    covers all columns or they are aligned.
    """
    p = problem
    columns = p.outer * p.inner
    if p.flops < SMALL:
        return next((n for n in (32, 16, 8, 4, 2, 1) if n <= most and 256 * n <= columns), 1 if p.length <= 512 else 0)
    if p.inner <= 4 * most:
        return ceil_div(p.inner, 4)
    if p.inner % 8 and most < 16:
        return 0
    if p.inner >= 200:
        return most
    return min((n for n in WIDTHS if n <= most < 2 * n), key=lambda n: 4 * n * ceil_div(p.inner, 4 * n) - n)


def _by_rows(problem: Normalisation, lanes: int) -> Iterator[Kernel[Any]]:
    """Yield the kernels for rows."""
    p, way = problem, "subgroup" if lanes else "tree"
    if p.length <= 768 and p.inner == 1:
        yield _row_tiles(p, lanes)
    if (p.length > LONG and p.results < 4 * FEW) or (p.length > 24_000 and p.results <= 8):
        if p.flops < (2**24 if p.results <= 8 else 2**22):
            yield Rows(256, 1, way, splits_of(p.results, p.length // 900, 1024))
        parts = MORE_PARTS if p.flops >= HUGE else PARTS
        yield Rows(512, 4, way, splits_of(p.results, p.length // PART, parts))
    keeping = ((128, 2560), (256, 5120), (512, 2**14), (1024, 2**15))
    share = next((n for n, most in keeping if p.length <= most), 512)
    if share <= 256 and p.results * share <= 2**15 and p.length > 8 * share:
        share *= 2
    for n in dict.fromkeys((share, min(share, COMMON))):
        yield Rows(n, min(8, ceil_div(p.length, 4 * n)), way)


def _row_tiles(problem: Normalisation, lanes: int) -> RowTiles:
    """Return the kernel for short rows."""
    p = problem
    tiles = row_tiles(p.length, p.results, lanes, 3 if p.length < TILE else 2)
    if p.length < TILE:
        return RowTiles(64, tiles.per_row, tiles.unroll, tiles.combine, "tile")
    return RowTiles(tiles.lanes, tiles.per_row, tiles.unroll, tiles.combine)
