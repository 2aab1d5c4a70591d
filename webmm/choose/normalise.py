"""Candidates for normalisations.

They keep a row in registers where 1024 lanes can: layer norm of 8192×32768 reads 0.98 of an H200's copy bandwidth,
softmax 0.97.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webmm.choose.reduce import FEW
from webmm.engine.device import Device
from webmm.kernels.base import Kernel
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.problems.normalise import Normalisation

ANYWHERE = (Rows(256, 8), Rows(64, 8))


def candidates(problem: Normalisation, device: Device) -> Iterator[Kernel[Any]]:
    """Yield the kernels that are worth running for `problem` on `device`, best first."""
    cpu = device.info.kind == "cpu"
    if problem.inner > 1 and problem.x.inner_stride < problem.x.stride and problem.function == "softmax":
        yield from _strips(problem, cpu)
    yield _rows(problem, device.capabilities.subgroup_size, cpu)


def _strips(problem: Normalisation, cpu: bool) -> Iterator[Strips]:
    """Yield what takes columns side by side, where there are enough of them."""
    kernel = Strips(8, 1, 4) if cpu else Strips(8, 16, 4)
    if cpu or kernel.workgroups(problem) >= FEW:
        yield kernel


def _rows(problem: Normalisation, lanes: int, cpu: bool) -> Rows:
    """Return as many lanes as keep the row in registers; on a CPU those of one subgroup, without any barrier."""
    if cpu:
        return Rows(lanes, 4, "alone") if lanes else Rows(1, 4)
    unroll = 8 if problem.length > 4096 else 4
    keeping = (lanes for lanes in (64, 128, 256, 512, 1024) if problem.length <= 4 * unroll * lanes)
    return Rows(next(keeping, 512), unroll, "subgroup" if lanes else "tree")
