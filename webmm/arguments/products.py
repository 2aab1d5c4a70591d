"""Floating-point matrix products: shapes, dtypes, and the `Gemm` problems of strided arrays, which `webmm.cut` cuts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from webmm.arguments.arrays import Shape, Shaped, Strided, broadcast_shape, element_of
from webmm.arguments.pieces import starts_of
from webmm.dtypes import F32, DType
from webmm.errors import ProblemError
from webmm.kernels.base import MAX_WORKGROUPS
from webmm.problems.gemm import Gemm
from webmm.problems.product import Operand
from webmm.problems.quantized import Quantized
from webmm.problems.weights import BlockWeights, WeightOnly
from webmm.wgsl.epilogues import Applied, Spread, Terms


def matrix_operand(x: Strided) -> Operand | None:
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
    """An axis of the batch: the number of matrices, and their strides in A, B, C and the operands of the epilogue."""

    count: int
    strides: tuple[int, ...]


def batch_axes(a: Strided, b: Strided, c: Strided, *operands: Strided) -> list[Axis]:
    """Return the batch axes of arrays of equal batch shape; adjacent axes are merged if one stride covers both."""
    axes: list[Axis] = []
    strides = zip(*(x.strides[:-2] for x in (a, b, c, *operands)), strict=True)
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
    none = (0,) * (3 + len(template.spreads))
    last = axes[-1] if axes else Axis(1, none)
    base, outer = template, axes[:-1]
    if foldable(template, last):
        base = replace(template, m=template.m * last.count)
        last = Axis(1, none)
    for indices in itertools.product(*(range(axis.count) for axis in outer)):
        start = [sum(i * axis.strides[x] for i, axis in zip(indices, outer, strict=True)) for x in range(len(none))]
        for first in range(0, last.count, MAX_WORKGROUPS):
            moved = [start[x] + first * last.strides[x] for x in range(len(none))]
            operands = (
                replace(operand, offset=operand.offset + moved[x], batch_stride=last.strides[x])
                for x, operand in enumerate((base.a, base.b, base.c))
            )
            a, b, c = operands
            spreads = tuple(
                replace(each, offset=each.offset + moved[3 + i], batch=last.strides[3 + i])
                for i, each in enumerate(base.spreads)
            )
            yield replace(base, batch=min(MAX_WORKGROUPS, last.count - first), a=a, b=b, c=c, spreads=spreads)


def foldable(problem: Gemm, axis: Axis) -> bool:
    """Return whether the batch along `axis` is a single tall product: B is shared, A and C have no gaps."""
    step_a, step_b, step_c, *others = axis.strides
    return (
        axis.count > 1
        and step_b == 0
        and not problem.a.transposed
        and problem.bias != "row"
        and step_a == problem.m * problem.a.ld
        and step_c == problem.m * problem.c.ld
        and all(step == problem.m * each.row for step, each in zip(others, problem.spreads, strict=True))
    )


def result_shape(a: Shaped, b: Shaped) -> Shape:
    """Return the shape of NumPy's a @ b; raises ProblemError if the shapes or dtypes do not match."""
    if 0 in (a.ndim, b.ndim):
        raise ProblemError(
            "a matrix product takes vectors, matrices or batches of matrices; to scale the result, use alpha="
        )
    if element_of(a) != element_of(b):
        raise ProblemError(f"a is {element_of(a).name}, b is {element_of(b).name}; cast one of them")
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise ProblemError(f"a {a.shape} and b {b.shape} do not fit: the inner sizes {a.shape[-1]} and {inner} differ")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    if batch is None:
        raise ProblemError(f"the batches of a {a.shape} and b {b.shape} do not broadcast")
    return (*batch, *(a.shape[-2:-1] if a.ndim > 1 else ()), *(b.shape[-1:] if b.ndim > 1 else ()))


def matrix_shape(a: Shaped, b: Shaped) -> Shape:
    """Return the shape of a @ b including the axes that 1-D operands drop."""
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) or ()
    return (*batch, a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1)


def check_in_place(a: Shaped, b: Shaped, c: Strided) -> None:
    """Raise ProblemError unless `c` can be updated with the product of `a` and `b`."""
    if min(a.ndim, b.ndim, c.ndim) < 2:
        raise ProblemError("gemm() takes matrices or batches of matrices, with at least 2 axes")
    shape = result_shape(a, b)
    if shape[-2:] != c.shape[-2:] or broadcast_shape(shape, c.shape) != c.shape:
        raise ProblemError(
            f"a @ b has shape {shape}; c {c.shape} must have the same last two axes and broadcast its batch"
        )
    check_stored_once("c", c)


def check_stored_once(name: str, out: Shaped) -> None:
    """Raise ProblemError if several elements of `out` are stored in one place."""
    if any(length > 1 and not stride for length, stride in zip(out.shape, out.strides, strict=True)):
        raise ProblemError(
            f"{name} repeats its elements, as a broadcast view does; pass an array that stores each element once"
        )


def check_bias(bias: Shaped, product: Shape, dtype: DType) -> None:
    """Raise ProblemError unless `bias` fits a product of that shape, `matrix_shape()`, of operands of `dtype`."""
    if (given := element_of(bias)) not in (dtype, F32):
        more = "" if dtype == F32 else ", or float32"
        raise ProblemError(f"bias is {given.name}; it must be {dtype.name}, as the operands are{more}")
    rows, columns = product[-2:]
    if bias.shape not in ((columns,), (rows, 1)):
        raise ProblemError(f"bias has shape {bias.shape}; it must be ({columns},), or ({rows}, 1) for one per row")


def check_residual(residual: Shaped, shape: Shape) -> None:
    """Raise ProblemError unless `residual` has the shape of the result."""
    if residual.shape != shape:
        raise ProblemError(f"residual has shape {residual.shape}; it must have the result's shape, {shape}")


def check_operands(operands: Sequence[Shaped], shape: Shape) -> None:
    """Raise ProblemError unless the operands of an epilogue broadcast to the result's shape."""
    for x in operands:
        if broadcast_shape(x.shape, shape) != shape:
            raise ProblemError(
                f"the epilogue has an array of shape {x.shape}, which does not broadcast to the result's shape, {shape}"
            )


def shape_with(a: Shaped, b: Shaped, bias: Shaped | None, residual: Shaped | None, operands: Sequence[Shaped]) -> Shape:
    """Return `result_shape()`, after checks of what is added to the product, and of its epilogue's operands."""
    shape = result_shape(a, b)
    if bias is not None:
        check_bias(bias, matrix_shape(a, b), element_of(a))
    if residual is not None:
        check_residual(residual, shape)
    check_operands(operands, shape)
    return shape


def bias_kind(bias: Shaped | None) -> str:
    """Return the kind of bias in a `Gemm` for a bias of shape (n,) or (m, 1)."""
    return "" if bias is None else "column" if bias.ndim == 1 else "row"


A = TypeVar("A", bound=Strided)


def row_major(a: A, b: A, c: A, kind: str) -> tuple[A, A, A, str]:
    """Return operands, result and kind of bias of a product whose result has rows of unit stride.

    It is that of `a` and `b`, or Cᵀ = Bᵀ·Aᵀ. Raises ProblemError if `c` has neither rows nor columns of unit stride.
    """
    target = matrix_operand(c)
    if target is None:
        raise ProblemError("neither the rows nor the columns of c have unit stride; pass a contiguous array")
    if not target.transposed:
        return a, b, c, kind
    return b.mT, a.mT, c.mT, {"": "", "column": "row", "row": "column"}[kind]


def spread_of(x: Strided) -> Spread:
    """Return the layout of an operand of the epilogue for the first matrix of a batch."""
    row, column = x.strides[-2:]
    return Spread(element_of(x), x.offset, 0, row, column)


def problem_of(
    a: Strided, b: Strided, c: Strided, bias_offset: int, terms: Terms, precision: str, *operands: Strided
) -> Gemm:
    """Return the problem of the first matrices of `row_major()` arrays of equal batches, which kernels can read.

    `operands` are those of the epilogue, of the shape of `c`.
    """
    left, right, out = matrix_operand(a), matrix_operand(b), matrix_operand(c)
    assert left, "made readable before"
    assert right
    assert out
    sizes = c.shape[-2], c.shape[-1], a.shape[-1], 1
    terms = replace(terms, spreads=tuple(spread_of(x) for x in operands))
    more = {**vars(terms), "bias_offset": bias_offset, "precision": precision}
    return Gemm(*sizes, element_of(a), element_of(c), left, right, out, **more)


def quantized_of(template: Quantized, a: Strided, b: Strided, c: Strided, *terms: Strided) -> Quantized:
    """Return `template` for these matrices, which kernels can read, a dense result, and the terms of its rows.

    Further axes have length 1.
    """
    left, right = matrix_operand(a), matrix_operand(b)
    assert left, "made readable before"
    assert right
    m, n = c.shape[-2:]
    return replace(template, m=m, n=n, a=left, b=right, starts=starts_of(c, *terms))


def weighted_of(
    weights: BlockWeights, terms: Applied, operands: Sequence[Strided], a: Strided, words: Strided, *others: Strided
) -> WeightOnly:
    """Return the problem of a matrix, columns of `weights`, and the scales, zero points and dense result of these.

    `operands` are those of the activation in `terms`, of the shape of the result.
    """
    left = matrix_operand(a)
    assert left, "made readable before"
    applied = vars(replace(terms, spreads=tuple(spread_of(x) for x in operands)))
    sizes, dtypes = (a.shape[0], words.shape[0], weights.shape[0]), (element_of(a), element_of(others[-1]))
    return WeightOnly(*sizes, *dtypes, left, weights.bits, weights.block, starts_of(words, *others), **applied)
