"""The NumPy functions that accept `Array`s, such as ``np.sum(x)``, and how they are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from webmm.calls.einsum import einsum
from webmm.calls.expression import concatenate, stack, take, where
from webmm.calls.gemm import matmul
from webmm.calls.reduce import reduce
from webmm.engine.array import Array
from webmm.errors import ProblemError

VIEWS = (np.transpose, np.swapaxes, np.moveaxis, np.expand_dims, np.squeeze, np.broadcast_to)


def _view(function: Any) -> Callable[..., Array]:
    return lambda x, *args, **kwargs: x._view(lambda shadow: function(shadow, *args, **kwargs))


def reshape(x: Array, shape: Any, **settings: Any) -> Array:
    """Return `x` with another shape in row-major order: a view if `x` is contiguous, else a copy."""
    if settings.pop("order", "C") != "C" or any(value is not None for value in settings.values()):
        raise ProblemError("device arrays are reshaped in row-major order only; omit order= and copy=")
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    dense = x if x.contiguous else concatenate([x]) if x.ndim else x
    return dense.reshape(*lengths)


def _reduction(op: str) -> Callable[..., Any]:
    def compute(x: Array, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False) -> Any:
        if out is not None:
            raise ProblemError("reductions of device arrays do not support out=; use the result")
        return reduce(x, op, axis, keepdims is True, out_dtype=dtype)

    return compute


def _positions(op: str) -> Callable[..., Any]:
    return lambda x, axis=None, out=None, *, keepdims=False: _reduction(op)(x, axis, None, out, keepdims)


def _extremes(op: str) -> Callable[..., Any]:
    return lambda x, axis=None, out=None, keepdims=False: _reduction(op)(x, axis, None, out, keepdims)


def _einsum(*given: Any, dtype: Any = None, optimize: Any = False, **settings: Any) -> Any:
    if settings:
        raise ProblemError(f"einsum() of device arrays does not take {', '.join(settings)}")
    del optimize  # the order of contraction is fixed for two operands
    return einsum(*given, out_dtype=dtype)


def tensordot(a: Array, b: Array, axes: Any = 2) -> Array:
    """Return the tensor contraction of NumPy's `tensordot()`, computed as a matrix product."""
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    left, right = [i % a.ndim for i in left], [i % b.ndim for i in right]
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ProblemError(f"a {a.shape} and b {b.shape} do not fit along axes {axes}")
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [i for i in range(b.ndim) if i not in right]
    inner = int(np.prod([a.shape[i] for i in left]))
    x = reshape(_view(np.transpose)(a, (*rows, *left)), (-1, inner) if inner else (_count(a, rows), 0))
    y = reshape(_view(np.transpose)(b, (*right, *columns)), (inner, -1) if inner else (0, _count(b, columns)))
    product: Array = matmul(x, y)
    return product.reshape(*(a.shape[i] for i in rows), *(b.shape[i] for i in columns))


def _count(x: Array, axes: list[int]) -> int:
    return int(np.prod([x.shape[i] for i in axes]))


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{function: _view(function) for function in VIEWS},
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
    np.reshape: reshape,
    np.concatenate: lambda arrays, axis=0: concatenate(arrays, axis),
    np.stack: lambda arrays, axis=0: stack(arrays, axis),
    np.where: where,
    np.take: lambda x, indices, axis=None: take(x, indices, axis),
    np.sum: _reduction("sum"),
    np.prod: _reduction("prod"),
    np.mean: _reduction("mean"),
    np.max: _extremes("max"),
    np.amax: _extremes("max"),
    np.min: _extremes("min"),
    np.amin: _extremes("min"),
    np.argmax: _positions("argmax"),
    np.argmin: _positions("argmin"),
    np.einsum: _einsum,
    np.tensordot: tensordot,
    np.dot: lambda a, b: tensordot(a, b, ([a.ndim - 1], [max(0, b.ndim - 2)])),
    np.empty_like: lambda x, dtype=None, **_: x.device.empty(x.shape, dtype or x.element),
    np.zeros_like: lambda x, dtype=None, **_: x.device.zeros(x.shape, dtype or x.element),
}
