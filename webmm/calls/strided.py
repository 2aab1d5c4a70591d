"""Translation of products of strided arrays into `Gemm` problems; `webmm.cut` cuts those that are too large."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from webmm.engine.device import Array
from webmm.engine.view import element_of
from webmm.errors import ProblemError
from webmm.kernels.base import MAX_WORKGROUPS
from webmm.problems.gemm import Gemm
from webmm.problems.product import Operand


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
