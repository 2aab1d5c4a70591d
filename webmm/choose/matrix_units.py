"""Tiles and parts of k for float16 products on matrix units, ranked by predicted times.

`bench/fit_matrix_units.py` fits these; over its data, the best time is 0.976 of the time of the kernel chosen. Against
cuBLAS, 299 random problems (docs/results.md) had a mean of 0.48 and a worst of 0.12 with five tiles and k undivided,
0.74 and 0.25 now: K divided among workgroups takes 97×507×189653 from 1,505 to 158 µs and 64×5120×5120 nt from 75 to
34, thirteen tiles take 40787×30×16 from 33 to 9.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from webmm.choose.divided import MULTIPROCESSORS
from webmm.choose.field import parts_of_k
from webmm.kernels.base import Capabilities, ceil_div
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.splits import partial_bytes
from webmm.problems.gemm import Gemm

# With at most FEW rows or columns, or few rows and few bytes, stages without matrix units are faster. µs on an H200:
# 5×896×1536 nt 5.4 and 7.1, 8×11008×1536 nt 28.4 and 12.5.
FEW, FEW_ROWS, FEW_BYTES = 4, 8, 2**23
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
    ({}, Times(2, 0.541, 0.440, 4.35, 1.00)),
    ({"bk": 64, "slices": 2}, Times(1, 0.938, 0.938, 3.49, 3.49)),
    ({"bk": 64, "sn": 32}, Times(1, 0.950, 0.950, 2.07, 2.07)),
    ({"bn": 64, "bk": 64, "sn": 32}, Times(1, 0.666, 0.666, 2.42, 2.42)),
    ({"bm": 64, "sm": 32}, Times(3, 0.412, 0.301, 2.12, 0.96)),
    ({"bm": 64, "bn": 64, "sm": 32, "sn": 32}, Times(4, 0.318, 0.203, 1.85, 0.46)),
    ({"bm": 64, "bn": 64, "bk": 64, "sm": 32, "sn": 32}, Times(2, 0.454, 0.363, 1.77, 0.89)),
    ({"bm": 64, "bn": 64, "bk": 64, "sn": 32, "slices": 2}, Times(2, 0.570, 0.367, 1.74, 1.05)),
    ({"bm": 64, "bn": 32, "bk": 64, "sm": 32, "sn": 32, "slices": 2}, Times(4, 0.347, 0.283, 1.63, 0.41)),
    ({"bm": 64, "bn": 32, "bk": 16, "sm": 32, "sn": 32}, Times(6, 0.433, 0.053, 0.68, 0.20)),
    ({"bm": 32, "bn": 128, "bk": 64, "sm": 32, "sn": 32}, Times(2, 0.525, 0.455, 1.72, 0.99)),
    ({"bm": 16, "bn": 32, "bk": 128, "sm": 16, "sn": 32, "slices": 4}, Times(3, 0.535, 0.086, 1.03, 0.66)),
    ({"bm": 16, "bn": 64, "bk": 128, "sm": 16, "sn": 64, "slices": 4}, Times(2, 0.461, 0.355, 1.71, 0.88)),
)
# On an H200: µs of any dispatch, and of the one that adds partial sums; bytes per µs of operands in memory, and of
# partial sums, which are in cache; and by how much steps take longer if rows of A and B are not a multiple of 8
# elements, and ends if those of C are not a multiple of 4.
LAUNCH, SECOND, BYTES, PARTIAL_BYTES = 2.08, 1.79, 3.55e6, 2.8e6
UNALIGNED, SINGLE = 1.77, 1.64


def ranked(problem: Gemm, device: Capabilities) -> list[MatrixUnit]:
    """Return the stage with each of TILES and the best number of parts of k, best first; [] if others are faster."""
    if min(problem.m, problem.n) <= FEW or (problem.m <= FEW_ROWS and problem.bytes < FEW_BYTES):
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
    return LAUNCH + math.sqrt(total**2 + (p.bytes / BYTES) ** 2) + summing
