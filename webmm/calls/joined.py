"""Joining arrays, and taking elements by their indices: `concatenate()`, `stack()`, `take()`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from webmm import choose
from webmm.arguments.arrays import broadcast_shape
from webmm.arguments.elements import Block, blocks, expression_at
from webmm.calls.executor import Labelled
from webmm.calls.expression import LETTERS, astype, copied, copy_into, made
from webmm.calls.operands import Operandish, Temporaries, opened
from webmm.choose.limits import dispatch_limits
from webmm.dtypes import COMPUTED, I32
from webmm.engine.aliasing import overlap
from webmm.engine.device import Array
from webmm.engine.view import imported
from webmm.errors import ProblemError


def concatenate(arrays: Sequence[Operandish], axis: int = 0) -> Array:
    """Return the arrays joined along `axis`, as NumPy's `concatenate()`.

    The arrays have one dtype, are on one device, and have equal shapes but for the length along `axis`. The result is
    an `Array`. Raises ProblemError if there is no array, or if shapes or dtypes differ; otherwise as `elementwise()`.
    """
    with opened("concatenate", None, *arrays) as temporary:
        if not arrays:
            raise ProblemError("concatenate() and stack() need at least one array")
        parts = [temporary.array(x) for x in arrays]
        first = parts[0]
        along = _axis(axis, first.ndim)
        rest = [x.shape[:along] + x.shape[along + 1 :] for x in parts]
        if len({*rest}) > 1 or len({x.ndim for x in parts}) > 1:
            raise ProblemError(f"shapes {', '.join(str(x.shape) for x in parts)} cannot be joined along axis {axis}")
        if len({x.element for x in parts}) > 1:
            raise ProblemError(f"dtypes {', '.join(x.element.name for x in parts)} must be equal; cast with astype()")
        length = sum(x.shape[along] for x in parts)
        shape = (*first.shape[:along], length, *first.shape[along + 1 :])
        y, start = temporary.device.empty(shape, first.element), 0
        for x in parts:
            stop = start + x.shape[along]
            copy_into(temporary, x, y[(slice(None),) * along + (slice(start, stop),)])
            start = stop
        return y


def write(y: Array, x: Operandish) -> None:
    """Overwrite the elements of `y`, which may be any view, with `x`, converted to its dtype as by `astype()`.

    `x` is a number, or an array in host memory or on the device of `y`, that broadcasts to its shape. Raises
    ProblemError if it does not, or is on another device, and if `y` repeats elements.
    """
    if any(stride == 0 and length > 1 for stride, length in zip(y.strides, y.shape, strict=True)):
        raise ProblemError("a broadcast view repeats elements and cannot be assigned to; assign to a copy()")
    with opened("assign", y.device) as temporary:
        if y.element not in COMPUTED:
            whole = x.numpy() if isinstance(x, Array) else imported(x, wide=True)
            y.device.upload(_spread(whole, y.shape).astype(y.dtype), y)
            return
        if isinstance(x, Array):
            source = temporary.array(x)
            source = source if source.element == y.element else astype(source, y.dtype)
            source = concatenate([source[None]])[0] if overlap(source, y) else source
        else:
            try:
                with np.errstate(all="ignore"):
                    host = imported(x, wide=True).astype(y.dtype)
            except (TypeError, ValueError) as error:
                raise ProblemError(f"{x!r:.60} cannot be stored as {y.element.name}: {error}") from error
            source = temporary.array(host)
        back = tuple(slice(None, None, -1 if stride < 0 else None) for stride in y.strides)
        copy_into(temporary, _spread(source, y.shape)[back], y[back])


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Return `x` broadcast to `shape`; axes of length 1 before those of `shape` are dropped, as in NumPy."""
    more = x.ndim - len(shape)
    x = x[(0,) * more] if more > 0 and set(x.shape[:more]) == {1} else x
    if broadcast_shape(x.shape, shape) != shape:
        raise ProblemError(f"a value of shape {x.shape} does not broadcast to the shape {shape} that it is assigned to")
    return x.broadcast_to(shape) if isinstance(x, Array) else np.broadcast_to(x, shape)


def _within_bindings(*arrays: Array) -> bool:
    """Tell whether a dispatch can bind all the arrays, views with the elements between theirs."""
    most = dispatch_limits(arrays[0].device).binding
    return all(Labelled(x, LETTERS[: x.ndim]).in_place(most) for x in arrays)


def _halves(*arrays: Array, kept: int | None = None) -> list[tuple[slice, ...]]:
    """Return the indices of two halves of arrays of one shape, along the axis that reaches furthest but for `kept`."""
    shape = arrays[0].shape
    reach = {i: (max((n - 1) * x.strides[i] for x in arrays), n) for i, n in enumerate(shape) if i != kept}
    axis = max(reach, key=reach.__getitem__)
    return [(slice(None),) * axis + (part,) for part in (slice(shape[axis] // 2), slice(shape[axis] // 2, None))]


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Return arrays of equal shapes joined along a new axis, as NumPy's `stack()`; raises as `concatenate()` does."""
    if len({x.shape for x in arrays}) > 1:
        raise ProblemError(
            f"arrays of shapes {', '.join(str(x.shape) for x in arrays)} cannot be stacked; they must be equal"
        )
    along = _axis(axis, arrays[0].ndim + 1) if arrays else 0
    return concatenate([x[(slice(None),) * along + (None,)] for x in arrays], along)


def take(x: Operandish, indices: Operandish, axis: int | None = None) -> Array:
    """Return the elements of `x` at `indices` along `axis`, as NumPy's `take()`; the result is an `Array`.

    - `x`: an array of any shape, of a dtype that `elementwise()` supports.
    - `indices`: a 1-D array of integers. In host memory, negative indices count from the end, and ProblemError is
      raised for an index out of range. In an `Array`, which must be int32, indices out of range are clamped.
    - `axis`: an integer; it may be omitted for a 1-D `x`.

    Raises ProblemError for an invalid axis, or indices of another shape or dtype; otherwise as `elementwise()`.
    """
    with opened("take", None, x, indices) as temporary:
        source = temporary.array(x)
        if axis is None and source.ndim != 1:
            raise ProblemError(f"take() needs axis= for an array of {source.ndim} axes")
        along = _axis(axis or 0, source.ndim)
        length = source.shape[along]
        at = temporary.array(indices if isinstance(indices, Array) else _checked(indices, length))
        if at.ndim != 1 or at.element != I32:
            raise ProblemError(f"indices must be a 1-D int32 array, not {at.element.name} of shape {at.shape}")
        if any(stride < 0 for stride in source.strides):
            source = copied(source)
        return _taken(temporary, source, at, along)


def _taken(temporary: Temporaries, x: Array, at: Array, along: int) -> Array:
    """Return the elements of `x` at the indices `at` along an axis, in several dispatches if it exceeds a binding."""
    length = x.shape[along]
    y = temporary.device.empty((*x.shape[:along], at.size, *x.shape[along + 1 :]), x.element)
    if not y.size:
        return y
    dense = x if x.contiguous or x.nbytes > dispatch_limits(x.device).binding else concatenate([x])
    if not _within_bindings(dense, y) and max((1, *x.shape[:along], *x.shape[along + 1 :])) > 1:
        for half in _halves(x, kept=along):
            with _taken(temporary, x[half], at, along) as part:
                copy_into(temporary, part, y[half])
        return y
    before, after = (math.prod(lengths) for lengths in (x.shape[:along], x.shape[along + 1 :]))
    block = Block(
        (1, before, at.size, after),
        ((0, length * after, 0, 1), (0, 0, at.strides[0], 0), (0, at.size * after, after, 1)),
        (dense.offset, at.offset, 0),
    )
    problem = expression_at(made("x", {"x": x.element, "i": I32}, {}, x.element), block)
    choose.run(replace(problem, taken=after, taken_length=length), temporary.device, dense, at, y)
    return y


def put(y: Array, x: Array, at: Array, along: int) -> None:
    """Write `x` to `y`, from the place along an axis that the elements of `at`, int32, have.

    `at` broadcasts to x: each of its elements has a place for the elements of x that it is repeated along, which are
    adjacent to each other along the axis. Places are clamped so that all of x fits.
    """
    if not x.size:
        return
    places = (at if all(stride >= 0 for stride in at.strides) else copied(at)).broadcast_to(x.shape)
    if not _within_bindings(y) and max((1, *x.shape[:along], *x.shape[along + 1 :])) > 1:
        for half in _halves(y, kept=along):
            put(y[half], x[half], places[half], along)
        return
    operands = [x if all(stride >= 0 for stride in x.strides) else copied(x), places]
    first = y[(slice(None),) * along + (slice(x.shape[along]),)]
    whole, room = made("x", {"x": x.element, "i": I32}, {}, y.element), y.shape[along] - x.shape[along] + 1
    for block in blocks([*operands, first], dispatch_limits(y.device).binding):
        problem = expression_at(whole, block)
        choose.run(replace(problem, taken=y.strides[along], taken_length=room, put=True), y.device, *operands, y)


def _checked(indices: Any, length: int) -> Any:
    given = np.asarray(indices)
    if given.dtype.kind not in "iu" and given.size:
        raise ProblemError(f"indices must be integers, not {given.dtype}")
    if ((given < -length) | (given >= length)).any():
        raise ProblemError(f"an index is out of range for {length} elements")
    return np.where(given < 0, given + length, given).astype(np.int32)


def _axis(axis: int, ndim: int) -> int:
    try:
        at = operator.index(axis)
    except TypeError as error:
        raise ProblemError(f"an axis must be an integer, not {axis!r}") from error
    if not -ndim <= at < ndim:
        raise ProblemError(f"axis {axis} is out of range for {ndim} axes")
    return at % ndim
