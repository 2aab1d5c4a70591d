"""Tiles and parts of k for float16 products on matrix units, ranked by predicted times."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from webmm.choose.field import parts_of_k
from webmm.kernels.base import Capabilities, ceil_div
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.split_k import partial_bytes
from webmm.problems.gemm import Gemm

MULTIPROCESSORS = 132  # of an H200, for devices that were not probed
FEW = 4  # with at most this many rows or columns, stages without matrix units are faster (H200)
LEAST_STEPS = 2  # steps in each part of k


@dataclass(frozen=True)
class Times:
    """Times of a workgroup in µs, fitted to measurements on an H200.

    `alone` is the time of a step if the workgroup has a multiprocessor to itself, `shared` the time that a step takes
    from several workgroups on a multiprocessor; `end` and `end_shared` are those of loading the first tiles and storing
    C. A multiprocessor runs `resident` workgroups at once.
    """

    resident: int
    alone: float
    shared: float
    end: float
    end_shared: float

    def of(self, workgroups: int, steps: int, slower: float, slower_end: float) -> float:
        """Return the time of that many workgroups per multiprocessor, `resident` at most, with `steps` each."""
        step, end = max(self.alone, workgroups * self.shared), max(self.end, workgroups * self.end_shared)
        return steps * step * slower + end * slower_end


TILES: tuple[tuple[dict[str, Any], Times], ...] = (
    ({}, Times(2, 0.576, 0.449, 5.5, 1.0)),
    ({"bk": 64, "slices": 2}, Times(1, 0.686, 0.686, 3.9, 3.9)),
    ({"bn": 64, "bk": 64, "sn": 32}, Times(1, 0.543, 0.543, 2.9, 2.9)),
    ({"bm": 64, "sm": 32}, Times(3, 0.509, 0.305, 3.0, 1.1)),
    ({"bm": 64, "bn": 64, "sm": 32, "sn": 32}, Times(4, 0.434, 0.204, 2.0, 0.5)),
    ({"bm": 64, "bn": 64, "bk": 64, "sm": 32, "sn": 32}, Times(2, 0.518, 0.404, 1.5, 0.9)),
    ({"bm": 64, "bn": 64, "bk": 64, "sn": 32, "slices": 2}, Times(2, 0.612, 0.397, 1.3, 1.0)),
    ({"bm": 64, "bn": 32, "bk": 64, "sm": 32, "sn": 32, "slices": 2}, Times(3, 0.468, 0.312, 1.1, 0.4)),
    ({"bm": 64, "bn": 32, "bk": 16, "sm": 32, "sn": 32}, Times(8, 0.35, 0.06, 2.2, 0.3)),
    ({"bm": 32, "bn": 64, "bk": 128, "sm": 32, "sn": 32, "slices": 4}, Times(1, 0.6, 0.6, 2.0, 2.0)),
    ({"bm": 32, "bn": 128, "bk": 64, "sm": 32, "sn": 32}, Times(2, 0.687, 0.637, 1.1, 1.1)),
    ({"bm": 16, "bn": 32, "bk": 128, "sm": 16, "sn": 32, "slices": 4}, Times(3, 0.674, 0.25, 0.7, 0.3)),
    ({"bm": 16, "bn": 64, "bk": 128, "sm": 16, "sn": 64, "slices": 4}, Times(1, 0.528, 0.528, 0.6, 0.6)),
)
# On an H200: µs of any dispatch, and of the one that adds partial sums; bytes per µs of operands in memory, and of
# partial sums, which are in cache; and by how much steps take longer if rows of A and B are not a multiple of 8
# elements, and ends if those of C are not a multiple of 4.
LAUNCH, SECOND, BYTES, PARTIAL_BYTES = 2.1, 2.1, 2.3e6, 3.2e6
UNALIGNED, SINGLE = 1.77, 2.9


def ranked(problem: Gemm, device: Capabilities) -> list[MatrixUnit]:
    """Return the stage with each of TILES and the best number of parts of k, best first; [] if others are faster."""
    if min(problem.m, problem.n) <= FEW:
        return []
    stage, multiprocessors = MatrixUnit.on(device), device.workgroups or MULTIPROCESSORS
    found: list[tuple[float, MatrixUnit]] = []
    for tiles, times in TILES:
        kernel = dataclasses.replace(stage, **tiles)
        count, steps = kernel.grid.tiles(problem) * problem.batch, ceil_div(problem.k, kernel.bk)
        parts = parts_of_k(problem, count, steps, multiprocessors, LEAST_STEPS)
        divided = [dataclasses.replace(kernel, splits=splits) for splits in parts]
        found.append(min(((predicted(each, times, problem, multiprocessors), each) for each in divided), key=_time))
    return [kernel for _, kernel in sorted(found, key=_time)]


def _time(pair: tuple[float, MatrixUnit]) -> float:
    return pair[0]


def predicted(kernel: MatrixUnit, times: Times, problem: Gemm, multiprocessors: int) -> float:
    """Return the predicted time of `kernel` in µs."""
    p, splits = problem, kernel.splits
    steps = ceil_div(ceil_div(p.k, kernel.bk), splits)
    share = kernel.bm / (kernel.bm + kernel.bn)  # of A in what is loaded
    step = share * (1 if p.a.aligned(p.m, p.k, kernel.vector) else UNALIGNED)
    step += (1 - share) * (1 if p.b.aligned(p.k, p.n, kernel.vector) else UNALIGNED)
    end = 1 if splits > 1 or p.c.vectorizable(p.m, p.n) else SINGLE
    queue = kernel.grid.tiles(p) * p.batch * splits / multiprocessors  # workgroups for each multiprocessor
    waves = math.floor(queue / times.resident)
    last = math.ceil(queue - waves * times.resident)
    total = waves * times.of(times.resident, steps, step, end)
    total += times.of(last, steps, step, end) if last else 0
    summing = SECOND + partial_bytes(p, splits) / PARTIAL_BYTES if splits > 1 else 0
    return LAUNCH + max(total, p.bytes / BYTES) + summing
