"""Candidates for products with quantised weights."""

from __future__ import annotations

from dataclasses import replace

from webmm.choose.field import divided
from webmm.engine.device import Device
from webmm.kernels.base import Capabilities
from webmm.kernels.weights.base import WeightKernel
from webmm.kernels.weights.cpu_lanes import CpuLanes
from webmm.kernels.weights.matrix_unit import MatrixUnit
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.problems.weights import WeightOnly

MOST_VECTOR_ROWS = 32  # up to which `vector` is a candidate
CPU_LANES = 8  # of lavapipe's subgroups; SwiftShader's have 4
CPU_ROWS = (1, 4, 8, 16)  # the numbers of rows of a tile on a CPU
# Tiles for matrix units. TFLOP/s on an H200 for 1024 and 256 rows (n = k = 4096, 4 bits) of the first two:
#   215   73
#   132  114
MATRIX_TILES: tuple[dict[str, int], ...] = (
    {},
    {"bm": 64, "bk": 64, "slices": 2},
    {"bm": 64, "bn": 64, "sm": 32, "sn": 32},
    {"bm": 64, "sm": 32},
    {"bm": 64, "bn": 64, "bk": 64, "sm": 32, "sn": 32},
    {"bn": 64, "bk": 64, "sn": 32},
)
TILES = (
    Tiles(bm=32, bn=32, tm=4, tn=4),
    Tiles(bm=32, bn=64, tm=4, tn=4),
    Tiles(bm=64, bn=64, tm=4, tn=4),
    Tiles(bm=32, bn=128, tn=4),
    Tiles(bm=64, bn=64, tn=4),
    Tiles(bm=128, bn=64, tn=4),
    Tiles(bm=128, bn=64),
    Tiles(),
)
# (lanes, unroll) of `vector`
VECTORS = ((128, 1), (64, 1), (32, 1), (32, 2), (64, 2))


def candidates(problem: WeightOnly, device: Device) -> list[WeightKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first: [] where the model of cost ranks."""
    if device.info.kind != "cpu":
        return []
    made = made_for_cpus(problem, device.capabilities.subgroup_size)
    return [*made, Vector(lanes=CPU_LANES, tm=next((n for n in (1, 2) if n >= problem.m), 4)), TILES[0]]


def field(problem: WeightOnly, device: Device, multiprocessors: int) -> list[WeightKernel]:
    """Return the kernels for `problem` on `device` from which the model of cost chooses."""
    del multiprocessors
    if device.info.kind == "cpu":
        return []
    tiles = [kernel for tile in TILES for kernel in divided(tile, problem)]
    return [*on_matrix_units(problem, device.capabilities), *vectors(problem), *tiles]


def fallbacks(problem: WeightOnly, device: Device) -> tuple[WeightKernel, ...]:
    """Return kernels for devices with low limits, without partial sums."""
    del problem, device
    return TILES[0], Vector()


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


def on_matrix_units(problem: WeightOnly, device: Capabilities) -> list[WeightKernel]:
    """Return the candidates on matrix units; [] if the device has none."""
    stage = MatrixUnit.on(device)
    if stage.unsuited(problem) or stage.matrix_shape not in device.matrix_shapes:
        return []
    made = (replace(stage, **tiles) for tiles in MATRIX_TILES)
    return [kernel for kernel in made if not kernel.invalid()]


def vectors(problem: WeightOnly) -> list[WeightKernel]:
    """Return the candidates for few rows, which read the weights again for every TM rows."""
    if problem.m > MOST_VECTOR_ROWS:
        return []
    rows = [tm for tm in (1, 2, 4, 8) if tm < 2 * problem.m]
    return [Vector(lanes=lanes, tm=tm, unroll=unroll) for tm in rows for lanes, unroll in VECTORS]
