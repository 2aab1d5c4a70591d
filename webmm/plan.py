"""From strided arrays to the problems that kernels solve: which axis is which, what a batch is, where parts lie."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from webmm.array import Array
from webmm.kernels.base import MAX_WORKGROUPS
from webmm.problem import Gemm, Operand


def matrix_operand(x: Array) -> Operand | None:
    """Return how the last two axes of `x` lie in its buffer, or None where no kernel can read that without a copy."""
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
    """An axis of the batch: how many matrices, and how far apart in A, B and C."""

    count: int
    strides: tuple[int, int, int]


def batch_axes(a: Array, b: Array, c: Array) -> list[Axis]:
    """Return the batch axes of arrays of equal batch shape, with neighbours merged where one stride serves both."""
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
    """Yield the problems that make up a batch of `template`, one dispatch each.

    The last axis becomes the batch of a dispatch, or more rows where all its matrices meet the same B.
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
    """Tell whether the batch along `axis` is one tall product: B is shared, A and C run on without a gap."""
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
    """Return the common shape of two batches by NumPy's rules, or None."""
    result = []
    for x, y in itertools.zip_longest(reversed(a), reversed(b), fillvalue=1):
        if x != y and 1 not in (x, y):
            return None
        result.append(y if x == 1 else x)
    return tuple(reversed(result))
