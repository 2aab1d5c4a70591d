"""Translation of products of strided arrays into `Gemm` problems, one for each dispatch.

A product that is too large for one dispatch (see `Limits`) is cut into parts: along the batch, m and n into independent
products, along k into partial products that are summed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from webmm.choose import tuned
from webmm.choose.gemm import LONGEST_PHASES, MOST_SUMS, kept_sums
from webmm.dtypes import F32, F64, DType
from webmm.engine.device import Array, Device
from webmm.engine.view import element_of
from webmm.errors import ProblemError
from webmm.kernels.base import INDEX_LIMIT, MAX_WORKGROUPS
from webmm.problems.base import ALIGNMENT
from webmm.problems.gemm import Gemm
from webmm.problems.product import Operand
from webmm.wgsl.epilogues import OF_WHOLE_SUMS


def matrix_operand(x: Array) -> Operand | None:
    """Return the layout of the last two axes of `x` in its buffer, or None if no kernel can read it without a copy."""
    (rows, columns), (row, column) = x.shape[-2:], x.strides[-2:]
    if any(stride < 0 for stride in x.strides):
        return None
    if column == 1 or columns == 1:
        return Operand(row if rows > 1 else max(columns, 1), offset=x.offset)
    if row == 1 or rows == 1:
        return Operand(column, offset=x.offset, transposed=True)
    return None


@dataclass(frozen=True)
class Axis:
    """An axis of the batch: the number of matrices and their strides in A, B and C."""

    count: int
    strides: tuple[int, int, int]


def batch_axes(a: Array, b: Array, c: Array) -> list[Axis]:
    """Return the batch axes of arrays of equal batch shape; adjacent axes are merged if one stride covers both."""
    axes: list[Axis] = []
    strides = zip(a.strides[:-2], b.strides[:-2], c.strides[:-2], strict=True)
    for count, steps in zip(c.shape[:-2], strides, strict=True):
        if count == 1:
            continue
        outer = axes[-1] if axes else None
        if outer and all(far == near * count for far, near in zip(outer.strides, steps, strict=True)):
            axes[-1] = Axis(outer.count * count, steps)
        else:
            axes.append(Axis(count, steps))
    return axes


def problems(template: Gemm, axes: list[Axis]) -> Iterator[Gemm]:
    """Yield the problems that compute `template` for all matrices of a batch, one dispatch each.

    The last axis becomes the batch of a dispatch, or additional rows if all its matrices are multiplied by the same B.
    """
    last = axes[-1] if axes else Axis(1, (0, 0, 0))
    base, outer = template, axes[:-1]
    if foldable(template, last):
        base = replace(template, m=template.m * last.count)
        last = Axis(1, (0, 0, 0))
    for indices in itertools.product(*(range(axis.count) for axis in outer)):
        start = [sum(i * axis.strides[x] for i, axis in zip(indices, outer, strict=True)) for x in range(3)]
        for first in range(0, last.count, MAX_WORKGROUPS):
            moved = [start[x] + first * last.strides[x] for x in range(3)]
            operands = (
                replace(operand, offset=operand.offset + moved[x], batch_stride=last.strides[x])
                for x, operand in enumerate((base.a, base.b, base.c))
            )
            a, b, c = operands
            yield replace(base, batch=min(MAX_WORKGROUPS, last.count - first), a=a, b=b, c=c)


# The operations per second that a device of each kind is assumed to reach if it has no faster tuned record. A dispatch
# must be short: drivers reset a device that is busy for long (Windows: 2 s), and a display freezes before that.
ASSUMED_RATE = {"cpu": 2.0**35, "integrated": 2.0**37, "other": 2.0**37, "discrete": 2.0**41}
DISPATCH_SECONDS = 1.0
AXES = (("m", "k"), ("k", "n"), ("m", "n"))  # rows and columns of A, B and C
# For float64: gaming GPUs have one float64 unit per 64 float32 units; with integer slices, one product takes 37 integer
# products, and the slices need at most four times the bytes of an operand and twice those of a result.
SLOWER, SLOWER_IN_SLICES, ROOM_FOR_SLICES = 64, 256, 4
GRAIN = 64  # cut at multiples of this if sizes allow, so that operands stay aligned and tiles whole


@dataclass(frozen=True)
class Limits:
    """The limits of one dispatch: bytes of a binding, and floating-point operations."""

    binding: int
    flops: float


@dataclass(frozen=True)
class Part:
    """A dispatch: its problem, and whether a separate buffer of partial sums replaces C (`to_sum`) or the bias."""

    problem: Gemm
    to_sum: bool = False
    from_sum: bool = False


def dispatch_limits(device: Device, dtype: DType = F32) -> Limits:
    """Return the limits of one dispatch on `device` for products of `dtype`."""
    sliced = dtype == F64 and not F64.features <= device.capabilities.features
    slower = 1 if dtype != F64 else SLOWER_IN_SLICES if sliced else SLOWER
    assumed = max(tuned.rate(device, F32), ASSUMED_RATE[device.info.kind]) / slower  # no dtype is slower than this
    binding = device.capabilities.limit("max-storage-buffer-binding-size") // (ROOM_FOR_SLICES if sliced else 1)
    return Limits(binding, max(tuned.rate(device, dtype), assumed) * DISPATCH_SECONDS)


@functools.lru_cache(maxsize=1024)
def parts(problem: Gemm, most: Limits) -> tuple[Part, ...]:
    """Return the dispatches that compute `problem`, in order; one, unless the problem exceeds the limits."""
    axis = _axis_to_cut(problem, most)
    if axis == "":
        return (Part(problem),)
    pieces = _pieces(problem, axis, most)
    if len(pieces) == 1:  # it cannot be cut further; the kernels' check() gives the reason
        return (Part(problem),)
    if axis != "k":
        return tuple(part for piece in pieces for part in parts(piece, most))
    return _summed(problem, pieces)


def _summed(problem: Gemm, pieces: list[Gemm]) -> tuple[Part, ...]:
    """Return the dispatches that sum pieces along k: in C, or, if C cannot hold partial sums, in a separate buffer."""
    first, *between, last = pieces
    if not _needs_sum(problem):
        return (Part(first), *(Part(replace(p, beta=1.0, bias="")) for p in (*between, last)))
    into_sum: dict[str, Any] = {"out_dtype": problem.dtype.sums, "c": Operand(problem.n), **OF_WHOLE_SUMS}
    return (
        Part(replace(first, beta=0.0, **into_sum), to_sum=True),
        *(Part(replace(p, beta=1.0, bias="", **into_sum), to_sum=True) for p in between),
        Part(replace(last, bias="matrix", bias_offset=0), from_sum=True),
    )


def _needs_sum(problem: Gemm) -> bool:
    return problem.needs_whole_sum or problem.out_dtype != problem.dtype.sums


def _axis_to_cut(p: Gemm, most: Limits) -> str:
    """Return the axis along which `p` must be cut next, or "" for none; k comes last, since its parts must be summed.

    An operand that is too large is cut between its stored rows, or along them if a single row is too large.
    """
    sizes, axes = {"m": p.m, "n": p.n, "k": p.k}, set()
    for extent, (_, operand, *_), (rows, columns) in zip(p.buffers(), p.operands(), AXES, strict=False):
        outer, inner = (columns, rows) if operand.transposed else (rows, columns)
        if extent.nbytes <= most.binding and extent.end - extent.first <= INDEX_LIMIT:
            continue
        if p.batch > 1 and operand.batch_stride:
            axes.add("batch")
        else:
            one_row = sizes[inner] * extent.dtype.itemsize + 2 * ALIGNMENT
            along = sizes[outer] == 1 or (outer == "k" and one_row > most.binding)
            axes.add(inner if along else outer)
    high = p.precision == "high" and p.dtype == F32 and p.batch == 1
    longest = max("m" if p.bias == "matrix" else "mn", key=lambda axis: sizes[axis])  # a matrix bias is dense
    if not axes and high and p.k > LONGEST_PHASES:
        axes.add("k")
    if not axes and high and kept_sums(p) > min(MOST_SUMS, most.binding):
        axes.add(longest)
    if not axes and p.flops > most.flops:
        axes.add("batch" if p.batch > 1 else longest if sizes[longest] > 4 * GRAIN or p.k == 1 else "k")
    if axes == {"k"}:
        if p.batch > 1:
            return "batch"
        sums = p.dtype.sums.itemsize
        if _needs_sum(p) and p.m * p.n * sums > most.binding:
            return "m" if p.n * sums <= most.binding else "n"
    return next((axis for axis in ("batch", "m", "n", "k") if axis in axes), "")


def _pieces(p: Gemm, axis: str, most: Limits) -> list[Gemm]:
    """Cut `p` along `axis` into equal pieces (the last may be shorter) that need no further cut along it."""
    size = length = getattr(p, axis)
    pieces = [p]
    while length > 1 and any(_axis_to_cut(piece, most) == axis for piece in pieces):
        length = halved(length)
        pieces = [_cut(p, axis, start, min(length, size - start)) for start in range(0, size, length)]
    return pieces


def halved(length: int, grains: tuple[int, ...] = (GRAIN, 4, 1)) -> int:
    """Return half of a length above 1, rounded up to a multiple of the first grain that is less than that half."""
    grain = next(grain for grain in grains if length > 2 * grain or grain == 1)
    return -(-length // (2 * grain)) * grain


def _cut(p: Gemm, axis: str, start: int, length: int) -> Gemm:
    """Return the part [start, start + length) of `p` along `axis`."""
    moved = []
    for (_, operand, *_), (rows, columns) in zip(p.operands(), AXES, strict=True):
        outer, inner = (columns, rows) if operand.transposed else (rows, columns)
        step = {"batch": operand.batch_stride, outer: operand.ld, inner: 1}.get(axis, 0)
        moved.append(replace(operand, offset=operand.offset + start * step))
    a, b, c = moved
    assert (p.bias, axis) != ("matrix", "n"), "the rows of a matrix bias are n elements apart"
    step = {("row", "m"): 1, ("column", "n"): 1, ("matrix", "m"): p.n}.get((p.bias, axis), 0)
    sizes: dict[str, Any] = {axis: length}
    return replace(p, a=a, b=b, c=c, bias_offset=p.bias_offset + start * step, **sizes)


def foldable(problem: Gemm, axis: Axis) -> bool:
    """Return whether the batch along `axis` is a single tall product: B is shared, A and C have no gaps."""
    step_a, step_b, step_c = axis.strides
    return (
        axis.count > 1
        and step_b == 0
        and not problem.a.transposed
        and problem.bias != "row"
        and step_a == problem.m * problem.a.ld
        and step_c == problem.m * problem.c.ld
    )


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the broadcast shape of two batches by NumPy's rules, or None if they do not broadcast."""
    result = []
    longest = max(len(a), len(b))
    padded = ((1,) * (longest - len(shape)) + shape for shape in (a, b))
    for x, y in zip(*padded, strict=True):
        if x != y and 1 not in (x, y):
            return None
        result.append(y if x == 1 else x)
    return tuple(result)


def result_shape(a: Array | NDArray[Any], b: Array | NDArray[Any]) -> tuple[int, ...]:
    """Return the shape of NumPy's a @ b; raises ProblemError if the shapes or dtypes do not match."""
    if 0 in (a.ndim, b.ndim):
        raise ProblemError(
            "a matrix product takes vectors, matrices or batches of matrices; to scale the result, use alpha="
        )
    if element_of(a) != element_of(b):
        raise ProblemError(f"a is {a.dtype.name}, b is {b.dtype.name}; cast one of them")
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise ProblemError(f"a {a.shape} and b {b.shape} do not fit: the inner sizes {a.shape[-1]} and {inner} differ")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    if batch is None:
        raise ProblemError(f"the batches of a {a.shape} and b {b.shape} do not broadcast")
    return (*batch, *(a.shape[-2:-1] if a.ndim > 1 else ()), *(b.shape[-1:] if b.ndim > 1 else ()))


def matrix_shape(a: Array | NDArray[Any], b: Array | NDArray[Any]) -> tuple[int, ...]:
    """Return the shape of a @ b including the axes that 1-D operands drop."""
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) or ()
    return (*batch, a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1)
