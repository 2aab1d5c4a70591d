"""Reductions: the call, and how a strided array becomes problems."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm import choose
from webmm.calls.operands import Operandish, Temporaries, opened, returned
from webmm.dtypes import DType, dtype_of
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.errors import ProblemError
from webmm.problems.reduce import Operation, Reduction, Span, operation_of

Axes = int | tuple[int, ...] | None
MAX_PROBLEMS = 64  # dispatches that a view of many strides may take before it is copied instead


def reduce(
    x: Operandish,
    op: str,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out_dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Any:
    """Return the reduction of `x` over `axis`, with the shapes of NumPy's: a negative axis counts from the end.

    `op` is one of `webmm.problems.reduce.OPERATIONS`: sum, mean, max, min, argmax or logsumexp. `axis` is an axis, a
    tuple of them, or None for all. `x` is of one of `webmm.dtypes.MATRIX_DTYPES`, of any number of axes; sums are
    float32, whatever the storage, and their rounding error grows with the logarithm of the number of elements. The
    result is `out_dtype`, by default of the type of `x`; positions are int32, of the first maximum. NaN spreads as in
    NumPy; argmax returns the first one. Over no elements a sum is 0, a mean NaN, a logsumexp -inf.

    A NumPy array gives a NumPy array (a number where no axis is left), an `Array` one on the same device. Transposed
    and sliced `Array`s are read where they lie; those with negative strides, and several axes that do not follow each
    other in memory, are copied through the host first.

    Raises ProblemError for an operation, axis or dtype that there is not, and for a maximum over no elements;
    UnsupportedError where the device cannot hold the operands, MemoryLimitError where it has no room.
    """
    operation = operation_of(op)
    with opened("reduce", x, device) as (temporary, source):
        axes = axes_of(source, axis)
        if operation.index and axis is not None and len(axes) > 1:
            raise ProblemError(f"{op} takes one axis, or None for all; a position in several has no single number")
        out = operation.out_dtype(source.dtype) if out_dtype is None else dtype_of(out_dtype)
        kept = tuple(n for i, n in enumerate(source.shape) if i not in axes)
        shape = tuple(1 if i in axes else n for i, n in enumerate(source.shape)) if keepdims else kept
        if not source.size:
            count = math.prod(source.shape[i] for i in axes)
            return returned(_of_nothing(source, operation, shape, count, out), x)
        y = source.device.empty((math.prod(kept),), out)
        source, pieces = _pieces(temporary, source, axes)
        for at, piece in enumerate(pieces):
            shape3, offset = (piece.outer, piece.length, piece.inner), at * piece.outer * piece.inner
            run_in_parts(Reduction(op, *shape3, source.dtype, out, piece.span, offset), source, y)
        return returned(y.reshape(*shape), x)


def axes_of(x: Array, axis: Axes) -> tuple[int, ...]:
    """Return the axes from 0 on, in order; raises ProblemError for one that there is not, or that is named twice."""
    given = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    try:
        given = tuple(map(operator.index, given))
    except TypeError as error:
        raise ProblemError(f"an axis is a whole number, not {axis!r}") from error
    if not all(-x.ndim <= a < x.ndim for a in given):
        raise ProblemError(f"axis {axis} is out of range: x has {x.ndim} axes, of shape {x.shape}")
    axes = tuple(sorted(a % x.ndim for a in given))
    if len(set(axes)) < len(axes):
        raise ProblemError(f"axis {axis} names an axis twice")
    return axes


def _of_nothing(x: Array, operation: Operation, shape: tuple[int, ...], count: int, out: DType) -> Array:
    """Return the results over `count` elements each, which is 0, or none of them at all."""
    if not count and operation.empty is None:
        raise ProblemError(f"{operation.name} over no elements: x has shape {x.shape}")
    return x.device.array(np.full(shape, operation.empty or 0, out.numpy))


# From strided arrays to problems


@dataclass(frozen=True)
class _Piece:
    """Part of an array, seen as x[i, k, j]."""

    outer: int
    length: int
    inner: int
    span: Span


def _merged(axes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (length, stride) of axes, without those of length 1, neighbours merged where one stride serves."""
    merged: list[tuple[int, int]] = []
    for length, stride in axes:
        if length == 1:
            continue
        if merged and merged[-1][1] == stride * length:
            merged[-1] = (merged[-1][0] * length, stride)
        else:
            merged.append((length, stride))
    return merged


def _pieces(temporary: Temporaries, x: Array, axes: tuple[int, ...]) -> tuple[Array, list[_Piece]]:
    """Return what to reduce over `axes`, a dispatch each: of `x`, or of a copy if it cannot be read so."""
    layout = list(zip(x.shape, x.strides, strict=True))
    reduced = _merged(layout[a] for a in axes)
    kept = _merged(pair for a, pair in enumerate(layout) if a not in axes)
    outermost = kept[:-2]
    forward = all(stride >= 0 for _, stride in (*kept, *reduced))
    if not forward or len(reduced) > 1 or math.prod(n for n, _ in outermost) > MAX_PROBLEMS:
        others = [a for a in range(x.ndim) if a not in axes]
        copy = temporary.array(np.ascontiguousarray(x.numpy().transpose(*others, *axes)))
        return _pieces(temporary, copy, tuple(range(len(others), x.ndim)))
    length, stride = reduced[0] if reduced else (1, 1)
    *_, (outer, outer_stride), (inner, inner_stride) = [(1, 0), (1, 0), *kept]
    if outer == 1 and inner_stride > stride:  # rows
        (outer, outer_stride), (inner, inner_stride) = (inner, inner_stride), (1, 0)
    pieces = []
    for indices in product(*(range(n) for n, _ in outermost)):
        offset = x.offset + sum(i * far for i, (_, far) in zip(indices, outermost, strict=True))
        pieces.append(_Piece(outer, length, inner, Span(outer_stride, stride, inner_stride, offset)))
    return x, pieces


def piece_in_place(x: Array, axis: int) -> _Piece | None:
    """Return all of `x` seen as x[i, k, j], with k along `axis`; None where strides do not allow it."""
    layout = list(zip(x.shape, x.strides, strict=True))
    before, along, after = (_merged(axes) for axes in (layout[:axis], [layout[axis]], layout[axis + 1 :]))
    if max(map(len, (before, after))) > 1 or any(stride < 0 for stride in x.strides):
        return None
    (outer, outer_stride), (length, stride), (inner, inner_stride) = (
        part[0] if part else (1, 1) for part in (before, along, after)
    )
    return _Piece(outer, length, inner, Span(outer_stride, stride, inner_stride, x.offset))


def run_in_parts(problem: Reduction, x: Array, y: Array, *vectors: Array) -> None:
    """Queue `problem`, in parts where a binding cannot hold it whole."""
    device = x.device
    limit = device.capabilities.limit("max-storage-buffer-binding-size")
    if problem.outer > 1 and max(extent.nbytes for extent in problem.buffers()) > limit:
        half = problem.outer // 2
        moved = replace(problem.x, offset=problem.x.offset + half * problem.x.outer_stride)
        run_in_parts(replace(problem, outer=half), x, y, *vectors)
        written = problem.buffers()[1]
        per_outer = (written.end - written.start) // problem.outer
        rest = replace(problem, outer=problem.outer - half, x=moved, y_offset=problem.y_offset + half * per_outer)
        run_in_parts(rest, x, y, *vectors)
        return
    choose.run(problem, device, x, y, *vectors)
