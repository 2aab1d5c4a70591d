"""The part of the Python array API standard that webmm computes on devices, for float32, float16, int32 and bool.

The standard: https://data-apis.org/array-api/2024.12/. Arrays are `webmm.Array`s. The functions here follow the
standard and raise ProblemError for dtypes and shapes that it does not define. There is no float64; the default dtype is
float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from webmm.calls.expression import astype as converted
from webmm.calls.expression import elementwise, where
from webmm.calls.gemm import matmul
from webmm.calls.joined import concatenate, stack, take
from webmm.calls.numpy_functions import FUNCTIONS, reshape, shape_of, tensordot
from webmm.calls.reduce import reduce
from webmm.dtypes import COMPUTED, dtype_of
from webmm.engine.device import Array, Device, default_device
from webmm.engine.view import host_array
from webmm.errors import ProblemError

__array_api_version__ = "2024.12"
float32, float16, int32 = np.dtype("float32"), np.dtype("float16"), np.dtype("int32")
bool = np.dtype("bool")
e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi

broadcast_to, expand_dims, squeeze, permute_dims, moveaxis = (
    FUNCTIONS[function] for function in (np.broadcast_to, np.expand_dims, np.squeeze, np.transpose, np.moveaxis)
)
__all__ = [
    "Array",
    "abs",
    "add",
    "all",
    "any",
    "argmax",
    "argmin",
    "asarray",
    "astype",
    "bool",
    "broadcast_to",
    "concat",
    "divide",
    "e",
    "empty",
    "empty_like",
    "equal",
    "exp",
    "expand_dims",
    "finfo",
    "float16",
    "float32",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "iinfo",
    "inf",
    "int32",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "matmul",
    "matrix_transpose",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "moveaxis",
    "multiply",
    "nan",
    "negative",
    "newaxis",
    "not_equal",
    "ones",
    "ones_like",
    "permute_dims",
    "pi",
    "positive",
    "prod",
    "reshape",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "subtract",
    "sum",
    "take",
    "tanh",
    "tensordot",
    "where",
    "zeros",
    "zeros_like",
]


def of_version(version: str | None) -> Any:
    """Return this namespace; raises ProblemError for a version of the standard that it does not implement."""
    import sys

    if version not in (None, "2021.12", "2022.12", "2023.12", __array_api_version__):
        raise ProblemError(f"version {version} of the array API is not supported; use {__array_api_version__}")
    return sys.modules[__name__]


def asarray(x: Any, *, dtype: Any = None, device: Device | None = None, copy: Any = None) -> Array:
    """Return `x` as an Array: `x` itself if it is an Array of that dtype on that device, else a copy.

    With copy=True the result is always a copy; with copy=False ProblemError is raised if a copy would be needed.
    """
    if copy is False and not (isinstance(x, Array) and device in (None, x.device) and dtype in (None, x.dtype)):
        raise ProblemError("copy=False is not possible: host memory, another dtype or another device needs a copy")
    if isinstance(x, Array):
        if device not in (None, x.device):
            return device.array(x.numpy(), dtype)
        wanted = x.element if dtype is None else dtype_of(dtype)
        if wanted == x.element and not copy:
            return x
        moved = wanted == x.element and wanted not in COMPUTED
        return x.device.array(x.numpy(), dtype) if moved else converted(x, wanted.name)
    host = host_array(x)
    if not hasattr(x, "dtype") and dtype is None:
        dtype = {"f": float32, "i": int32}.get(host.dtype.kind)
    return (device or default_device()).array(host, dtype)


def full(shape: Any, value: float, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array filled with `value`; the dtype defaults to that of `value`: float32, int32 or bool."""
    lengths = shape_of(shape)
    return asarray(np.full(lengths, value), dtype=dtype or asarray(value, device=device).dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array of zeros, float32 by default."""
    return full(shape, 0, dtype=dtype or float32, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array of ones, float32 by default."""
    return full(shape, 1, dtype=dtype or float32, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an uninitialised array, float32 by default."""
    lengths = shape_of(shape)
    return (device or default_device()).empty(lengths, dtype_of(dtype or float32))


def full_like(x: Array, value: float, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array filled with `value`, with the shape of `x` and by default its dtype and device."""
    return full(x.shape, value, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x: Array, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array of zeros like `x`; see `full_like()`."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Array, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array of ones like `x`; see `full_like()`."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Array, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an uninitialised array like `x`; see `full_like()`."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def astype(x: Array, dtype: Any, /, *, copy: Any = True, device: Device | None = None) -> Array:
    """Return `x` converted to `dtype`; with copy=False `x` itself if it has that dtype and device already."""
    return asarray(x, dtype=dtype, device=device, copy=copy or None)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Return arrays of one dtype joined along `axis`, or flattened and joined if `axis` is None."""
    return concatenate([reshape(x, (-1,)) for x in arrays], 0) if axis is None else concatenate(arrays, axis)


class _Limits(NamedTuple):
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


def finfo(of: Any, /) -> _Limits:
    """Return the limits of a float dtype, or of an array's dtype: bits, eps, max, min and smallest_normal."""
    found = np.finfo(getattr(of, "dtype", of))
    eps, most, least, normal = (float(each) for each in (found.eps, found.max, found.min, found.smallest_normal))
    return _Limits(found.bits, eps, most, least, normal, found.dtype)


def iinfo(of: Any, /) -> Any:
    """Return the limits of an integer dtype, or of an array's dtype, as `numpy.iinfo`."""
    return np.iinfo(getattr(of, "dtype", of))


def matrix_transpose(x: Array, /) -> Array:
    """Return `x` with its last two axes swapped, as a view."""
    return x.mT


def isfinite(x: Any, /) -> Any:
    """Return whether each element is neither NaN nor infinite."""
    return elementwise("abs(x) <= most", x=x, most=finfo(float32).max) if x.dtype != int32 else x == x


def isinf(x: Any, /) -> Any:
    """Return whether each element is infinite."""
    return elementwise("abs(x) > most", x=x, most=finfo(float32).max) if x.dtype != int32 else x != x


def _unary(name: str, text: str) -> Any:
    def compute(x: Any, /) -> Any:
        return elementwise(text, x=x)

    compute.__name__, compute.__doc__ = name, f"Return {text} for each element."
    return compute


def _binary(name: str, text: str) -> Any:
    def compute(x1: Any, x2: Any, /) -> Any:
        return elementwise(text, x=x1, y=x2)

    compute.__name__, compute.__doc__ = name, f"Return {text} for each element; x and y are numbers or broadcast."
    return compute


abs, exp, log, sqrt, tanh = (_unary(name, f"{name}(x)") for name in ("abs", "exp", "log", "sqrt", "tanh"))
negative, positive, square = _unary("negative", "-x"), _unary("positive", "x"), _unary("square", "x * x")
isnan, logical_not = _unary("isnan", "x != x"), _unary("logical_not", "~x")
add, subtract = _binary("add", "x + y"), _binary("subtract", "x - y")
multiply, divide = _binary("multiply", "x * y"), _binary("divide", "x / y")
less, less_equal = _binary("less", "x < y"), _binary("less_equal", "x <= y")
greater, greater_equal = _binary("greater", "x > y"), _binary("greater_equal", "x >= y")
equal, not_equal = _binary("equal", "x == y"), _binary("not_equal", "x != y")
logical_and, logical_or = _binary("logical_and", "x & y"), _binary("logical_or", "x | y")
maximum, minimum = _binary("maximum", "maximum(x, y)"), _binary("minimum", "minimum(x, y)")


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
