"""Which kernel to use where the caller does not say.

What can run is a question for `Kernel.check()`. What is fast is a matter of measurement: the nearest tuned record of
this adapter, the user's before the shipped ones, then of the same vendor; portable defaults where none is near.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from webmm import cache
from webmm.array import Array
from webmm.device import Device
from webmm.errors import MemoryLimitError, UnsupportedError
from webmm.kernels import KERNELS
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.problem import Gemm
from webmm.records import Record

NEAR = 3.0  # a record serves problems whose sizes differ by at most a factor of 2³ in all

# Large tiles reuse more, small ones fill the machine: the first that yields enough of them is taken.
ENOUGH_TILES = 128
GPU: tuple[GemmKernel, ...] = (
    Pipelined(bm=64, bn=128),
    Pipelined(bm=32, bn=64, tm=4, tn=4),
    Pipelined(bm=32, bn=32, tm=4, tn=4),
)
# Workgroup memory is slow on a CPU: invocations of a workgroup run one after another between barriers. These serve
# where there are no subgroups; see made_for_cpus().
CPU: tuple[GemmKernel, ...] = (Tile2D(wy=4, wx=8, tm=8), Blocked())


def candidates(problem: Gemm, device: Device) -> list[GemmKernel]:
    """Return the kernels that are worth running for `problem` on `device`, best first."""
    return list(dict.fromkeys([*_tuned(problem, device), *_portable(problem, device), Tile2D(), Naive()]))


def choose(problem: Gemm, device: Device) -> GemmKernel:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can."""
    known: GemmKernel | None = device.choices.get(problem)
    if known is not None:
        return known
    reasons = []
    for kernel in candidates(problem, device):
        reason = kernel.check(problem, device.capabilities)
        if reason is None:
            device.choices[problem] = kernel
            return kernel
        reasons.append(f"{kernel.name} {reason}")
    raise UnsupportedError(f"no kernel can compute {problem} on {device.capabilities.name}: {'; '.join(reasons)}")


def run(problem: Gemm, device: Device, *arrays: Array) -> None:
    """Queue `problem` by the kernel chosen for it; raises as `choose()` and `Device.run()` do.

    Where the device has no room for what that kernel keeps between its dispatches, one that keeps nothing takes over.
    """
    try:
        device.run(choose(problem, device), problem, *arrays)
    except MemoryLimitError:
        if not device.choices[problem].scratch(problem):
            raise
        device.choices[problem] = lean = _lean(problem, device)
        device.run(lean, problem, *arrays)


def _lean(problem: Gemm, device: Device) -> GemmKernel:
    able = (kernel for kernel in candidates(problem, device) if kernel.check(problem, device.capabilities) is None)
    return next(kernel for kernel in able if not kernel.scratch(problem))  # Naive, if no other


def _portable(problem: Gemm, device: Device) -> list[GemmKernel]:
    if device.info.kind == "cpu":
        lanes = device.capabilities.subgroup_size
        # SwiftShader, which has four lanes, takes minutes and gigabytes to compile their boundary checks.
        made = [k for k in made_for_cpus(problem, lanes) if lanes > 4 or not _ragged(k, problem)]
        return [*made, *CPU]
    filling = [kernel for kernel in GPU if kernel.grid.tiles(problem) * problem.batch >= ENOUGH_TILES] or [GPU[-1]]
    return [*filling, *GPU]


# From how many rows of C, and multiplications, a copy of B into a texture pays: where a buffer gives four columns of B
# at once, and where it gives them one by one. CPU time on lavapipe with 8 lanes, buffer against texture: 8.2 to 6.7 ms
# at 512³, 90 to 55 at 1024³, 1.0 to 1.0 at 256³, 0.24 to 0.36 at 128³; 2.1 to 1.2 at 333×257×129, 0.69 to 0.41 at 129³.
TEXTURE_PAYS, TEXTURE_PAYS_SCALARS = (128, 2**25), (64, 1)
# From how many multiplications tiles of 32 rows are faster than those of 16 (62 to 55 ms at 1024³), which compile in
# half the time, and in a third where nothing is aligned; there they are the faster ones, too (71 to 87 at 1023³), but
# for a C of few columns (2.1 to 1.9 at 1024×1×1024).
TALL_PAYS = 2**20


def _ragged(kernel: GemmKernel, problem: Gemm) -> bool:
    spec = kernel.specialise(problem)
    return spec.edge_m or spec.edge_n or spec.edge_k


def made_for_cpus(problem: Gemm, lanes: int) -> list[GemmKernel]:
    """Return the kernels made for CPUs whose subgroups have so many lanes; none where there are no subgroups.

    Tiles are 64 columns wide, half of that where C is no wider, and no taller than C.
    """
    if lanes < 2:
        return []
    lanes, work = min(lanes, 16), problem.m * problem.n * problem.k
    spec = CpuLanes(lanes).specialise(problem)
    tn = 4 if problem.n <= 4 * lanes else 64 // lanes
    tall = lanes >= 8 and work >= TALL_PAYS and (tn == 4 or (spec.vec_a and spec.vec_b and spec.vec_c))
    tm = next((rows for rows in (1, 4, 8) if problem.m <= rows), 32 if tall and problem.m > 16 else 16)
    rows, least = TEXTURE_PAYS if spec.vec_b else TEXTURE_PAYS_SCALARS
    direct, by_texture = CpuLanes(lanes, tm, tn), CpuTexture(lanes, tm, tn)
    return [by_texture, direct] if problem.m >= rows and work >= least else [direct]


def _tuned(problem: Gemm, device: Device) -> list[GemmKernel]:
    """Return the nearest tuned kernel: of this very adapter, else of another one by its vendor."""
    user, adapter = cache.load(), device.info.name
    vendor = adapter.split()[0]
    groups = (
        [record for record in user if record.adapter == adapter],
        [record for record in cache.shipped() if record.adapter == adapter and native(record)],
        [record for record in [*user, *cache.shipped()] if record.adapter.split()[:1] == [vendor] and native(record)],
    )
    for group in groups:
        kernel = _nearest(problem, group)
        if kernel:
            return [kernel]
    return []


def _nearest(problem: Gemm, records: Iterable[Record]) -> GemmKernel | None:
    mine = (record for record in records if (record.op, record.dtype) == (problem.op, problem.dtype.name))
    near = [(distance(problem, record), record) for record in mine]
    for apart, record in sorted(near, key=lambda pair: pair[0]):
        kernel = kernel_of(record)
        if kernel and apart <= NEAR:
            return kernel
    return None


def native(record: Record) -> bool:
    """Tell whether wgpu ran it: browsers' engines make other code of a shader, for which other tiles are best."""
    return record.engine.startswith("wgpu")


def distance(problem: Gemm, record: Record) -> float:
    """Return by how many doublings the sizes of `record` and `problem` differ; a batch counts as more rows."""
    pairs = (
        (problem.m * problem.batch, record.m * record.batch),
        (problem.n, record.n),
        (problem.k, record.k),
    )
    return sum(abs(math.log2(mine / its)) for mine, its in pairs)


def kernel_of(record: Record) -> GemmKernel | None:
    """Return the kernel of a record, None where this version has no such kernel or tunables."""
    try:
        kernel = KERNELS[record.kernel](**record.config)
    except (KeyError, TypeError):
        return None
    return None if kernel.invalid() else kernel
