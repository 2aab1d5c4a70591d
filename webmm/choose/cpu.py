"""Candidates for float products on CPU adapters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.problems.gemm import Gemm

# Workgroup memory is slow on a CPU, since the invocations of a workgroup run one after another between barriers. These
# kernels are for CPU adapters without subgroups.
ANY: tuple[GemmKernel, ...] = (Tile2D(wy=4, wx=8, tm=8), Blocked())


@dataclass(frozen=True)
class LaneTile:
    """A tile of C on subgroups of eight lanes, and the time of a multiplication in ps, on two cores."""

    rows: int
    columns: int
    ps: float


# Fitted to the times of 342 random products on lavapipe; only their ratios matter. Before, thresholds chose: best of
# eight ÷ chosen was 0.93, a tenth below 0.76, and is 0.96 and 0.89 (docs/results.md). Large tiles take a second to
# compile, twice as long as smaller ones, and two seconds if C is stored by element.
LARGE = 2048  # elements
ENOUGH, ENOUGH_BY_ELEMENT = 2**23, 2**27  # operations from which large tiles are used
DIRECT = (LaneTile(16, 32, 180), LaneTile(32, 32, 145), LaneTile(32, 64, 132))
TEXTURE = (LaneTile(16, 32, 118), LaneTile(32, 32, 115), LaneTile(16, 64, 96), LaneTile(16, 128, 88))
BY_ELEMENT = 1.2  # factor if B is not read as vec4
WORKGROUP = 0.47  # µs
COPY, COPIED = 200.0, 0.01  # µs of copying B to a texture, and of each element
FEW_ROWS = (1, 4, 8, 16)  # rows of the only row of tiles

# Subgroups of four lanes are SwiftShader's. There, B in a texture is slower; tiles of 32 × 32 are as fast as those of
# 16 × 64 over whole tiles, faster over ragged ones, and compile sooner. Up to MANY_ROWS rows, those of 16 are faster if
# half of the last tile of 32 would be empty. CPU time in ms of tile_2d, a texture, 16 × 64 and 32 × 32:
#   512³             388  197  173  170
#   704³ tn         1077  539  526  461
#   56,458×21×18     251  183  176   93
#   48×1536×1024 nt  343  177  104  141
WIDE_LANES, MANY_ROWS = 8, 128


def candidates(problem: Gemm, lanes: int) -> list[GemmKernel]:
    """Return the kernels for CPUs with subgroups of `lanes` lanes, or 0 without subgroups, best first."""
    return [*made_for_lanes(problem, lanes), *ANY]


def made_for_lanes(problem: Gemm, lanes: int) -> list[GemmKernel]:
    """Return the kernels made for subgroups of `lanes` lanes, best first; none if there are no subgroups (0).

    One of them needs no texture: its size is limited, and it cannot hold float64.
    """
    if lanes < 2:
        return []
    if lanes < WIDE_LANES:
        return [_by_few_lanes(problem, lanes)]
    lanes = min(lanes, 16)
    if problem.m <= FEW_ROWS[-1]:
        tm = next(rows for rows in FEW_ROWS if problem.m <= rows)
        return [CpuLanes(lanes, tm, 4 if problem.n <= 4 * lanes else 64 // lanes)]
    by_time = sorted(_predicted(problem, lanes), key=lambda predicted: predicted[0])
    direct = next(kernel for _, kernel in by_time if not kernel.before)
    return list(dict.fromkeys([by_time[0][1], direct]))


def _predicted(problem: Gemm, lanes: int) -> Iterator[tuple[float, GemmKernel]]:
    """Yield predicted times in µs, each with its kernel."""
    spec = CpuLanes(lanes).specialise(problem)
    direct = 1.0 if spec.vec_b else BY_ELEMENT
    copy = COPY + COPIED * problem.n * problem.k * problem.batch
    large = problem.flops >= (ENOUGH if spec.vec_c else ENOUGH_BY_ELEMENT)
    for stage, tiles, factor, start in ((CpuLanes, DIRECT, direct, 0.0), (CpuTexture, TEXTURE, 1.0, copy)):
        for tile in tiles:
            if large or tile.rows * tile.columns < LARGE:
                kernel = stage(lanes, tile.rows, max(4, tile.columns // lanes))
                workgroups = kernel.grid.tiles(problem) * problem.batch
                each = tile.ps * factor * tile.rows * lanes * kernel.tn * problem.k / 1e6
                yield start + workgroups * (WORKGROUP + each), kernel


def _by_few_lanes(problem: Gemm, lanes: int) -> CpuLanes:
    """Return the kernel for subgroups of four lanes or fewer."""
    tall = problem.m > MANY_ROWS or (problem.m > 16 and (problem.m - 1) % 32 >= 16)
    tm = 32 if tall else next((rows for rows in (1, 4, 8) if problem.m <= rows), 16)
    return CpuLanes(lanes, tm, 4 if problem.n <= 4 * lanes else 8 if tall else 16)
