"""Candidates for normalisations: on GPUs a field that the model of cost ranks, on CPUs rules.

A row stays in registers if 1024 lanes can hold it: layer norm of 8192×32768 reaches 0.98 of an H200's copy bandwidth,
softmax 0.97. Longer rows are read twice, and reach two thirds at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from webmm.choose.reduce import PER_PART, SHORTEST, SIZES, few_long, row_tiles, splits_of, strided, strips
from webmm.engine.device import Device
from webmm.kernels.base import Kernel, ceil_div
from webmm.kernels.normalise.row_tiles import RowTiles
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.reduce.base import LEAST_SUBGROUP
from webmm.problems.normalise import Normalisation

SHORT = 768  # elements of a row up to which a workgroup has several rows
TILE = SHORTEST  # elements of a row up to which it may be loaded through workgroup memory
MOST_HELD, MOST_COLUMNS = 8, 12  # vec4 of a row, and of columns, that an invocation holds in registers
WIDTHS = (1, 2, 4, 8, 16, 32)  # invocations along j of strips
MOST = 1024  # invocations of a strip

ANYWHERE = (Rows(256, 8), Rows(64, 8))


def candidates(problem: Normalisation, device: Device) -> Iterable[Kernel[Any]]:
    """Return the kernels that rules choose for `problem` on `device`, best first: none where the model ranks."""
    return _on_cpu(problem, device.capabilities.subgroup_size) if device.info.kind == "cpu" else ()


def field(problem: Normalisation, device: Device, multiprocessors: int) -> Iterator[Kernel[Any]]:
    """Yield the kernels for `problem` on `device` from which the model of cost chooses."""
    if device.info.kind == "cpu":
        return
    p, lanes = problem, device.capabilities.subgroup_size
    if strided(p) and p.function == "softmax":
        yield from _strips(p, multiprocessors)
        return
    if p.inner == 1 and p.length <= SHORT:
        for size, per_row, unroll, combine in row_tiles(p, lanes):
            yield RowTiles(size, per_row, unroll, combine)
            if p.length <= TILE:
                yield RowTiles(2 * size, per_row, unroll, combine, "tile")
        if p.length <= SHORTEST:
            return
    way = "subgroup" if lanes >= LEAST_SUBGROUP else "tree"
    for n in () if few_long(p, multiprocessors) else SIZES:
        held = ceil_div(p.length, 4 * n)
        yield Rows(n, held if held <= MOST_HELD else 4, way)
    for n, unroll in ((128, 4), (256, 1), (256, 4), (512, 2), (512, 4)):
        for splits in splits_of(p.results, p.length // (PER_PART * n // 2), multiprocessors):
            yield Rows(n, unroll, way, splits)


def _strips(problem: Normalisation, multiprocessors: int) -> Iterator[Strips]:
    """Yield the kernels for strided columns: held in registers, read twice, or split."""
    p = problem
    for wx, wy in strips(p, MOST, WIDTHS):
        if wy > 1 and wy >= 2 * p.length:
            continue
        held = ceil_div(p.length, wy)
        if held <= MOST_COLUMNS:
            yield Strips(wx, wy, held)
        elif wx > 1 or p.inner <= 4:
            yield Strips(wx, wy, 4)
        if wy in (16, 32, 64) and (wx > 1 or p.inner <= 4):
            parts = p.outer * ceil_div(p.inner, 4 * wx)
            for splits in splits_of(parts, min(256, p.length // (PER_PART * wy // 4)), multiprocessors):
                yield from (Strips(wx, wy, unroll, splits) for unroll in (1, 4))


def _on_cpu(problem: Normalisation, lanes: int) -> Iterator[Kernel[Any]]:
    """Yield kernels without barriers: a strip of columns, or a row by the lanes of one subgroup."""
    if strided(problem) and problem.function == "softmax":
        yield Strips(8, 1, 4)
    yield Rows(lanes, 4, "alone") if lanes else Rows(1, 4)
