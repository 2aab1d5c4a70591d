"""Candidates for products with quantised weights."""

from __future__ import annotations

from dataclasses import replace

from webmm.choose.quantized import ENOUGH_TILES
from webmm.engine.device import Device
from webmm.kernels.base import Capabilities
from webmm.kernels.weights.base import WeightKernel
from webmm.kernels.weights.cpu_lanes import CpuLanes
from webmm.kernels.weights.matrix_unit import MatrixUnit
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.problems.weights import WeightOnly

FEW_ROWS = 32  # `vector` is faster than tiles up to this many rows (H200, n = k = 4096)
ROWS = (1, 2, 4, 8)  # the numbers of rows that an invocation of `vector` can compute
CPU_LANES = 8  # of lavapipe's subgroups; SwiftShader's have 4
CPU_ROWS = (1, 4, 8, 16)  # the numbers of rows of a tile on a CPU
# Tiles for matrix units, each used if there are ENOUGH_MATRIX_TILES. TFLOP/s on an H200 for 1024 and 256 rows
# (n = k = 4096, 4 bits):
#   215   73
#   132  114
MATRIX_TILES: tuple[dict[str, int], ...] = ({}, {"bm": 64, "bk": 64, "slices": 2})
ENOUGH_MATRIX_TILES = 128
TILES = (Tiles(), Tiles(bm=32, bn=64, tm=4, tn=4), Tiles(bm=32, bn=32, tm=4, tn=4))


def candidates(problem: WeightOnly, device: Device) -> list[WeightKernel]:
    """Return the kernels that are worth running for `problem` on `device`, best first."""
    if device.info.kind == "cpu":
        made = made_for_cpus(problem, device.capabilities.subgroup_size)
        return [*made, Vector(lanes=CPU_LANES, tm=_rows(problem)), TILES[-1]]
    return [*made_for_matrix_units(problem, device.capabilities), *made_for_gpus(problem)]


def made_for_cpus(problem: WeightOnly, lanes: int) -> list[WeightKernel]:
    """Return the kernel made for CPUs with subgroups of `lanes` lanes; none if there are no subgroups (0).

    CPU time in ms of `vector` and this kernel, 128 rows and 1 row (n = k = 1024, 4 bits):
      lavapipe, 8 lanes      119  16    3.4   2.1
      SwiftShader, 4 lanes   455  198   13.0  12.9
    Tiles of 32 × 8 and 16 × 16 are no faster, and take twice as long to compile. `tiles`, in workgroup memory, is
    slower than `vector`.
    """
    if lanes < 2:
        return []
    lanes = min(lanes, CPU_LANES)
    tm = next((rows for rows in CPU_ROWS if rows >= problem.m), CPU_ROWS[-1])
    return [CpuLanes(lanes, tm, 4 if problem.n <= 4 * lanes else 8)]


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
