"""Python's operators, NumPy's functions and other libraries' protocols on arrays.

They call functions of `webmm.calls`, a higher layer, through `webmm.hooks`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm import hooks
from webmm.engine import host
from webmm.errors import ProblemError
from webmm.problems.declared import spread
from webmm.wgsl.reductions import Reduction

if TYPE_CHECKING:
    from typing_extensions import Self

# NumPy's ufuncs as expressions in their arguments x and y.
UFUNCS: dict[Any, str] = {
    **{np.add: "x + y", np.subtract: "x - y", np.multiply: "x * y", np.true_divide: "x / y"},
    **{np.floor_divide: "x // y", np.remainder: "x % y", np.power: "x ** y", np.float_power: "x ** y"},
    **{np.less: "x < y", np.less_equal: "x <= y", np.greater: "x > y", np.greater_equal: "x >= y"},
    **{np.equal: "x == y", np.not_equal: "x != y", np.negative: "-x", np.positive: "x", np.absolute: "abs(x)"},
    **{np.fabs: "abs(x)", np.square: "x * x", np.reciprocal: "1 / x", np.isnan: "x != x"},
    **{np.logical_and: "x & y", np.logical_or: "x | y", np.logical_not: "~x", np.logical_xor: "x ^ y"},
    **{np.bitwise_and: "x & y", np.bitwise_or: "x | y", np.bitwise_xor: "x ^ y", np.invert: "~x"},
    **{np.left_shift: "x << y", np.right_shift: "x >> y"},
    **{np.deg2rad: f"x * {np.pi / 180}", np.rad2deg: f"x * {180 / np.pi}"},
    **{np.fmax: "where(isnan(x), y, maximum(x, where(isnan(y), x, y)))"},
    **{np.fmin: "where(isnan(x), y, minimum(x, where(isnan(y), x, y)))"},
    **{np.logaddexp: "logaddexp(x, y)", np.rint: "round(x)"},
    **{getattr(np, name): f"{name}(x)" for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt")},
    **{getattr(np, name): f"{name}(x)" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{getattr(np, f"arc{name}"): f"a{name}(x)" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{getattr(np, name): f"{name}(x)" for name in ("floor", "ceil", "trunc", "sign", "signbit", "isinf", "isfinite")},
    **{getattr(np, name): f"{name}(x, y)" for name in ("maximum", "minimum", "copysign", "hypot", "nextafter")},
    **{np.arctan2: "atan2(x, y)"},
}
UFUNCS = {np.radians: UFUNCS[np.deg2rad], np.degrees: UFUNCS[np.rad2deg], **UFUNCS}
# NumPy's functions that write to their first argument.
IN_PLACE = {np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal}
OPERANDS = (int, float, np.ndarray, np.generic, list)  # operands other than arrays


def _unary(text: str) -> Callable[[Any], Any]:
    return lambda self: hooks.above.elementwise(text, x=self)


def _binary(text: str) -> Callable[[Any, Any], Any]:
    def compute(self: Any, other: Any) -> Any:
        if not isinstance(other, (Operators, *OPERANDS)):
            return NotImplemented
        return hooks.above.elementwise(text, x=self, y=other)

    return compute


class Reductions:
    """The reductions, as methods of an array."""

    def sum(self, axis: Any = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return the sum over `axis` (an axis, a tuple of axes, or None for all), as `webmm.reduce()` does."""
        return self._reduced("sum", axis, keepdims, dtype)

    def prod(self, axis: Any = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return the product; as `sum()` otherwise."""
        return self._reduced("prod", axis, keepdims, dtype)

    def mean(self, axis: Any = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return the mean; as `sum()` otherwise."""
        return self._reduced("mean", axis, keepdims, dtype)

    def var(self, axis: Any = None, keepdims: bool = False, dtype: DTypeLike | None = None, *, ddof: float = 0) -> Self:
        """Return the variance, divided by the number of elements less `ddof`; as `sum()` otherwise."""
        return self._reduced(spread("var", ddof), axis, keepdims, dtype)

    def std(self, axis: Any = None, keepdims: bool = False, dtype: DTypeLike | None = None, *, ddof: float = 0) -> Self:
        """Return its square root, the standard deviation; as `sum()` otherwise."""
        return self._reduced(spread("std", ddof), axis, keepdims, dtype)

    def max(self, axis: Any = None, keepdims: bool = False) -> Self:
        """Return the maximum; as `sum()` otherwise."""
        return self._reduced("max", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Self:
        """Return the minimum; as `sum()` otherwise."""
        return self._reduced("min", axis, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """Return the position of the first maximum, int32; as `sum()` otherwise."""
        return self._reduced("argmax", axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """Return the position of the first minimum, int32; as `sum()` otherwise."""
        return self._reduced("argmin", axis, keepdims)

    def _reduced(self, op: str | Reduction, axis: Any, keepdims: bool, dtype: DTypeLike | None = None) -> Self:
        found: Self = hooks.above.reduce(self, op, axis, keepdims, out_dtype=dtype)
        return found


class Operators(Reductions):
    """Python's operators, and the protocols through which NumPy and Dask use an array."""

    __add__, __radd__ = _binary("x + y"), _binary("y + x")
    __sub__, __rsub__ = _binary("x - y"), _binary("y - x")
    __mul__, __rmul__ = _binary("x * y"), _binary("y * x")
    __truediv__, __rtruediv__ = _binary("x / y"), _binary("y / x")
    __lt__, __le__, __gt__, __ge__ = (_binary(f"x {sign} y") for sign in ("<", "<=", ">", ">="))
    __eq__, __ne__ = _binary("x == y"), _binary("x != y")
    __and__, __rand__ = _binary("x & y"), _binary("y & x")
    __or__, __ror__ = _binary("x | y"), _binary("y | x")
    __xor__, __rxor__ = _binary("x ^ y"), _binary("y ^ x")
    __pow__, __rpow__ = _binary("x ** y"), _binary("y ** x")
    __floordiv__, __rfloordiv__ = _binary("x // y"), _binary("y // x")
    __mod__, __rmod__ = _binary("x % y"), _binary("y % x")
    __lshift__, __rlshift__ = _binary("x << y"), _binary("y << x")
    __rshift__, __rrshift__ = _binary("x >> y"), _binary("y >> x")
    __neg__, __pos__, __abs__, __invert__ = _unary("-x"), _unary("x"), _unary("abs(x)"), _unary("~x")
    __hash__ = object.__hash__
    __array_priority__ = 20.0  # above NumPy's: Dask calls the functions of the array with the highest priority

    def __matmul__(self, other: Any) -> Self:
        found: Self = hooks.above.matmul(self, other)
        return found

    def __rmatmul__(self, other: Any) -> Self:
        found: Self = hooks.above.matmul(other, self)
        return found

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Self:
        """Return a copy converted to `dtype`, one of `webmm.dtypes.COMPUTED`, as `webmm.astype()` does."""
        del copy  # the result never shares the buffer
        found: Self = hooks.above.astype(self, dtype)
        return found

    def _taken(self, keys: tuple[Any, ...]) -> Self:
        """Return the elements selected by `keys`: one is a list of positions, the others are slices, None or `...`."""
        lists = [i for i, key in enumerate(keys) if isinstance(key, LISTS)]
        if any(
            np.asarray(keys[i]).dtype == bool if isinstance(keys[i], list) else keys[i].dtype == bool for i in lists
        ):
            raise ProblemError(
                "the length of x[mask] depends on its values: use where(mask, x, …), or x.numpy()[mask] on the host"
            )
        if len(lists) > 1 or any(isinstance(key, (int, np.integer)) for key in keys):
            raise ProblemError("one index may be a list of positions, the others slices; use x.numpy()[...] for more")
        at = lists[0]
        rest = (*keys[:at], slice(None), *keys[at + 1 :])
        view = self[rest]  # type: ignore[index]
        axis = view.ndim - len(keys) + at if Ellipsis in keys[:at] else at
        found: Self = view.take(keys[at], axis)
        return found

    def squeeze(self, axis: Any = None) -> Self:
        """Return a view without axes of length 1: all, or those in `axis`; raises ProblemError for longer axes."""
        return self._viewed(lambda shadow: shadow.squeeze(axis), "squeeze", axis)

    def transpose(self, *axes: Any) -> Self:
        """Return a view with the axes in another order, reversed by default."""
        return self._viewed(lambda shadow: shadow.transpose(*axes), "transpose", *axes)

    def _viewed(self, change: Callable[[Any], Any], *how: Any) -> Self:
        view: Self = self._view(change, *how)  # type: ignore[attr-defined]
        return view

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Return a view with two axes exchanged; raises ProblemError for an axis that is out of range."""
        return self._viewed(lambda shadow: shadow.swapaxes(axis1, axis2), "swapaxes", axis1, axis2)

    def take(self, indices: Any, axis: int | None = None) -> Self:
        """Return the elements at `indices` along `axis`, as `webmm.take()` does."""
        found: Self = hooks.above.take(self, indices, axis)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **settings: Any) -> Any:
        """Compute a ufunc as an expression, or else by NumPy on copies of the arrays in host memory."""
        dtype = settings.pop("dtype", None)
        if settings.get("out") is not None or method == "at":
            if any(isinstance(x, Operators) for x in (*(settings.get("out") or ()), *given[:1])):
                raise ProblemError(f"{ufunc.__name__}() cannot write to an array on a device; use its result")
        elif method == "__call__" and not settings:
            if ufunc is np.matmul:
                return hooks.above.matmul(*given, out_dtype=dtype)
            if ufunc in UFUNCS:
                operands = dict(zip("xy", given, strict=False))
                return hooks.above.elementwise(UFUNCS[ufunc], out_dtype=dtype, **operands)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return host.computed(getattr(ufunc, method), given, {**settings, **({"dtype": dtype} if dtype else {})}, name)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call webmm's implementation of `function`, or else NumPy's on copies of the arrays in host memory."""
        del types
        functions = hooks.above.numpy_functions
        if function in functions:
            return functions[function](*args, **kwargs)
        if isinstance(_written(function, args, kwargs), Operators):
            raise ProblemError(f"{function.__name__}() cannot write to an array on a device; use its result")
        return host.computed(function, args, kwargs)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return hooks.above.namespace(api_version)

    def __bool__(self) -> bool:
        return bool(self._only())

    def __int__(self) -> int:
        return int(self._only())

    def __float__(self) -> float:
        return float(self._only())

    def _only(self) -> Any:
        host = self.numpy()  # type: ignore[attr-defined]
        if host.size != 1:
            raise ProblemError(f"an array of shape {host.shape} is not a single value; reduce it, or compare x.numpy()")
        return host.item()

    def __dask_tokenize__(self) -> tuple[str, Any]:
        return "webmm.Array", self.numpy()  # type: ignore[attr-defined]

    def __copy__(self) -> Self:
        view: Self = self[...]  # type: ignore[index]
        return view

    def __reduce__(self) -> Any:
        # Unpickled on the default device of the process that loads it, such as a worker's.
        return restored, (self.numpy(),)  # type: ignore[attr-defined]


def restored(host: NDArray[Any]) -> Operators:
    """Return an array that was pickled as `host`."""
    array: Operators = hooks.above.default_device().array(host)
    return array


def _written(function: Any, args: Any, kwargs: Any) -> Any:
    """Return the argument to which one of NumPy's functions writes, or None."""
    if function in IN_PLACE:
        return args[0] if args else next(iter(kwargs.values()), None)
    try:
        return inspect.signature(function).bind_partial(*args, **kwargs).arguments.get("out")
    except (TypeError, ValueError):  # it has no signature
        return kwargs.get("out")


LISTS = (list, np.ndarray, Operators)  # indices that are neither integers nor slices
