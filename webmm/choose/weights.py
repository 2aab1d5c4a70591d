"""Candidates for products with quantised weights."""

from __future__ import annotations

from dataclasses import replace

from webmm.choose.field import MOST_SUMS_HELD, divided
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


def candidates(problem: WeightOnly, device: Device) -> list[WeightKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first: [] where the model of cost ranks."""
    if device.info.kind != "cpu":
        return []
    made = made_for_cpus(problem, device.capabilities.subgroup_size)
    return [*made, Vector(lanes=CPU_LANES, tm=_rows(problem)), TILES[0]]


def field(problem: WeightOnly, device: Device, multiprocessors: int) -> list[WeightKernel]:
    """Return the kernels for `problem` on `device` from which the model of cost chooses."""
    del multiprocessors
    if device.info.kind == "cpu":
        return []
    tiles = [kernel for tile in TILES for kernel in divided(tile, problem)]
    return [*on_matrix_units(problem, device.capabilities), *vectors(problem), *tiles]


def fallbacks(problem: WeightOnly, device: Device) -> tuple[WeightKernel, ...]:
    """Return kernels for GPUs with low limits, without partial sums."""
    del problem
    return () if device.info.kind == "cpu" else (TILES[0], Vector())


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
    return [kernel for kernel in made if kernel.sums_held <= MOST_SUMS_HELD and not kernel.invalid()]


# Numbers of workgroups of `vector` up to which they have 128 lanes, and from which on they have 32, each of which loads
# two words at once. The model does not tell them apart well. µs on an H200 for 1 row with 4-bit weights:
#   n × k          128 lanes    64    32
#   1536 × 5120          7.9  11.0   9.5
#   3072 × 5120         10.9  11.8  12.1
#   8192 × 1536         10.2   9.8   8.5
FEW_WORKGROUPS, MANY_WORKGROUPS = 700, 1500
SHORT_K = 2048  # with a short k, 64 lanes are never the fastest
ROWS = (1, 2, 4)  # the numbers of rows that an invocation of `vector` computes, except for MANY_WEIGHTS
MANY_WEIGHTS = 2**24  # weights that take long to read again for more rows


def vectors(problem: WeightOnly) -> list[WeightKernel]:
    """Return the candidate for few rows, whose workgroups have as many lanes as it takes to fill a GPU."""
    if problem.m > MOST_VECTOR_ROWS:
        return []
    if 4 < problem.m <= 8 and problem.n * problem.k >= MANY_WEIGHTS:
        made = Vector(tm=8, unroll=2)
        return [replace(made, lanes=32) if made.grid.tiles(problem) >= MANY_WORKGROUPS else made]
    made = Vector(tm=_rows(problem))
    workgroups = made.grid.tiles(problem)
    if workgroups <= FEW_WORKGROUPS:
        return [replace(made, lanes=128)]
    short = workgroups >= MANY_WORKGROUPS or problem.k <= SHORT_K
    return [replace(made, lanes=32, unroll=2) if short else made]


def _rows(problem: WeightOnly) -> int:
    return next((rows for rows in ROWS if rows >= problem.m), ROWS[-1])
