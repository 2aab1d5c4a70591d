"""Reductions and normalisations: axes, shapes, and views of arrays as x[i, k, j] with k along the reduced axes."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence

from webmm.arguments.arrays import Layout, Shape, Shaped, Strided, element_of, merged, merged_jointly
from webmm.dtypes import F32, I32, DType
from webmm.errors import ProblemError
from webmm.problems.normalise import NORMALISATIONS, Normalisation
from webmm.problems.reduce import Operation, Other, Reduction, Span, check_two, check_types

Axes = int | tuple[int, ...] | None
MAX_PROBLEMS = 64  # dispatches for a view of many strides; views that need more are copied


def axes_of(x: Shaped, axis: Axes) -> tuple[int, ...]:
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


def check_axes(operation: Operation, axis: Axes, axes: tuple[int, ...]) -> None:
    """Raise ProblemError for a position in several axes, as `axes_of()` found them."""
    if operation.index and axis is not None and len(axes) > 1:
        raise ProblemError(
            f"{operation.name} takes one axis, or none for all; a position in several has no single number"
        )


def reduced_dtype(
    operation: Operation, xs: Sequence[Shaped], asked: DType | None, axis: Axes, axes: tuple[int, ...]
) -> DType:
    """Return the dtype of the reduction of one array, or of two: `asked`, or else the natural one.

    Raises ProblemError for dtypes that the operation does not have, and as `check_axes()` does.
    """
    dtype, *others = (element_of(x) for x in xs)
    mixed = dtype != I32 and any(each != dtype for each in others)
    out = asked or operation.out_dtype(F32 if mixed else dtype)
    check_types(operation, dtype, out)
    check_two(operation, dtype, others[0] if others else None)
    check_axes(operation, axis, axes)
    return out


def reduced_shape(x: Shaped, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """Return the shape of a reduction's result."""
    kept = [(1 if i in axes else n) for i, n in enumerate(x.shape) if keepdims or i not in axes]
    return tuple(kept)


def of_nothing(operation: Operation, x: Shaped, axes: tuple[int, ...]) -> float:
    """Return each result for an `x` without elements; raises ProblemError if there is none over no elements."""
    if operation.none is not None:
        return operation.none(element_of(x) == I32)
    if operation.empty is None and not math.prod([x.shape[i] for i in axes]):
        raise ProblemError(f"{operation.name} over no elements: x has shape {x.shape}")
    return operation.empty or 0.0


def check_vector(x: Shaped, length: int, dtype: DType) -> None:
    """Raise ProblemError unless a weight or bias has shape (length,) and that dtype."""
    if x.shape != (length,) or element_of(x) != dtype:
        raise ProblemError(
            f"weight and bias must have shape ({length},) and dtype {dtype.name}, "
            f"not {x.shape} and {element_of(x).name}"
        )


def ikj_shape(x: Shaped, axis: int) -> tuple[int, int, int]:
    """Return the shape of `x` as x[i, k, j] with k along `axis`."""
    return math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])


def ikj(x: Strided, axis: int) -> Layout | None:
    """Return `x` as x[i, k, j] with k along `axis`; None if its strides do not allow such a view."""
    axes = list(zip(x.shape, x.strides, strict=True))
    groups = [merged(some) for some in (axes[:axis], axes[axis : axis + 1], axes[axis + 1 :])]
    if any(len(group) > 1 for group in groups) or any(stride < 0 for stride in x.strides):
        return None
    return Layout(ikj_shape(x, axis), tuple(group[0][1] if group else 1 for group in groups), x.offset)


def each_ikj(xs: Sequence[Strided], axes: tuple[int, ...]) -> list[list[Layout]]:
    """Return views x[i, k, j] of arrays of one shape, with k along all of `axes`, in the order of their (i, j) in the
    result.

    The list is empty if the strides of the arrays do not allow such views.
    """
    shape = xs[0].shape
    others = [a for a in range(len(shape)) if a not in axes]
    reduced, kept = (merged_jointly((shape[a], [x.strides[a] for x in xs]) for a in some) for some in (axes, others))
    outermost = kept[:-2]
    forward = all(stride >= 0 for _, strides in (*kept, *reduced) for stride in strides)
    if not forward or len(reduced) > 1 or math.prod([n for n, _ in outermost]) > MAX_PROBLEMS:
        return []
    none = (1, [0 for _ in xs])
    length, near = reduced[0] if reduced else (1, [1 for _ in xs])
    outer, inner = [none, none, *kept][-2:]
    if outer[0] == 1 and inner[1][0] > near[0]:  # rows
        outer, inner = inner, none
    return [
        [
            Layout(
                (outer[0], length, inner[0]),
                (outer[1][n], near[n], inner[1][n]),
                x.offset + sum(i * far[n] for i, (_, far) in zip(indices, outermost, strict=True)),
            )
            for n, x in enumerate(xs)
        ]
        for indices in itertools.product(*(range(n) for n, _ in outermost))
    ]


def k_at_once(xs: Sequence[Shaped], most: Sequence[int]) -> int:
    """Return how many k of x[i, k, j] can be reduced at once, if each array may have so many bytes for one i.

    It is all of them, or fewer if a single i is too large.
    """
    _, length, inner = xs[0].shape
    each = (size // (inner * element_of(x).itemsize) for x, size in zip(xs, most, strict=True))
    return min(length, max(1, min(each)))


def span_of(x: Strided) -> Span:
    """Return the layout of an array of three axes."""
    outer, along, inner = x.strides
    return Span(outer, along, inner, x.offset)


def reduction_of(operation: Operation, x: Strided, y: Strided, other: Strided | None = None) -> Reduction:
    """Return the problem that reduces x[i, k, j], with other[i, k, j], over k into the dense y[i, j]."""
    outer, length, inner = x.shape
    of_other = None if other is None else Other(element_of(other), span_of(other))
    dtypes, where = (element_of(x), element_of(y)), (span_of(x), y.offset)
    return Reduction(operation.name, outer, length, inner, *dtypes, *where, other=of_other)


def normalisation_of(function: str, x: Strided, y: Strided, weight: bool, bias: bool, epsilon: float) -> Normalisation:
    """Return the problem that normalises x[i, k, j] along k into the dense y[i, k, j]."""
    outer, length, inner = x.shape
    operation, dtype = NORMALISATIONS[function].operation, element_of(x)
    where = span_of(x), y.offset
    return Normalisation(
        operation, outer, length, inner, dtype, dtype, *where, function, weight=weight, bias=bias, epsilon=epsilon
    )
