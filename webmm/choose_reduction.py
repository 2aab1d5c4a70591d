"""Which kernel reduces where the caller does not say: by the shape and the kind of device, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webmm.device import Device
from webmm.errors import UnsupportedError
from webmm.kernels.base import Kernel, ceil_div
from webmm.kernels.reduce.base import ReduceKernel
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.rows import Map, Rows, Strips
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import SPLITS, ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.reduction import Elementwise, Normalisation, Reduction

# GPUs, by sums on an H200, as shares of its copy bandwidth (docs/reductions.md has more):
# - rows of 64 elements by `vectorized` 0.76, by `tree` 0.10; of 256 0.69 and 0.40; of 1024 0.42 and 0.74;
# - a row's workgroup does best with some 64 elements per lane: 8192×32768 by `subgroup` of 512 lanes 1.05, of 128 1.01;
#   16384×1024 of 64 lanes 0.72, of 512 0.24; `tree` is as good;
# - a second pass costs a dispatch: 128×32768 in one 0.50, in two 0.39; one row of 2^28 in two 1.04;
# - columns: 64×256×1024 over the second axis by `columns` 0.73, in two passes 0.24; 32768×8192 over the first, which is
#   128 strips, 0.73 and 0.995;
# - what is built on reductions keeps a row in registers where 1024 lanes can: layer norm of 8192×32768 0.98, softmax
#   0.97; GELU of float16 by one vec4 per invocation 0.83, by four 0.96.
SHORT = 512  # elements of a row up to which an invocation has it for itself, where there are
MANY = 2**15  # so many rows
PER_LANE = 64  # elements
FEW = 64  # rows up to which several workgroups share one
ENOUGH = 512  # strips of columns that keep a GPU busy
WORKGROUPS = 2048  # of a first pass
STRIP = 4 * Columns().wx  # columns

CPU_ENOUGH = 16  # rows that keep a CPU busy


def choose(problem: Reduction | Elementwise, device: Device) -> Kernel[Any]:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can."""
    reasons = []
    for kernel in candidates(problem, device):
        reason = kernel.check(problem, device.capabilities)
        if reason is None:
            return kernel
        reasons.append(f"{kernel.name} {reason}")
    raise UnsupportedError(f"nothing can compute {problem} on {device.capabilities.name}: {'; '.join(reasons)}")


def candidates(problem: Reduction | Elementwise, device: Device) -> Iterator[Kernel[Any]]:
    """Yield the kernels that are worth running for `problem` on `device`, best first."""
    lanes = device.capabilities.subgroup_size
    cpu = device.info.kind == "cpu"
    if isinstance(problem, Elementwise):
        yield Map() if cpu or problem.dtype.itemsize > 2 else Map(128, 4)
        return
    if isinstance(problem, Normalisation):
        if problem.inner > 1 and problem.x.inner_stride < problem.x.stride and problem.function == "softmax":
            yield from _strips(problem, cpu)
        yield _rows(problem, lanes, cpu)
        yield from (Rows(256, 8), Rows(64, 8))
        return
    if cpu:
        yield from _on_cpu(problem, lanes)
    elif problem.inner > 1 and problem.x.inner_stride < problem.x.stride:
        yield from _columns(problem)
    else:
        yield from made_for_gpus(problem, lanes)
    yield from (Tree(lanes=64), TwoPass(lanes=64), PerRow())


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


def _lanes(length: int) -> int:
    """Return how many invocations share a row."""
    return next((lanes for lanes in (64, 128, 256) if length <= PER_LANE * lanes), 512)


def made_for_gpus(problem: Reduction, lanes: int) -> Iterator[ReduceKernel]:
    """Yield the kernels for contiguous rows on a GPU with such subgroups, best first."""
    rows, length = problem.results, problem.length
    if length < SHORT and rows >= MANY:
        yield Vectorized(32, 8 if length >= 32 else 2)
    if rows < FEW and length >= 2**16:
        yield TwoPass(512, 4, _splits(rows, length // 2**13), "subgroup" if lanes else "tree")
    yield Subgroup(_lanes(length)) if lanes else Tree(_lanes(length))


def _columns(problem: Reduction) -> Iterator[ReduceKernel]:
    strips = problem.outer * ceil_div(problem.inner, STRIP)
    if strips < ENOUGH and problem.length >= 1024:
        yield ColumnsTwoPass(splits=_splits(strips, problem.length // 64))
    yield Columns()


def _splits(parts: int, most: int) -> int:
    """Return by which power of two to multiply so many workgroups, up to `most`."""
    return next(n for n in reversed(SPLITS) if n == SPLITS[0] or (n * parts <= WORKGROUPS and n <= most))


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
