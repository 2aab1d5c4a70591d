"""Candidates for products with quantised weights."""

from __future__ import annotations

from dataclasses import replace

from webmm.choose.quantized import ENOUGH_TILES
from webmm.engine.device import Device
from webmm.kernels.base import Capabilities
from webmm.kernels.weights.base import WeightKernel
from webmm.kernels.weights.matrix_unit import MatrixUnit
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.problems.weights import WeightOnly

FEW_ROWS = 32  # `vector` is faster than tiles up to this many rows (H200, n = k = 4096)
ROWS = (1, 2, 4, 8)  # the numbers of rows that an invocation of `vector` can compute
CPU_LANES = 8  # lanes of lavapipe's vector registers
# Tiles for matrix units, each used if there are ENOUGH_MATRIX_TILES. TFLOP/s on an H200 for 1024 and 256 rows
# (n = k = 4096, 4 bits):
#   215   73
#   132  114
MATRIX_TILES: tuple[dict[str, int], ...] = ({}, {"bm": 64, "bk": 64, "slices": 2})
ENOUGH_MATRIX_TILES = 128
TILES = (Tiles(), Tiles(bm=32, bn=64, tm=4, tn=4), Tiles(bm=32, bn=32, tm=4, tn=4))


def candidates(problem: WeightOnly, device: Device) -> list[WeightKernel]:
    """Return the kernels that are worth running for `problem` on `device`, best first."""
    if device.info.kind == "cpu":  # workgroup memory is slow: 9.6 GFLOP/s, compared with 4, for 64 rows (lavapipe)
        return [Vector(lanes=CPU_LANES, tm=_rows(problem)), TILES[-1]]
    return [*made_for_matrix_units(problem, device.capabilities), *made_for_gpus(problem)]


def made_for_matrix_units(problem: WeightOnly, device: Capabilities) -> list[WeightKernel]:
    """Return the kernels for matrix units, best first; [] if the device has none or other stages may be faster."""
    stage = MatrixUnit.on(device)
    if stage.unsuited(problem) or stage.matrix_shape not in device.matrix_shapes or problem.m <= FEW_ROWS:
        return []
    kernels = [replace(stage, **tiles) for tiles in MATRIX_TILES]
    return [kernel for kernel in kernels if kernel.grid.tiles(problem) >= ENOUGH_MATRIX_TILES]


def _rows(problem: WeightOnly) -> int:
    return next((rows for rows in ROWS if rows >= problem.m), ROWS[-1])


def made_for_gpus(problem: WeightOnly) -> list[WeightKernel]:
    """Return the kernels for GPUs, best first."""
    rows = _rows(problem)
    lanes = 32 if rows == ROWS[-1] else Vector().lanes  # 8 rows: 26 µs with 32 lanes, 30 with 64 (H200, n = k = 4096)
    vector = Vector(lanes, rows)
    if problem.m <= FEW_ROWS:
        return [vector, TILES[-1]]
    filling = [kernel for kernel in TILES if kernel.grid.tiles(problem) >= ENOUGH_TILES]
    return [*filling, TILES[-1], vector]
