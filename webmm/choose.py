"""Which kernel to use where the caller does not say."""

from __future__ import annotations

from webmm.device import Device
from webmm.errors import UnsupportedError
from webmm.kernels.base import Kernel
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.problem import Problem

# Large tiles reuse more, small ones fill the machine: the first that yields enough of them is taken.
ENOUGH_TILES = 128
GPU: tuple[Kernel, ...] = (
    Pipelined(bm=64, bn=128),
    Pipelined(bm=32, bn=64, tm=4, tn=4),
    Pipelined(bm=32, bn=32, tm=4, tn=4),
)
# Workgroup memory is slow on a CPU: invocations of a workgroup run one after another between barriers.
CPU: tuple[Kernel, ...] = (Tile2D(wy=4, wx=8, tm=8), Blocked())


def candidates(problem: Problem, device: Device) -> list[Kernel]:
    """Return the kernels that are worth running for `problem` on `device`, best first."""
    if device.info.kind == "cpu":
        return [*CPU, Naive()]
    filling = [kernel for kernel in GPU if kernel.grid.tiles(problem) * problem.batch >= ENOUGH_TILES] or [GPU[-1]]
    return [*filling, *(kernel for kernel in GPU if kernel not in filling), Tile2D(), Naive()]


def choose(problem: Problem, device: Device) -> Kernel:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can."""
    reasons = []
    for kernel in candidates(problem, device):
        reason = kernel.check(problem, device.capabilities)
        if reason is None:
            return kernel
        reasons.append(f"{kernel.name} {reason}")
    raise UnsupportedError(f"no kernel can compute {problem} on {device.capabilities.name}: {'; '.join(reasons)}")
