"""Candidates for products with quantised weights."""

from __future__ import annotations

from webmm.choose.quantized import ENOUGH_TILES
from webmm.engine.device import Device
from webmm.kernels.weights.base import WeightKernel
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.problems.weights import WeightOnly

FEW_ROWS = 32  # up to which `vector` is faster than tiles (H200, n = k = 4096)
ROWS = (1, 2, 4, 8)  # that `vector` takes at once
CPU_LANES = 8  # of lavapipe's vector registers
TILES = (Tiles(), Tiles(bm=32, bn=64, tm=4, tn=4), Tiles(bm=32, bn=32, tm=4, tn=4))


def candidates(problem: WeightOnly, device: Device) -> list[WeightKernel]:
    """Return the kernels that are worth running for `problem` on `device`, best first."""
    if device.info.kind == "cpu":  # where workgroup memory is slow: 9.6 against 4 GFLOP/s for 64 rows (lavapipe)
        return [Vector(lanes=CPU_LANES, tm=_rows(problem)), TILES[-1]]
    return made_for_gpus(problem)


def _rows(problem: WeightOnly) -> int:
    return next((rows for rows in ROWS if rows >= problem.m), ROWS[-1])


def made_for_gpus(problem: WeightOnly) -> list[WeightKernel]:
    """Return the kernels for GPUs, best first."""
    rows = _rows(problem)
    lanes = 32 if rows == ROWS[-1] else Vector().lanes  # 8 rows by 32 lanes 26 µs, by 64 30 (H200, n = k = 4096)
    vector = Vector(lanes, rows)
    if problem.m <= FEW_ROWS:
        return [vector, TILES[-1]]
    filling = [kernel for kernel in TILES if kernel.grid.tiles(problem) >= ENOUGH_TILES]
    return [*filling, TILES[-1], vector]
