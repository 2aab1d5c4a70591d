"""Axis arguments, and views of arrays as x[i, k, j] with k along the reduced axes."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from itertools import product

from webmm.calls.executor import Data
from webmm.engine.device import Array
from webmm.errors import ProblemError
from webmm.problems.reduce import Span

Axes = int | tuple[int, ...] | None
MAX_PROBLEMS = 64  # dispatches for a view of many strides; views that need more are copied


def axes_of(x: Data, axis: Axes) -> tuple[int, ...]:
    """Return the axes as non-negative numbers in order; raises ProblemError for an invalid or repeated axis."""
    given = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    try:
        given = tuple(map(operator.index, given))
    except TypeError as error:
        raise ProblemError(f"an axis must be an integer, not {axis!r}") from error
    if not all(-x.ndim <= a < x.ndim for a in given):
        raise ProblemError(f"axis {axis} is out of range: x has {x.ndim} axes, of shape {x.shape}")
    axes = tuple(sorted(a % x.ndim for a in given))
    if len(set(axes)) < len(axes):
        raise ProblemError(f"axis {axis} names an axis twice")
    return axes


def span_of(x: Array) -> Span:
    """Return the layout of an array of three axes."""
    outer, along, inner = x.strides
    return Span(outer, along, inner, x.offset)


def as_ikj(x: Data, axis: int) -> Data:
    """Return `x` as x[i, k, j] with k along `axis`; a copy in host memory if its strides do not allow a view."""
    shape = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
    if not isinstance(x, Array):
        return x.reshape(shape)
    layout = list(zip(x.shape, x.strides, strict=True))
    merged = [_merged(axes) for axes in (layout[:axis], layout[axis : axis + 1], layout[axis + 1 :])]
    if max(map(len, merged)) > 1 or any(stride < 0 for stride in x.strides):
        return x.numpy().reshape(shape)
    strides = tuple(axes[0][1] if axes else 1 for axes in merged)
    return Array(x.storage, shape, x.element, strides, x.offset)


def each_as_ikj(x: Data, axes: tuple[int, ...]) -> list[Data]:
    """Return `x` as arrays x[i, k, j] with k along all of `axes`, in the order of their (i, j) in the result.

    They are views of a copy in host memory if the strides of `x` do not allow views of it.
    """
    others = [a for a in range(x.ndim) if a not in axes]
    if isinstance(x, Array):
        return _views(x, axes, others) or each_as_ikj(x.numpy(), axes)
    length = math.prod(x.shape[a] for a in axes)
    if axes and axes[-1] - axes[0] < len(axes):
        return [x.reshape(math.prod(x.shape[: axes[0]]), length, math.prod(x.shape[axes[-1] + 1 :]))]
    return [x.transpose(*others, *axes).reshape(x.size // length, length, 1)]


def _views(x: Array, axes: tuple[int, ...], others: list[int]) -> list[Data]:
    """Return these views of an array on a device; an empty list if it has to be copied."""
    layout = list(zip(x.shape, x.strides, strict=True))
    reduced, kept = (_merged(layout[a] for a in some) for some in (axes, others))
    outermost = kept[:-2]
    forward = all(stride >= 0 for _, stride in (*kept, *reduced))
    if not forward or len(reduced) > 1 or math.prod(n for n, _ in outermost) > MAX_PROBLEMS:
        return []
    length, stride = reduced[0] if reduced else (1, 1)
    *_, (outer, outer_stride), (inner, inner_stride) = [(1, 0), (1, 0), *kept]
    if outer == 1 and inner_stride > stride:  # rows
        (outer, outer_stride), (inner, inner_stride) = (inner, inner_stride), (1, 0)
    shape, strides = (outer, length, inner), (outer_stride, stride, inner_stride)
    offsets = (
        sum(i * far for i, (_, far) in zip(indices, outermost, strict=True))
        for indices in product(*(range(n) for n, _ in outermost))
    )
    return [Array(x.storage, shape, x.element, strides, x.offset + offset) for offset in offsets]


def _merged(axes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (length, stride) of axes without those of length 1, merging adjacent axes that one stride covers."""
    merged: list[tuple[int, int]] = []
    for length, stride in axes:
        if length == 1:
            continue
        if merged and merged[-1][1] == stride * length:
            merged[-1] = (merged[-1][0] * length, stride)
        else:
            merged.append((length, stride))
    return merged
