"""Views of arrays as webmm.js makes them: where the elements of a part of an array are.

In Python, NumPy works them out (`webmm.engine.view`), whose rules these are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from webmm.arguments.arrays import Layout, Shape, Strided, dense_strides, is_dense
from webmm.errors import ProblemError

Range = tuple[int | None, int | None, int | None]  # start, stop, step


def transposed(x: Strided, axes: Sequence[int]) -> Layout:
    """Return the array with its axes in another order, by default reversed; raises ProblemError if `axes` is none."""
    for axis in axes:
        if not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
            raise ProblemError(f"axis {axis} is out of range: the array has {x.ndim} axes")
    order = [axis % x.ndim for axis in axes] or list(reversed(range(x.ndim)))
    if len(order) != x.ndim or len(set(order)) != x.ndim:
        raise ProblemError(f"the axes [{_listed(axes)}] must name each of the array's {x.ndim} axes once")
    return Layout(tuple(x.shape[axis] for axis in order), tuple(x.strides[axis] for axis in order), x.offset)


def matrices_transposed(x: Strided) -> Layout:
    """Return the array with its last two axes exchanged; raises ProblemError if it has fewer."""
    if x.ndim < 2:
        raise ProblemError(f"an array of shape [{_listed(x.shape)}] holds no matrices to transpose")
    return transposed(x, [*range(x.ndim - 2), -1, -2])


def sliced(x: Strided, ranges: Sequence[int | Range | None]) -> Layout:
    """Return the part of an array that `ranges` select of each axis, further axes as they are.

    A range is None for the whole axis, an index, which drops the axis, or (start, stop, step). Negative indices count
    from the end. Raises ProblemError for an index out of range, and for anything else.
    """
    if len(ranges) > x.ndim:
        raise ProblemError(f"{len(ranges)} ranges for an array of {x.ndim} axes")
    shape, strides, offset = [], [], x.offset
    for axis, (length, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
        given = ranges[axis] if axis < len(ranges) else None
        if given is None or isinstance(given, tuple):
            start, count, step = _indices(given or (None, None, None), length)
            shape.append(count)
            strides.append(step * stride)
            offset += start * stride if count else 0
        elif isinstance(given, int) and -length <= given < length:
            offset += given % length * stride
        else:
            raise ProblemError(f"index {given} is out of range for axis {axis}, of length {length}")
    return Layout(tuple(shape), tuple(strides), offset)


def _indices(given: Range, length: int) -> tuple[int, int, int]:
    """Return the first index of a range along an axis, the number of its indices, and their distance."""
    start, stop, each = given
    step = 1 if each is None else each
    for index in (start, stop, step):
        if index is not None and not isinstance(index, int):
            raise ProblemError(f"a range is [start, stop, step] in whole numbers, not {index}")
    if step == 0:
        raise ProblemError("the step of a range must not be 0")
    ends = (0, length) if step > 0 else (length - 1, -1)
    first, last = (
        end if index is None else min(max(index + length if index < 0 else index, min(ends)), max(ends))
        for index, end in zip((start, stop), ends, strict=True)
    )
    return first, max(0, -((first - last) // step)), step


def reshaped(x: Strided, shape: Shape, asked: Sequence[int]) -> Layout:
    """Return an array of a `shape` that follows from the one that was `asked` for; raises ProblemError if it cannot be.

    Unlike a copy, a view is only of an array in row-major order without gaps.
    """
    size = math.prod(x.shape)
    if math.prod(shape) != size:
        raise ProblemError(f"an array of {size} elements cannot have the shape [{_listed(asked)}]")
    if not is_dense(x):
        raise ProblemError("only a contiguous array can be reshaped without a copy")
    return Layout(shape, dense_strides(shape), x.offset)


def broadcast(x: Strided, shape: Shape) -> Layout:
    """Return the array repeated along new leading axes and axes of length 1; raises ProblemError if it does not fit."""
    extra = len(shape) - x.ndim
    if extra < 0 or any(length not in (1, shape[extra + axis]) for axis, length in enumerate(x.shape)):
        raise ProblemError(f"an array of shape [{_listed(x.shape)}] does not broadcast to [{_listed(shape)}]")
    own = zip(x.shape, x.strides, shape[extra:], strict=True)
    strides = (*(0 for _ in range(extra)), *(stride if length == whole else 0 for length, stride, whole in own))
    return Layout(shape, strides, x.offset)


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
