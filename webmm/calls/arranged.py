"""Arrays whose elements are those of others in other places: flipped, rolled, repeated, split; triangles and grids.

Their parameters have NumPy's names, order and defaults.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from webmm.calls.expression import elementwise
from webmm.calls.joined import concatenate, take
from webmm.calls.operands import Operandish
from webmm.dtypes import COMPUTED
from webmm.engine.device import Array
from webmm.engine.view import checked_shape
from webmm.errors import ProblemError


def shape_of(shape: Any) -> tuple[Any, ...]:
    """Return a shape given as NumPy allows, as a number or a sequence, as a tuple."""
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)


def resident(*operands: Operandish) -> list[Array]:
    """Return the operands as Arrays on the device of the first one."""
    device = next(x.device for x in operands if isinstance(x, Array))
    return [x if isinstance(x, Array) else device.array(x) for x in operands]


def _copied(a: Array) -> Array:
    return a.device.array(a.numpy()) if a.element not in COMPUTED else concatenate([a[None]])[0]


def copy(a: Array, order: str = "K", subok: bool = False) -> Array:
    """Return a copy in row-major order on the same device."""
    del order, subok
    return _copied(a)


def reshape(a: Array, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None) -> Array:
    """Return `a` with another shape in row-major order: a view where its strides allow one, else a copy.

    With copy=True the result is always a copy; with copy=False ProblemError is raised if a copy would be needed.
    """
    if order != "C":
        raise ProblemError("device arrays are reshaped in row-major order only; omit order=")
    return a.reshape(shape_of(newshape if shape is None else shape), copy=copy)


def ravel(a: Array, order: str = "C") -> Array:
    """Return the elements along one axis, in row-major order: a view if strides allow it."""
    return reshape(a, -1, "C" if order in ("A", "K") else order)


def flip(m: Array, axis: Any = None) -> Array:
    """Return a view with the order of the elements along one, several or all axes reversed."""
    return m._view(lambda shadow: np.flip(shadow, axis))


def roll(a: Array, shift: Any, axis: Any = None) -> Array:
    """Return the elements moved on by `shift` places along an axis, or each along several; the last come first."""
    if axis is None:
        return roll(ravel(a), shift, 0).reshape(*a.shape)
    shifts, axes = np.broadcast_arrays(np.atleast_1d(shift), np.atleast_1d(_axes(axis, a)))
    for by, along in zip(shifts.tolist(), axes.tolist(), strict=True):
        length = a.shape[along]
        if at := (-by % length if length else 0):
            a = concatenate([a[_along(along, slice(at, None))], a[_along(along, slice(at))]], along)
    return a


def _along(axis: int, key: Any) -> tuple[Any, ...]:
    """Return the index with `key` for an axis, and everything of the others."""
    return (*(slice(None),) * axis, key)


def _axes(axis: Any, x: Array) -> list[int]:
    """Return axes counted from 0; raises ProblemError for one that is out of range."""
    axes = [operator.index(i) for i in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if not all(-x.ndim <= i < x.ndim for i in axes):
        raise ProblemError(f"axis {axis} is out of range for {x.ndim} axes")
    return [i % x.ndim for i in axes]


def repeat(a: Array, repeats: Any, axis: Any = None) -> Array:
    """Return the elements, each `repeats` times, along an axis, or all along one; `repeats` may differ for each."""
    if axis is None:
        return repeat(ravel(a), repeats, 0)
    (along,) = _axes(axis, a)
    counts = np.asarray(repeats.numpy() if isinstance(repeats, Array) else repeats)
    if counts.dtype.kind not in "iu" or (counts < 0).any() or counts.ndim > 1:
        raise ProblemError(f"repeats must be whole numbers from 0 on, not {repeats!r}")
    if counts.size > 1:
        if counts.size != a.shape[along]:
            raise ProblemError(f"{counts.size} repeats do not match {a.shape[along]} elements")
        return take(a, np.repeat(np.arange(a.shape[along]), counts), along)
    at, times = along + 1, int(counts.reshape(-1)[0]) if counts.size else 0
    spread = a[_along(at, None)].broadcast_to((*a.shape[:at], times, *a.shape[at:]))
    return reshape(spread, (*a.shape[:along], a.shape[along] * times, *a.shape[at:]), copy=True)


def tiled(A: Array, reps: Any) -> Array:
    """Return the array, repeated as a whole, as often as `reps` says for each axis."""
    times = checked_shape(shape_of(reps))
    more = max(len(times), A.ndim)
    times, shape = (1,) * (more - len(times)) + times, (1,) * (more - A.ndim) + A.shape
    spread = reshape(A, shape)[tuple(x for _ in shape for x in (None, slice(None)))]
    whole = spread.broadcast_to(tuple(x for pair in zip(times, shape, strict=True) for x in pair))
    return reshape(whole, tuple(n * length for n, length in zip(times, shape, strict=True)), copy=True)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Return a view for each position along an axis."""
    (along,) = _axes(axis, x)
    return tuple(x[_along(along, i)] for i in range(x.shape[along]))


def split(ary: Array, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Return views of equal parts along an axis, or of the parts between given positions."""
    (along,) = _axes(axis, ary)
    length = ary.shape[along]
    if isinstance(indices_or_sections, (int, np.integer)):
        if indices_or_sections < 1 or length % indices_or_sections:
            raise ProblemError(f"{length} elements cannot be split into {indices_or_sections} equal parts")
        ends = [*range(0, length, length // int(indices_or_sections) or 1), length]
    else:
        ends = [0, *map(int, indices_or_sections), length]
    parts = itertools.pairwise(ends)
    return [ary[_along(along, slice(start, stop))] for start, stop in parts]


def _triangle(name: str, text: str) -> Callable[..., Array]:
    def compute(m: Array, k: int = 0) -> Array:
        if m.ndim < 2:
            raise ProblemError(f"an array of shape {m.shape} holds no matrices, of which to take a triangle")
        i, j = (np.arange(n, dtype=np.int32) for n in m.shape[-2:])
        zero = "x ^ x" if m.dtype == bool else "0"
        return elementwise(text.format(zero), x=m, i=i[:, None] + np.int32(k), j=j)  # type: ignore[no-any-return]

    compute.__name__, compute.__doc__ = name, "Return the matrices with zeros beyond their diagonal number `k`."
    return compute


tril, triu = _triangle("tril", "where(j <= i, x, {})"), _triangle("triu", "where(j >= i, x, {})")


def diagonal(a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return a view of the diagonals of the matrices along two axes, as the last axis."""
    return a._view(lambda shadow: np.diagonal(shadow, offset, axis1, axis2))


def broadcast_arrays(*arrays: Operandish, subok: bool = False) -> tuple[Array, ...]:
    """Return views of the arrays in the shape that they have in common."""
    del subok
    several = resident(*arrays)
    try:
        shape = np.broadcast_shapes(*(x.shape for x in several))
    except ValueError as error:
        raise ProblemError(str(error)) from error
    return tuple(x.broadcast_to(shape) for x in several)


def meshgrid(*xi: Array, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Array, ...]:
    """Return the coordinates of a grid along each axis, as views."""
    del copy
    if indexing not in ("xy", "ij") or any(x.ndim > 1 for x in xi):
        raise ProblemError(f"meshgrid() takes 1-D arrays and indexing 'xy' or 'ij', not {indexing!r}")
    order = [*range(len(xi))]
    if indexing == "xy" and len(xi) > 1:
        order[:2] = [1, 0]
    found = [reshape(x, tuple(x.size if axis == order[i] else 1 for axis in range(len(xi)))) for i, x in enumerate(xi)]
    return tuple(found) if sparse else broadcast_arrays(*found)


def _at_least(count: int) -> Callable[..., Any]:
    def compute(*arys: Any) -> Any:
        found = [x if x.ndim >= count else reshape(x, (1,) * (count - x.ndim) + x.shape) for x in resident(*arys)]
        return found[0] if len(found) == 1 else tuple(found)

    return compute


atleast_1d, atleast_2d = _at_least(1), _at_least(2)


def vstack(tup: Sequence[Operandish]) -> Array:
    """Return the arrays joined along their first axis; those of one axis are rows."""
    return concatenate([atleast_2d(x) for x in resident(*tup)], 0)


def hstack(tup: Sequence[Operandish]) -> Array:
    """Return the arrays joined along their second axis, or those of one axis along it."""
    arrays = [atleast_1d(x) for x in resident(*tup)]
    return concatenate(arrays, 0 if arrays[0].ndim == 1 else 1)


def column_stack(tup: Sequence[Operandish]) -> Array:
    """Return the arrays joined along their second axis; those of one axis are columns."""
    return concatenate([x if x.ndim > 1 else reshape(x, (-1, 1)) for x in resident(*tup)], 1)


def dstack(tup: Sequence[Operandish]) -> Array:
    """Return the arrays joined along their third axis, of which each has at least one element."""
    arrays = [atleast_2d(x) for x in resident(*tup)]
    return concatenate([x if x.ndim > 2 else x[:, :, None] for x in arrays], 2)
