"""Which kernel reduces where the caller does not say: by the shape and the kind of device, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from webmm.device import Device
from webmm.errors import UnsupportedError
from webmm.kernels.base import ceil_div
from webmm.kernels.reduce.base import ReduceKernel
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.rows import Rows
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.reduction import Normalisation, Reduction

ENOUGH = 512  # workgroups that keep a GPU busy
SHORT = 64  # elements of a row up to which an invocation has it for itself
STRIP = 128  # neighbouring columns of a workgroup
CPU_ENOUGH = 16  # and those that keep a CPU busy


def choose(problem: Reduction, device: Device) -> ReduceKernel:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can."""
    reasons = []
    for kernel in candidates(problem, device):
        reason = kernel.check(problem, device.capabilities)
        if reason is None:
            return kernel
        reasons.append(f"{kernel.name} {reason}")
    raise UnsupportedError(f"nothing can compute {problem} on {device.capabilities.name}: {'; '.join(reasons)}")


def candidates(problem: Reduction, device: Device) -> Iterator[ReduceKernel]:
    """Yield the kernels that are worth running for `problem` on `device`, best first."""
    lanes = device.capabilities.subgroup_size
    cpu = device.info.kind == "cpu"
    if isinstance(problem, Normalisation):
        yield _rows(problem, lanes, cpu)
        yield Rows(lanes=64)
    elif cpu:
        yield from _on_cpu(problem, lanes)
    elif problem.inner > 1 and problem.x.inner_stride < problem.x.stride:
        yield from _columns(problem)
    else:
        yield from _on_gpu(problem, lanes)
    if not isinstance(problem, Normalisation):
        yield from (Tree(lanes=64), TwoPass(lanes=64), PerRow())


def _rows(problem: Normalisation, lanes: int, cpu: bool) -> Rows:
    """Return as many lanes as the row has work for; on a CPU those of one subgroup, without any barrier."""
    if cpu:
        return Rows(lanes, 4, "alone") if lanes else Rows(1, 4)
    return Rows(_lanes(problem.length), 4, "subgroup" if lanes else "tree")


def _lanes(length: int) -> int:
    """Return as many invocations as find one iteration's work in a row; a power of two."""
    return next((lanes for lanes in (32, 64, 128, 256) if length <= 16 * lanes), 512)


def _on_gpu(problem: Reduction, lanes: int) -> Iterator[ReduceKernel]:
    rows, length = problem.results, problem.length
    if length <= SHORT and rows >= ENOUGH * SHORT:
        yield Vectorized(64, 4)
    if rows < ENOUGH and length >= 2**14:
        splits = next(n for n in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if rows * n >= ENOUGH or n == 1024)
        yield TwoPass(256, 4, splits, "subgroup" if lanes else "tree")
    yield (Subgroup if lanes else Tree)(_lanes(length))


def _columns(problem: Reduction) -> Iterator[ReduceKernel]:
    strips = problem.outer * ceil_div(problem.inner, STRIP)
    if strips < ENOUGH and problem.length >= 512:
        yield ColumnsTwoPass(splits=next(n for n in (4, 16, 64, 256) if strips * n >= ENOUGH or n == 256))
    yield Columns()


def _on_cpu(problem: Reduction, lanes: int) -> Iterator[ReduceKernel]:
    """Yield what needs no workgroup memory: barriers are slow on a CPU.

    On lavapipe with 8 lanes, sums of 16 MiB: 512×8192 by `vectorized` 1.6 ms, by `alone` 2.2, `subgroup` 4.3, `tree`
    5.9; one row of 2^22 by `two_pass` of 32 parts 2.5; 4096×1024 over the first axis by `columns` 19, `per_row` 25.
    """
    p = problem
    if p.inner > 1 and p.x.inner_stride < p.x.stride:
        if p.length > 2**14 or (p.outer * p.inner < 4 * 8 * CPU_ENOUGH and p.length >= 512):
            yield ColumnsTwoPass(8, 1, 4, 16)
        yield Columns(16 if p.inner >= 64 else 8, 1, 4)
    if p.results >= CPU_ENOUGH or p.length < 2**12:
        yield Vectorized(8, 8 if p.length >= 64 else 1)
        yield PerRow(8)
    if lanes:
        yield TwoPass(min(lanes, 8), 4, 32, "alone")
        yield Alone(min(lanes, 8), 4)
    yield TwoPass(4, 4, 128)
