"""The functions of the Python array API standard that webmm computes on devices, for float32, float16, int32 and bool.

https://data-apis.org/array-api/2024.12/. Its arrays are `webmm.Array`s. What is here behaves as it says, and raises
ProblemError for a type or a shape for which it has no result. There is no float64: the default type is float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from webmm.calls.expression import astype, concatenate, elementwise, stack, take, where
from webmm.calls.gemm import matmul
from webmm.calls.numpy_functions import FUNCTIONS, reshape, tensordot
from webmm.calls.reduce import reduce
from webmm.dtypes import dtype_of
from webmm.engine.array import Array, host_array
from webmm.engine.device import Device, default_device
from webmm.errors import ProblemError

__array_api_version__ = "2024.12"
float32, float16, int32 = np.dtype("float32"), np.dtype("float16"), np.dtype("int32")
bool = np.dtype("bool")
e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi

concat = concatenate
broadcast_to, expand_dims, squeeze, permute_dims, moveaxis = (
    FUNCTIONS[function] for function in (np.broadcast_to, np.expand_dims, np.squeeze, np.transpose, np.moveaxis)
)
__all__ = [
    "Array",
    "abs",
    "add",
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
    "equal",
    "exp",
    "expand_dims",
    "float16",
    "float32",
    "full",
    "greater",
    "greater_equal",
    "inf",
    "int32",
    "isnan",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "matmul",
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
]


def of_version(version: str | None) -> Any:
    """Return this namespace; raises ProblemError for a version of the standard that it does not follow."""
    import sys

    if version not in (None, "2021.12", "2022.12", "2023.12", __array_api_version__):
        raise ProblemError(f"the array API of {version} is not there; {__array_api_version__} is")
    return sys.modules[__name__]


def asarray(x: Any, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return `x` as an Array: as it is where it is one of that type, and there, else a copy of it."""
    if isinstance(x, Array):
        if device not in (None, x.device):
            return device.array(x.numpy(), dtype)
        return x if dtype is None or dtype_of(dtype) == x.element else astype(x, dtype)
    host = host_array(x)
    if not hasattr(x, "dtype") and dtype is None:
        dtype = {"f": float32, "i": int32}.get(host.dtype.kind)
    return (device or default_device()).array(host, dtype)


def full(shape: Any, value: float, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array full of `value`: of float32 where it is a float, else int32 or bool."""
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    return asarray(np.full(lengths, value), dtype=dtype or asarray(value, device=device).dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array of zeros, of float32 by default."""
    return full(shape, 0, dtype=dtype or float32, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array of ones, of float32 by default."""
    return full(shape, 1, dtype=dtype or float32, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Device | None = None) -> Array:
    """Return an array that holds anything, of float32 by default."""
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    return (device or default_device()).empty(lengths, dtype_of(dtype or float32))


def _of_one(name: str, text: str) -> Any:
    def compute(x: Any, /) -> Any:
        return elementwise(text, x=x)

    compute.__name__, compute.__doc__ = name, f"Return {text} of each element."
    return compute


def _of_two(name: str, text: str) -> Any:
    def compute(x1: Any, x2: Any, /) -> Any:
        return elementwise(text, x=x1, y=x2)

    compute.__name__, compute.__doc__ = name, f"Return {text} of elements of arrays that broadcast, or of a number."
    return compute


abs, exp, log, sqrt, tanh = (_of_one(name, f"{name}(x)") for name in ("abs", "exp", "log", "sqrt", "tanh"))
negative, positive, square = _of_one("negative", "-x"), _of_one("positive", "x"), _of_one("square", "x * x")
isnan, logical_not = _of_one("isnan", "x != x"), _of_one("logical_not", "~x")
add, subtract = _of_two("add", "x + y"), _of_two("subtract", "x - y")
multiply, divide = _of_two("multiply", "x * y"), _of_two("divide", "x / y")
less, less_equal = _of_two("less", "x < y"), _of_two("less_equal", "x <= y")
greater, greater_equal = _of_two("greater", "x > y"), _of_two("greater_equal", "x >= y")
equal, not_equal = _of_two("equal", "x == y"), _of_two("not_equal", "x != y")
logical_and, logical_or = _of_two("logical_and", "x & y"), _of_two("logical_or", "x | y")
maximum, minimum = _of_two("maximum", "maximum(x, y)"), _of_two("minimum", "minimum(x, y)")


def _reduction(name: str) -> Any:
    def compute(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
        return reduce(x, name, axis, keepdims)

    compute.__name__, compute.__doc__ = name, f"Return the {name} over `axis`, all axes by default."
    return compute


def _accumulation(name: str) -> Any:
    def compute(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
        return reduce(x if dtype is None else asarray(x, dtype=dtype), name, axis, keepdims)

    compute.__name__ = name
    compute.__doc__ = f"Return the {name} over `axis`, all axes by default, of `x` cast to `dtype`; int32 wraps around."
    return compute


sum, prod = _accumulation("sum"), _accumulation("prod")
mean, max, min, argmax, argmin = (_reduction(name) for name in ("mean", "max", "min", "argmax", "argmin"))
