"""Register tiles whose k workgroups may divide, ranked by their predicted times on a large GPU.

A multiprocessor that runs one workgroup waits for each inner element of the tile (`latency`); one that runs several
multiplies and loads for all of them, one after another. More and smaller workgroups, from smaller tiles or more parts
of k, fill the GPU, but load more per multiplication, and parts of k need a second dispatch.

Best ÷ chosen time of int8 problems that were not fitted to is 0.96, a tenth below 0.90 (`bench/fit_divided.py`); if the
prediction assumes 66 or 264 multiprocessors instead of 132, 0.93 and 0.96. Three tiles are enough: with five or six
(64×128 and 128×128, eight rows per invocation, bk 8) the best of them is better, but the prediction does not tell them
apart well and chooses worse, 0.92 to 0.93. Where they would pay: 0.69 for 61092×248×18, a k that half of the tile's 64
bytes hold. Two to eight parts of k even out the last wave where tiles fill the GPU one and a half times
(1000×3072×5120 with 8-bit weights).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from webmm.kernels.base import ceil_div
from webmm.kernels.splits import DividedTiles, partial_bytes
from webmm.problems.product import Product

MULTIPROCESSORS = 132  # of an H200, for devices that were not probed
PARTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # few numbers, since each is a shader of its own
LEAST_STEPS = 4  # steps of k in each part
MOST_PARTIAL = 2**26  # bytes of partial sums
LIKELY = 4  # kernels that become candidates

K = TypeVar("K", bound=DividedTiles[Any])


@dataclass(frozen=True)
class Costs:
    """Times in µs, fitted to measurements on an H200; only their ratios matter."""

    latency: float  # of an inner element, if a multiprocessor runs one workgroup
    product: float  # of an inner element, for each element of a tile of C
    load: float  # of an inner element, for each row and column of a tile of C
    workgroup: float  # of starting and ending 64 invocations
    sums: float  # of the dispatch that adds partial sums
    partial: float  # of a million partial sums


def likely(tiles: Iterable[K], problem: Product, costs: Costs, multiprocessors: int) -> list[K]:
    """Return the kernels with the shortest predicted times, among `tiles` with k whole and in parts.

    At least one does not divide k: it needs no memory for partial sums.
    """
    kernels = [kernel for tile in tiles for kernel in divided(tile, problem)]
    ranked = sorted(kernels, key=lambda kernel: predicted(kernel, problem, costs, multiprocessors))
    whole = next(kernel for kernel in ranked if kernel.splits == 1)
    return list(dict.fromkeys([*ranked[:LIKELY], whole]))


def divided(tile: K, problem: Product) -> Iterator[K]:
    """Yield `tile` with each number of parts of k that have several steps and need little memory."""
    yield tile
    steps = ceil_div(problem.k, tile.inner_step)
    for splits in PARTS[1:]:
        if splits * LEAST_STEPS <= steps and partial_bytes(problem, splits) <= MOST_PARTIAL:
            yield replace(tile, splits=splits)


def predicted(
    kernel: DividedTiles[Any], problem: Product, costs: Costs, multiprocessors: int = MULTIPROCESSORS
) -> float:
    """Return the predicted time in µs, without that of a launch."""
    workgroups = kernel.grid.tiles(problem) * kernel.splits
    each = ceil_div(workgroups, multiprocessors)  # workgroups per multiprocessor
    depth = ceil_div(ceil_div(problem.k, kernel.inner_step), kernel.splits) * kernel.bk
    work = costs.product * kernel.bm * kernel.bn + costs.load * (kernel.bm + kernel.bn)
    time = depth * math.sqrt(costs.latency**2 + (each * work) ** 2)
    time += each * costs.workgroup * kernel.sharers / 64
    if kernel.splits == 1:
        return time
    return time + costs.sums + costs.partial * kernel.splits * problem.m * problem.n / 1e6
