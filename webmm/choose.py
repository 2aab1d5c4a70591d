"""Which kernel to use where the caller does not say.

What can run is a question for `Kernel.check()`. What is fast is a matter of measurement: the nearest tuned record of
this adapter, the user's before the shipped ones, then of the same vendor; portable defaults where none is near.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from webmm import cache
from webmm.device import Device
from webmm.errors import UnsupportedError
from webmm.kernels import KERNELS
from webmm.kernels.base import Kernel
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.problem import Problem
from webmm.records import Record

NEAR = 3.0  # a record serves problems whose sizes differ by at most a factor of 2³ in all

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
    return list(dict.fromkeys([*_tuned(problem, device), *_portable(problem, device), Tile2D(), Naive()]))


def choose(problem: Problem, device: Device) -> Kernel:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can."""
    if problem in device.choices:
        return device.choices[problem]
    reasons = []
    for kernel in candidates(problem, device):
        reason = kernel.check(problem, device.capabilities)
        if reason is None:
            device.choices[problem] = kernel
            return kernel
        reasons.append(f"{kernel.name} {reason}")
    raise UnsupportedError(f"no kernel can compute {problem} on {device.capabilities.name}: {'; '.join(reasons)}")


def _portable(problem: Problem, device: Device) -> list[Kernel]:
    if device.info.kind == "cpu":
        return list(CPU)
    filling = [kernel for kernel in GPU if kernel.grid.tiles(problem) * problem.batch >= ENOUGH_TILES] or [GPU[-1]]
    return [*filling, *GPU]


def _tuned(problem: Problem, device: Device) -> list[Kernel]:
    """Return the nearest tuned kernel: of this very adapter, else of another one by its vendor."""
    user, adapter = cache.load(), device.info.name
    vendor = adapter.split()[0]
    groups = (
        [record for record in user if record.adapter == adapter],
        [record for record in cache.shipped() if record.adapter == adapter],
        [record for record in [*user, *cache.shipped()] if record.adapter.split()[:1] == [vendor]],
    )
    for group in groups:
        kernel = _nearest(problem, group)
        if kernel:
            return [kernel]
    return []


def _nearest(problem: Problem, records: Iterable[Record]) -> Kernel | None:
    near = [(distance(problem, record), record) for record in records if record.dtype == problem.dtype.name]
    for apart, record in sorted(near, key=lambda pair: pair[0]):
        kernel = kernel_of(record)
        if kernel and apart <= NEAR:
            return kernel
    return None


def distance(problem: Problem, record: Record) -> float:
    """Return by how many doublings the sizes of `record` and `problem` differ; a batch counts as more rows."""
    pairs = (
        (problem.m * problem.batch, record.m * record.batch),
        (problem.n, record.n),
        (problem.k, record.k),
    )
    return sum(abs(math.log2(mine / its)) for mine, its in pairs)


def kernel_of(record: Record) -> Kernel | None:
    """Return the kernel of a record, None where this version has no such kernel or tunables."""
    try:
        kernel = KERNELS[record.kernel](**record.config)
    except (KeyError, TypeError):
        return None
    return None if kernel.invalid() else kernel
