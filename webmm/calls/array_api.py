"""The part of the Python array API standard that webmm computes on devices, for float32, float16, int32 and bool.

The standard: https://data-apis.org/array-api/2024.12/. Arrays are `webmm.Array`s. The functions here follow the
standard and raise ProblemError for dtypes and shapes that it does not define. There is no float64; the default dtype is
float32. The functions of elements are made from the tables UNARY and BINARY.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from webmm.calls.arranged import broadcast_arrays, flip, meshgrid, repeat, reshape, roll, shape_of, tril, triu
from webmm.calls.arranged import tiled as tile
from webmm.calls.arranged import unstack as unstack
from webmm.calls.expression import astype as converted
from webmm.calls.expression import elementwise, where
from webmm.calls.gemm import matmul
from webmm.calls.inspection import Info, bool, can_cast, e, finfo, float16, float32, iinfo, inf, int32, isdtype, nan
from webmm.calls.inspection import newaxis as newaxis
from webmm.calls.inspection import pi as pi
from webmm.calls.inspection import result_type as result_type
from webmm.calls.joined import concatenate, stack, take
from webmm.calls.numpy_functions import FUNCTIONS, tensordot
from webmm.calls.operands import from_dlpack as from_dlpack
from webmm.calls.reduce import reduce
from webmm.dtypes import COMPUTED, dtype_of
from webmm.engine.device import Array, Device, default_device
from webmm.engine.devices import named
from webmm.engine.view import imported
from webmm.errors import ProblemError

__array_api_version__ = "2024.12"
__array_namespace_info__ = Info
AS_THEY_ARE = (  # functions and constants of the standard that other modules have
    *(broadcast_arrays, flip, meshgrid, repeat, roll, tile, tril, triu, where, matmul, stack, take, tensordot),
    *(can_cast, e, finfo, float16, iinfo, inf, isdtype),
)

UNARY = {
    **{name: f"{name}(x)" for name in ("abs", "exp", "expm1", "log", "log10", "log1p", "log2", "sqrt", "sign")},
    **{name: f"{name}(x)" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: f"{name}(x)" for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "signbit")},
    **{"negative": "-x", "positive": "x", "square": "x * x", "reciprocal": "1 / x"},
    **{"logical_not": "~x", "bitwise_invert": "~x"},
}
OF_WHOLE = {"floor": "x", "ceil": "x", "trunc": "x", "round": "x", "isfinite": "x == x", "isinf": "x != x"}  # of int32
OF_WHOLE["isnan"] = "x != x"
BINARY = {
    **{"add": "x + y", "subtract": "x - y", "multiply": "x * y", "divide": "x / y"},
    **{"floor_divide": "x // y", "remainder": "x % y", "pow": "x ** y"},
    **{"less": "x < y", "less_equal": "x <= y", "greater": "x > y", "greater_equal": "x >= y"},
    **{"equal": "x == y", "not_equal": "x != y"},
    **{"logical_and": "x & y", "logical_or": "x | y", "logical_xor": "x ^ y"},
    **{"bitwise_and": "x & y", "bitwise_or": "x | y", "bitwise_xor": "x ^ y"},
    **{"bitwise_left_shift": "x << y", "bitwise_right_shift": "x >> y"},
    **{name: f"{name}(x, y)" for name in ("maximum", "minimum", "atan2", "hypot", "copysign", "nextafter")},
    "logaddexp": "logaddexp(x, y)",
}

broadcast_to, expand_dims, squeeze, permute_dims, moveaxis = (
    FUNCTIONS[function] for function in (np.broadcast_to, np.expand_dims, np.squeeze, np.transpose, np.moveaxis)
)


def of_version(version: str | None) -> Any:
    """Return this namespace; raises ProblemError for a version of the standard that it does not implement."""
    import sys

    if version not in (None, "2021.12", "2022.12", "2023.12", __array_api_version__):
        raise ProblemError(f"version {version} of the array API is not supported; use {__array_api_version__}")
    return sys.modules[__name__]


def asarray(x: Any, *, dtype: Any = None, device: Device | str | None = None, copy: Any = None) -> Array:
    """Return `x` as an Array: `x` itself if it is an Array of that dtype on that device, else a copy.

    With copy=True the result is always a copy; with copy=False ProblemError is raised if a copy would be needed.
    """
    if copy is False and not (isinstance(x, Array) and named(device) in (None, x.device) and dtype in (None, x.dtype)):
        raise ProblemError("copy=False is not possible: host memory, another dtype or another device needs a copy")
    device = named(device)
    if isinstance(x, Array):
        if device not in (None, x.device):
            return device.array(x.numpy(), dtype)
        wanted = x.element if dtype is None else dtype_of(dtype)
        if wanted == x.element and not copy:
            return x
        moved = wanted == x.element and wanted not in COMPUTED
        return x.device.array(x.numpy(), dtype) if moved else converted(x, wanted.name)
    host = imported(x, wide=dtype is not None)
    return (named(device) or default_device()).array(host, dtype)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Device | str | None = None,
) -> Array:
    """Return evenly spaced numbers from `start`, or from 0, to before `stop`: int32 if all are integers, or float32."""
    first, end = (0, start) if stop is None else (start, stop)
    found = np.arange(first, end, step)
    return asarray(found, dtype=dtype or (int32 if found.dtype.kind == "i" else float32), device=device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Device | str | None = None,
    endpoint: Any = True,
) -> Array:
    """Return `num` evenly spaced numbers from `start` to `stop`, or to before it, float32 by default."""
    return asarray(np.linspace(start, stop, num, endpoint=endpoint), dtype=dtype or float32, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Device | str | None = None
) -> Array:
    """Return a matrix of ones on diagonal number `k` and zeros elsewhere, float32 by default."""
    return asarray(np.eye(n_rows, n_cols, k), dtype=dtype or float32, device=device)


def full(shape: Any, value: float, *, dtype: Any = None, device: Device | str | None = None) -> Array:
    """Return an array filled with `value`; the dtype defaults to that of `value`: float32, int32 or bool."""
    lengths = shape_of(shape)
    return asarray(np.full(lengths, value), dtype=dtype or asarray(value, device=device).dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Device | str | None = None) -> Array:
    """Return an array of zeros, float32 by default."""
    return full(shape, 0, dtype=dtype or float32, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Device | str | None = None) -> Array:
    """Return an array of ones, float32 by default."""
    return full(shape, 1, dtype=dtype or float32, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Device | str | None = None) -> Array:
    """Return an uninitialised array, float32 by default."""
    lengths = shape_of(shape)
    return (named(device) or default_device()).empty(lengths, dtype_of(dtype or float32))


def full_like(x: Array, value: float, *, dtype: Any = None, device: Device | str | None = None) -> Array:
    """Return an array filled with `value`, with the shape of `x` and by default its dtype and device."""
    return full(x.shape, value, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x: Array, *, dtype: Any = None, device: Device | str | None = None) -> Array:
    """Return an array of zeros like `x`; see `full_like()`."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Array, *, dtype: Any = None, device: Device | str | None = None) -> Array:
    """Return an array of ones like `x`; see `full_like()`."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Array, *, dtype: Any = None, device: Device | str | None = None) -> Array:
    """Return an uninitialised array like `x`; see `full_like()`."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def astype(x: Array, dtype: Any, /, *, copy: Any = True, device: Device | str | None = None) -> Array:
    """Return `x` converted to `dtype`; with copy=False `x` itself if it has that dtype and device already."""
    return asarray(x, dtype=dtype, device=device, copy=copy or None)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Return arrays of one dtype joined along `axis`, or flattened and joined if `axis` is None."""
    return concatenate([reshape(x, (-1,)) for x in arrays], 0) if axis is None else concatenate(arrays, axis)


def matrix_transpose(x: Array, /) -> Array:
    """Return `x` with its last two axes swapped, as a view."""
    return x.mT


def _unary(name: str, text: str) -> Any:
    whole = OF_WHOLE.get(name, text)

    def compute(x: Any, /) -> Any:
        return elementwise(whole if x.dtype == int32 else text, x=x)

    compute.__name__, compute.__doc__ = name, f"Return {text} for each element."
    return compute


def _binary(name: str, text: str) -> Any:
    def compute(x1: Any, x2: Any, /) -> Any:
        return elementwise(text, x=x1, y=x2)

    compute.__name__, compute.__doc__ = name, f"Return {text} for each element; x and y are numbers or broadcast."
    return compute


globals().update({name: _unary(name, text) for name, text in (UNARY | {x: f"{x}(x)" for x in OF_WHOLE}).items()})
globals().update({name: _binary(name, text) for name, text in BINARY.items()})


def _reduction(name: str) -> Any:
    def compute(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
        return reduce(x, name, axis, keepdims)

    compute.__name__, compute.__doc__ = name, f"Return the {name} over `axis`, by default over all axes."
    return compute


def _accumulation(name: str) -> Any:
    def compute(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
        return reduce(x if dtype is None else asarray(x, dtype=dtype), name, axis, keepdims)

    compute.__name__ = name
    compute.__doc__ = f"Return the {name} over `axis`, by default all axes, of `x` cast to `dtype`; int32 wraps around."
    return compute


sum, prod = _accumulation("sum"), _accumulation("prod")
mean, max, min, argmax, argmin = (_reduction(name) for name in ("mean", "max", "min", "argmax", "argmin"))


def _logical_reduction(name: str, op: str) -> Any:
    def compute(x: Array, /, *, axis: Any = None, keepdims: Any = False) -> Any:
        return reduce(converted(x if x.dtype == bool else x != 0, int32), op, axis, keepdims) != 0

    compute.__name__, compute.__doc__ = name, f"Return whether {name} elements over `axis` are true (not 0)."
    return compute


all, any = _logical_reduction("all", "prod"), _logical_reduction("any", "sum")


def _spread(name: str) -> Any:
    def compute(x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False) -> Any:
        axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        count = int(np.prod([x.shape[i] for i in axes]))
        factor = count / (count - correction) if count > correction else nan
        found = reduce(x, "var", axis, keepdims)
        return elementwise("sqrt(x * f)" if name == "std" else "x * f", x=found, f=float(factor))

    compute.__name__ = name
    compute.__doc__ = f"Return the {name} over `axis`, with the divisor n - `correction`; NaN if that is not positive."
    return compute


std, var = _spread("std"), _spread("var")


def count_nonzero(x: Array, /, *, axis: Any = None, keepdims: Any = False) -> Array:
    """Return how many elements over `axis` are not 0, int32."""
    return reduce(converted(x if x.dtype == bool else x != 0, int32), "sum", axis, keepdims)  # type: ignore[no-any-return]


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the sums over `axis` of products of elements."""
    return reduce(elementwise("x * y", x=x1, y=x2), "sum", axis, False)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Return the elements limited to the range from `min` to `max`, each a number, an array or None."""
    return FUNCTIONS[np.clip](x, min, max)
