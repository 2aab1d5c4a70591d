"""The NumPy functions that accept `Array`s, such as ``np.sum(x)``, and how they are computed.

Their parameters have NumPy's names, order and defaults. An argument is honoured or refused with ProblemError.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from webmm.calls import arranged
from webmm.calls.arranged import reshape, resident, shape_of
from webmm.calls.einsum import einsum
from webmm.calls.expression import elementwise, where
from webmm.calls.gemm import matmul
from webmm.calls.joined import concatenate, stack, take
from webmm.calls.operands import data_of
from webmm.calls.reduce import reduce
from webmm.engine import host
from webmm.engine.device import Array, Device
from webmm.engine.view import checked_shape
from webmm.errors import ProblemError
from webmm.problems.declared import spread

VIEWS = (np.transpose, np.swapaxes, np.moveaxis, np.expand_dims, np.squeeze, np.broadcast_to)
ARRANGED = (
    *("copy", "ravel", "flip", "roll", "repeat", "split", "tril", "triu", "diagonal"),
    *("broadcast_arrays", "meshgrid", "atleast_1d", "atleast_2d"),
)
NO: Any = getattr(np, "_NoValue", None)  # NumPy's default of some arguments
ROW_MAJOR = ("C", "A", "K")  # orders in which new arrays, which are row-major, may be asked for


def _refuse(function: str, **given: Any) -> None:
    """Raise ProblemError for an argument that was given, and is not NumPy's default."""
    for name, value in given.items():
        if value is not None and value is not NO:
            raise ProblemError(f"{function}() of device arrays does not support {name}=; use {function}(x.numpy(), …)")


def _view(function: Any) -> Callable[..., Array]:
    first = next(iter(inspect.signature(function).parameters))  # its name

    def compute(*args: Any, **kwargs: Any) -> Array:
        x, *more = args or (kwargs.pop(first),)
        return x._view(lambda shadow: function(shadow, *more, **kwargs))  # type: ignore[no-any-return]

    return compute


def _reduction(op: str) -> Callable[..., Any]:
    def compute(
        a: Array,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: Any = NO,
        initial: Any = NO,
        where: Any = NO,
    ) -> Any:
        _refuse(op, out=out, initial=initial, where=None if where is True else where)
        return reduce(a, op, axis, False if keepdims is NO else keepdims, out_dtype=dtype)

    return compute


def _mean(
    a: Array, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = NO, *, where: Any = NO
) -> Any:
    return _reduction("mean")(a, axis, dtype, out, keepdims, where=where)


def _spread(op: str) -> Callable[..., Any]:
    def compute(
        a: Array,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: Any = NO,
        *,
        where: Any = NO,
        mean: Any = NO,
        correction: Any = NO,
    ) -> Any:
        _refuse(op, out=out, where=None if where is True else where, mean=mean)
        less = ddof if correction is NO else correction
        return reduce(a, spread(op, less), axis, False if keepdims is NO else keepdims, out_dtype=dtype)

    return compute


def _positions(op: str) -> Callable[..., Any]:
    def compute(a: Array, axis: Any = None, out: None = None, *, keepdims: Any = NO) -> Any:
        return _reduction(op)(a, axis, None, out, keepdims)

    return compute


def _extremes(op: str) -> Callable[..., Any]:
    def compute(
        a: Array, axis: Any = None, out: None = None, keepdims: Any = NO, initial: Any = NO, where: Any = NO
    ) -> Any:
        return _reduction(op)(a, axis, None, out, keepdims, initial, where)

    return compute


def _einsum(
    *operands: Any,
    out: None = None,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> Any:
    del optimize  # the order of contraction is fixed for two operands
    _refuse("einsum", out=out, order=_other(order, "K"), casting=_other(casting, "safe"))
    return einsum(*operands, out_dtype=dtype)


def _other(value: Any, default: Any) -> Any:
    return None if value == default else value


def _joined(function: str, join: Callable[..., Array]) -> Callable[..., Array]:
    def compute(
        arrays: Any, axis: Any = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind"
    ) -> Array:
        _refuse(function, out=out, dtype=dtype, casting=_other(casting, "same_kind"))
        if axis is None and join is concatenate:
            arrays, axis = [reshape(x, -1) if isinstance(x, Array) else np.ravel(x) for x in arrays], 0
        return join(arrays, axis)

    return compute


def _where(condition: Any, x: Any = NO, y: Any = NO, /) -> Any:
    if x is NO and y is NO:
        return host.computed(np.where, (condition,), {})
    if x is NO or y is NO:
        raise ProblemError("where() takes both x and y, or neither")
    return where(condition, x, y)


def _take(a: Any, indices: Any, axis: Any = None, out: None = None, mode: str = "raise") -> Array:
    _refuse("take", out=out, mode=_other(mode, "raise"))
    return take(a, indices, axis)


def clip(
    a: Any, a_min: Any = NO, a_max: Any = NO, out: None = None, *, min: Any = NO, max: Any = NO, **ufunc: Any
) -> Any:
    """Return the elements limited to a range, whose ends are numbers, arrays or None, as NumPy's `clip()`."""
    _refuse("clip", out=out, **ufunc)
    low, high = (a_min if min is NO else min), (a_max if max is NO else max)
    ends = {name: end for name, end in (("low", low), ("high", high)) if end is not NO and end is not None}
    text = "clip(x, low, high)" if len(ends) == 2 else "maximum(x, low)" if "low" in ends else "minimum(x, high)"
    return elementwise(text, x=a, **ends) if ends else elementwise("x", x=a)


def _round(a: Any, decimals: int = 0, out: None = None) -> Any:
    _refuse("round", out=out)
    if isinstance(a, Array) and a.dtype.kind in "ib" and decimals >= 0:
        return arranged.copy(a)
    scale = 10.0 ** abs(decimals)
    if not decimals:
        return elementwise("round(x)", x=a)
    return elementwise("round(x * s) / s" if decimals > 0 else "round(x / s) * s", x=a, s=scale)


def truth(op: str) -> Callable[..., Any]:
    """Return NumPy's `all()` or `any()`, given the reduction of int32 of which they are true."""

    def compute(a: Array, axis: Any = None, out: None = None, keepdims: Any = NO, *, where: Any = NO) -> Any:
        _refuse(op, out=out, where=None if where is True else where)
        numbers = elementwise("int32(x)" if a.dtype == bool else "int32(bool(x))", x=a)
        return elementwise("bool(x)", x=reduce(numbers, op, axis, False if keepdims is NO else keepdims))

    return compute


def _full_like(a: Array, fill_value: Any, dtype: Any = None, *more: Any, **settings: Any) -> Array:
    """Return an array like `a` with one value; see `numpy.full_like()`."""
    y = _like(Device.empty)(a, dtype, *more, **settings)
    y[...] = fill_value
    return y


def _ones_like(a: Array, dtype: Any = None, *more: Any, **settings: Any) -> Array:
    return _full_like(a, 1, dtype, *more, **settings)


def _join_as(join: Callable[..., Array]) -> Callable[..., Array]:
    def compute(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Array:
        _refuse(join.__name__, dtype=dtype, casting=_other(casting, "same_kind"))
        return join(tup)

    return compute


def _outer(a: Any, b: Any, out: None = None) -> Any:
    _refuse("outer", out=out)
    x, y = (arranged.ravel(each) for each in resident(a, b))
    return elementwise("x * y", x=x[:, None], y=y)


def _trace(a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    return _reduction("sum")(arranged.diagonal(a, offset, axis1, axis2), -1, dtype, out)


def _size(a: Array, axis: Any = None) -> int:
    return int(np.size(np.broadcast_to(np.empty(()), a.shape), axis))


def _like(make: Callable[..., Array]) -> Callable[..., Array]:
    """Return NumPy's `zeros_like()` or `empty_like()`, which name their first parameter differently."""

    def compute(
        a: Any = None,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
        prototype: Any = None,
    ) -> Array:
        del subok  # there are no subclasses
        x = prototype if a is None else a
        if order not in ROW_MAJOR or not (device is None or isinstance(device, Device)):
            raise ProblemError(
                "arrays are row-major, on a webmm.Device: omit order= and device=, or pass such a device"
            )
        lengths = x.shape if shape is None else checked_shape(shape_of(shape))
        return make(device or x.device, lengths, x.element if dtype is None else dtype)

    return compute


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """Return the tensor contraction of NumPy's `tensordot()`, computed as a matrix product."""
    a, b = resident(a, b)
    if isinstance(axes, (int, np.integer)):
        pairs = [list(range(-axes, 0)), list(range(axes))]
    else:
        pairs = [[int(x)] if isinstance(x, (int, np.integer)) else list(x) for x in axes]
    if len(pairs) != 2:
        raise ProblemError(f"axes must be a number, or a pair of axes or of lists of axes, not {axes!r}")
    left, right = (_places(pair, x, axes) for pair, x in zip(pairs, (a, b), strict=True))
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ProblemError(f"a {a.shape} and b {b.shape} do not fit along axes {axes}")
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [i for i in range(b.ndim) if i not in right]
    inner = int(np.prod([a.shape[i] for i in left]))
    x = reshape(_view(np.transpose)(a, (*rows, *left)), (-1, inner) if inner else (_count(a, rows), 0))
    y = reshape(_view(np.transpose)(b, (*right, *columns)), (inner, -1) if inner else (0, _count(b, columns)))
    product: Array = matmul(x, y)
    return product.reshape(*(a.shape[i] for i in rows), *(b.shape[i] for i in columns))


def _places(axes: list[Any], x: Array, given: Any) -> list[int]:
    """Return axes counted from 0; raises ProblemError for one that is out of range or occurs twice."""
    try:
        found = [operator.index(i) for i in axes]
    except TypeError as error:
        raise ProblemError(f"an axis must be an integer, not one of {given!r}") from error
    places = [i % x.ndim for i in found if -x.ndim <= i < x.ndim]
    if len({*places}) < len(axes):
        raise ProblemError(f"axes {given} do not name distinct axes of an array of {x.ndim} axes, of shape {x.shape}")
    return places


def _dot(a: Any, b: Any, out: None = None) -> Any:
    _refuse("dot", out=out)
    scalars = [np.ndim(x) == 0 for x in (a, b)]
    if any(scalars):
        return elementwise("x * y", **{name: _scalar(x) for name, x in (("x", a), ("y", b))})
    return tensordot(a, b, ([-1], [max(-2, -np.ndim(b))]))


def _scalar(x: Any) -> Any:
    return x if isinstance(x, (bool, int, float, np.generic)) else data_of(x)


def _count(x: Array, axes: list[int]) -> int:
    return int(np.prod([x.shape[i] for i in axes]))


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{function: _view(function) for function in VIEWS},
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: _size,
    np.reshape: reshape,
    np.concatenate: _joined("concatenate", concatenate),
    np.stack: _joined("stack", stack),
    np.where: _where,
    np.take: _take,
    np.sum: _reduction("sum"),
    np.prod: _reduction("prod"),
    np.mean: _mean,
    np.var: _spread("var"),
    np.std: _spread("std"),
    np.max: _extremes("max"),
    np.amax: _extremes("max"),
    np.min: _extremes("min"),
    np.amin: _extremes("min"),
    np.argmax: _positions("argmax"),
    np.argmin: _positions("argmin"),
    np.einsum: _einsum,
    np.tensordot: tensordot,
    np.dot: _dot,
    np.clip: clip,
    **dict.fromkeys((np.round, np.around), _round),
    **{np.all: truth("prod"), np.any: truth("sum")},
    **{getattr(np, name): getattr(arranged, name) for name in ARRANGED},
    **{function: _join_as(getattr(arranged, function.__name__)) for function in (np.vstack, np.hstack, np.dstack)},
    np.tile: arranged.tiled,
    np.column_stack: arranged.column_stack,
    np.outer: _outer,
    np.trace: _trace,
    np.full_like: _full_like,
    np.ones_like: _ones_like,
    np.empty_like: _like(Device.empty),
    np.zeros_like: _like(Device.zeros),
}
