"""The kernels of float products that are candidates for CPU adapters; the model of cost ranks them."""

from __future__ import annotations

from collections.abc import Iterator

from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.problems.gemm import Gemm

# Workgroup memory is slow on a CPU, since the invocations of a workgroup run one after another between barriers. These
# kernels are for CPU adapters without subgroups.
ANY: tuple[GemmKernel, ...] = (Tile2D(wy=4, wx=8, tm=8), Blocked())

# Rows and columns of tiles of C on subgroups of eight lanes. Large tiles take a second to compile, twice as long as
# smaller ones, and two seconds if C is stored by element: they are used from some numbers of operations on.
DIRECT = ((16, 32), (32, 32), (32, 64))
TEXTURE = ((16, 32), (32, 32), (16, 64), (16, 128))
LARGE = 2048  # elements
ENOUGH, ENOUGH_BY_ELEMENT = 2**23, 2**27
FEW_ROWS = (1, 4, 8, 16)  # rows of the only row of tiles

# Subgroups of four lanes are SwiftShader's. There, B in a texture is slower; tiles of 32 × 32 are as fast as those of
# 16 × 64 over whole tiles, faster over ragged ones, and compile sooner. Up to MANY_ROWS rows, those of 16 are faster if
# half of the last tile of 32 would be empty. CPU time in ms of tile_2d, a texture, 16 × 64 and 32 × 32:
#   512³             388  197  173  170
#   704³ tn         1077  539  526  461
#   56,458×21×18     251  183  176   93
#   48×1536×1024 nt  343  177  104  141
WIDE_LANES, MANY_ROWS = 8, 128


def field(problem: Gemm, lanes: int) -> Iterator[GemmKernel]:
    """Yield the kernels made for subgroups of `lanes` lanes; none if there are no subgroups (0).

    One of them needs no texture: its size is limited, and it cannot hold float64.
    """
    if lanes < 2:
        return
    if lanes < WIDE_LANES:
        yield _by_few_lanes(problem, lanes)
        return
    lanes = min(lanes, 16)
    if problem.m <= FEW_ROWS[-1]:
        tm = next(rows for rows in FEW_ROWS if problem.m <= rows)
        yield CpuLanes(lanes, tm, 4 if problem.n <= 4 * lanes else 64 // lanes)
        return
    large = problem.flops >= (ENOUGH if problem.vec_c else ENOUGH_BY_ELEMENT)
    for rows, columns in DIRECT:
        if large or rows * columns < LARGE:
            yield CpuLanes(lanes, rows, max(4, columns // lanes))
    for rows, columns in TEXTURE:
        if large or rows * columns < LARGE:
            yield CpuTexture(lanes, rows, max(4, columns // lanes))


def _by_few_lanes(problem: Gemm, lanes: int) -> CpuLanes:
    """Return the kernel for subgroups of four lanes or fewer."""
    tall = problem.m > MANY_ROWS or (problem.m > 16 and (problem.m - 1) % 32 >= 16)
    tm = 32 if tall else next((rows for rows in (1, 4, 8) if problem.m <= rows), 16)
    return CpuLanes(lanes, tm, 4 if problem.n <= 4 * lanes else 8 if tall else 16)
