"""Interval arithmetic: what any shader that follows WGSL may compute for an expression, element by element.

Drivers fuse multiplications with additions, reorder constants, flush subnormals, and assume that arithmetic meets
neither infinities nor NaN; small errors grow in what follows. A reference that rounds in one way would take right
shaders for wrong ones. Here each operation is computed at the ends of its operands' intervals, which are then widened
by its rounding error; integers wrap around exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import F32, DType
from webmm.wgsl.expressions import COMPLEMENT, FUNCTIONS, LOGIC, NEGATE, NOT, OPERATIONS, REAL, SELECT, TRUTH, Compiled

FUNCTION_ERROR = 1e-3  # of drivers' built-in functions, relative to the result
# Functions with roots, or 0 as a limit: the error is relative to at least 1.
FROM_ONE = ("log", "log2", "log10", "logaddexp", "tanh", "sigmoid")
TURNS = {"silu": -1.2784645, "gelu": -0.7517916, "gelu_tanh": -0.7524615}  # where they turn, from falling to rising
NEARLY = 100.0  # a number near which they are 0 below 0
QUOTIENT_ERROR = 2.0**-21
RISING = ("exp", "log", "sqrt", "tanh", "sigmoid", "relu")
WHOLE_RESULTS = ("floor", "ceil", "trunc", "round", "sign", "copysign", "nextafter")  # or others without an error
UNEVEN = ("//", "%", "**", "<<", ">>")  # operations that neither rise nor fall
EXACT = 2.0**24  # the largest ratio of terms whose sum may be exact; float64 does not show that a larger one is not
LARGE_DIVISOR = 2.0**126  # the reciprocals of larger ones are subnormal, and may be flushed to 0

NORMAL = F32.tiny / F32.eps
MOST = (2 - F32.eps) * 2 / NORMAL

Compare = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Interval:
    """The values from `low` to `high`, and NaN if `nan`; nothing but NaN if `low` is above `high`.

    The ends are float64 for f32, int64 for i32, and bool.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    nan: NDArray[np.bool_]
    terms: NDArray[np.float64] | None = None  # of a sum: the magnitudes of its terms, which drivers add in any order
    # Of a product: the smallest and the largest magnitude that its factors can have, multiplied in any order.
    factors: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    @property
    def size(self) -> NDArray[np.float64]:
        """The largest magnitude of the number, or that of the terms of a sum."""
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)) if self.terms is None else self.terms)

    @property
    def partial(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The smallest and the largest magnitude of a part of the product."""
        return self.factors or (np.minimum(self.size, 1), np.maximum(self.size, 1))

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Where there is nothing but NaN."""
        return np.asarray(self.low > self.high)

    @property
    def loose(self) -> NDArray[np.bool_]:
        """Where NaN or an infinity is possible."""
        return np.asarray(self.nan | ~(np.isfinite(self.low) & np.isfinite(self.high)))


def exactly(x: NDArray[Any], dtype: DType = F32) -> Interval:
    """Return the intervals of given numbers: of an operand stored as `dtype`, whose subnormals may be flushed."""
    if x.dtype.kind in "bi":
        wide = x if x.dtype == bool else x.astype(np.int64)
        return Interval(wide, wide, np.zeros(x.shape, bool))
    wide = x.astype(np.float64)
    nan = np.isnan(wide)
    low, high = (np.where(nan, end, wide) for end in (np.inf, -np.inf))
    return Interval(*_flushed(low, high, dtype), nan)


def evaluate(x: Compiled, names: Mapping[str, Interval]) -> Interval:
    """Return the interval of a compiled expression, given those of its names."""
    if x.value is not None:
        return exactly(np.asarray(x.value))
    if not x.operation:
        return names[x.wgsl]
    terms = [evaluate(term, names) for term in x.terms]
    with np.errstate(all="ignore"):
        if x.operation == SELECT:
            return _select(*terms)
        kind = x.terms[0].kind
        if kind == TRUTH and x.operation in (*LOGIC, NOT):
            return COMPARISONS["!="](*terms) if x.operation == "^" else _logic(x.operation, *terms)
        if x.operation in COMPARISONS:
            return COMPARISONS[x.operation](*terms)
        if x.operation in (*UNEVEN, *LOGIC):
            return _uneven(x.operation, kind, OPERATIONS[x.operation], *terms)
        if x.operation in FUNCTIONS:
            return _function(x.operation, kind, *terms)
        return _real(x.operation, *terms) if kind == REAL else _whole(x.operation, *terms)


def stored(x: Interval, dtype: DType) -> Interval:
    """Return the interval of a result that is stored as `dtype`."""
    with np.errstate(all="ignore"):
        return x if x.low.dtype.kind != "f" or dtype == F32 else _rounded(x.low, x.high, x.nan, dtype)


def _select(condition: Interval, x: Interval, y: Interval) -> Interval:
    yes, no = condition.high, ~condition.low
    low, high, nan = (
        np.where(yes & no, either(a, b), np.where(yes, a, b))
        for either, a, b in ((np.minimum, x.low, y.low), (np.maximum, x.high, y.high), (np.logical_or, x.nan, y.nan))
    )
    return Interval(low, high, nan)


def _truth(certain: Any, possible: Any) -> Interval:
    low, high = np.broadcast_arrays(certain, possible)
    return Interval(low, high, np.zeros(low.shape, bool))


def _logic(operation: str, *terms: Interval) -> Interval:
    if operation == NOT:
        return _truth(~terms[0].high, ~terms[0].low)
    function = OPERATIONS[operation]
    return _truth(function(*(x.low for x in terms)), function(*(x.high for x in terms)))


def _ordered(compare: Compare, swapped: bool) -> Callable[[Interval, Interval], Interval]:
    def of(x: Interval, y: Interval) -> Interval:
        a, b = (y, x) if swapped else (x, y)
        nan = a.nan | b.nan  # drivers that assume no NaN return anything
        return _truth(compare(a.high, b.low) & ~nan, compare(a.low, b.high) | nan)

    return of


def _equal(x: Interval, y: Interval) -> Interval:
    nan = x.nan | y.nan
    same = (x.low == x.high) & (y.low == y.high) & (x.low == y.low)
    return _truth(same & ~nan, ((x.low <= y.high) & (y.low <= x.high)) | nan)


COMPARISONS: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    **{"<": _ordered(np.less, False), "<=": _ordered(np.less_equal, False)},
    **{">": _ordered(np.less, True), ">=": _ordered(np.less_equal, True)},
    **{"==": _equal, "!=": lambda x, y: _logic(NOT, _equal(x, y))},
}


def _corners(operation: str, *terms: Interval) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the ends of the results of an operation that is monotonic in each operand."""
    ends = [(x.low, x.high) for x in terms]
    pairs = [(a, b) for a in ends[0] for b in ends[1]] if len(ends) == 2 else [(a,) for a in ends[0]]
    found = np.broadcast_arrays(*(OPERATIONS[operation](*pair) for pair in pairs))
    low, high = np.min(found, axis=0), np.max(found, axis=0)
    if low.dtype.kind != "f":
        return low, high
    negative = np.signbit(found)  # min() and max() take zeros for equal
    low = np.where((low == 0) & negative.any(axis=0), -0.0, low)
    return low, np.where((high == 0) & ~negative.all(axis=0), 0.0, high)


def _real(operation: str, *terms: Interval) -> Interval:
    if operation == NEGATE:
        x = terms[0]
        ends = (-x.high, -x.low) if x.terms is None else _of_either_sign(-x.high, -x.low)
        return Interval(*ends, x.nan, x.terms, x.factors)
    low, high = _corners(operation, *terms)
    size = factors = None
    if operation in ("+", "-"):
        size = terms[0].size + terms[1].size
        again = any(x.terms is not None for x in terms)
        lost = np.where(again | (size > EXACT * np.minimum(terms[0].size, terms[1].size)), size * F32.eps, 0.0)
        low, high = low - lost, high + lost
    loose = terms[0].loose | terms[1].loose
    if operation == "*":
        (a_least, a_most), (b_least, b_most) = (x.partial for x in terms)
        least, most = factors = a_least * b_least, a_most * b_most
        if any(x.factors for x in terms):
            loose = loose | (most > MOST) | ((least < NORMAL) & (least > 0))
    if operation == "/":
        divisor = terms[1]
        by_zero = (divisor.low <= 0) & (divisor.high >= 0)
        of_zero = (terms[0].low <= 0) & (terms[0].high >= 0)
        loose = loose | (by_zero & (of_zero | (divisor.low != divisor.high)))
        low = np.where(np.isinf(low), low, low - np.abs(low) * QUOTIENT_ERROR)
        high = np.where(np.isinf(high), high, high + np.abs(high) * QUOTIENT_ERROR)
        large = np.maximum(np.abs(divisor.low), np.abs(divisor.high)) >= LARGE_DIVISOR
        low, high = np.where(large, np.minimum(low, 0), low), np.where(large, np.maximum(high, 0), high)
    loose = loose | np.isnan(low)
    if size is None:
        low, high = _of_either_sign(low, high)
    return replace(
        _rounded(np.where(loose, -np.inf, low), np.where(loose, np.inf, high), loose, F32), terms=size, factors=factors
    )


def _of_either_sign(low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the ends with both zeros where there is one: compilers keep the sign of those that sums result in only."""
    return np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)


def _rounded(low: NDArray[Any], high: NDArray[Any], nan: NDArray[np.bool_], dtype: DType) -> Interval:
    """Return the interval of numbers rounded to `dtype`, in either direction; numbers out of range are infinite."""
    normal = dtype.tiny / dtype.eps
    most = (2 - dtype.eps) * 2 / normal

    def widened(x: NDArray[Any], sign: int) -> NDArray[Any]:
        exact = x.astype(dtype.numpy).astype(np.float64) == x
        wide = np.where(exact, x, x + sign * (np.abs(x) * dtype.eps + dtype.tiny))
        return np.where(np.abs(wide) > most, np.copysign(np.inf, wide), wide)

    return Interval(*_flushed(widened(low, -1), widened(high, 1), dtype), nan)


def _flushed(low: NDArray[Any], high: NDArray[Any], dtype: DType) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the ends with 0 included if a number may be subnormal."""
    normal = dtype.tiny / dtype.eps
    return (
        np.where((low > 0) & (low < normal), 0.0, low),
        np.where((high < 0) & (high > -normal), -0.0, high),
    )


def _uneven(name: str, kind: str, function: Callable[..., Any], *terms: Interval) -> Interval:
    """Return the interval of a function that rises here and falls there: of single numbers its value, else anything."""
    certain = np.logical_and.reduce(np.broadcast_arrays(*(x.empty | ((x.low == x.high) & ~x.nan) for x in terms)))
    if kind != REAL:
        found = np.asarray(function(*(x.low for x in terms)), np.int64)
        wrapped = _wrapped(found, found)
        ends = np.where(certain, wrapped.low, -(2**31)), np.where(certain, wrapped.high, 2**31 - 1)
        return Interval(*ends, np.zeros(found.shape, bool))
    found = np.asarray(function(*(np.where(x.empty, np.nan, x.low) for x in terms)))
    if found.dtype == bool:
        return _truth(found & certain, found | ~certain)
    error = 0.0 if name in WHOLE_RESULTS else QUOTIENT_ERROR if name in ("//", "%") else FUNCTION_ERROR
    size = error * np.maximum(np.abs(found), 1.0 if name in FROM_ONE else 0.0)
    low, high = (np.where(np.isfinite(found), found + sign * size, found) for sign in (-1, 1))
    nan = np.isnan(found)
    low, high = np.where(nan, np.inf, low), np.where(nan, -np.inf, high)
    low, high = np.where(certain, low, -np.inf), np.where(certain, high, np.inf)
    return _rounded(*_of_either_sign(low, high), nan | ~certain, F32)


def _whole(operation: str, *terms: Interval) -> Interval:
    """Return the interval of int32 arithmetic, which wraps around: all numbers if one end does."""
    if operation == COMPLEMENT:
        return Interval(~terms[0].high, ~terms[0].low, terms[0].nan)
    low, high = _corners(operation, *terms)
    return _wrapped(low, high)


def _wrapped(low: NDArray[Any], high: NDArray[Any]) -> Interval:
    turns = (low + 2**31) >> 32
    whole = turns == (high + 2**31) >> 32
    low, high = np.where(whole, low - (turns << 32), -(2**31)), np.where(whole, high - (turns << 32), 2**31 - 1)
    return Interval(low, high, np.zeros(low.shape, bool))


def _function(name: str, kind: str, *terms: Interval) -> Interval:
    x = terms[0]
    if name in CONVERSIONS:
        return CONVERSIONS[name](x)
    if name == "abs":
        around = (x.low < 0) & (x.high > 0)
        ends = np.abs(x.low), np.abs(x.high)
        low, high = np.where(around, 0, np.minimum(*ends)), np.maximum(*ends)
        if kind != REAL:
            return _wrapped(low, high)
        return Interval(np.where(x.empty, np.inf, low), np.where(x.empty, -np.inf, high), x.nan)
    if name in ("maximum", "minimum"):
        y, function = terms[1], FUNCTIONS[name].reference
        empty = x.empty | y.empty
        low, high = function(x.low, y.low), function(x.high, y.high)
        if kind != REAL:
            return Interval(low, high, empty)
        flushed = np.maximum(x.size, y.size) < NORMAL  # two subnormals may be taken for equal
        low, high = (
            np.where(flushed, np.minimum(x.low, y.low), low),
            np.where(flushed, np.maximum(x.high, y.high), high),
        )
        return Interval(np.where(empty, np.inf, low), np.where(empty, -np.inf, high), x.nan | y.nan)
    if name in TURNS:
        return _turning(name, x)
    return _increasing(name, x) if name in RISING else _uneven(name, kind, FUNCTIONS[name].reference, *terms)


def _turning(name: str, x: Interval) -> Interval:
    """Return the interval of a function that falls to its minimum, then rises; at -∞ it may be NaN."""
    turn, function = TURNS[name], FUNCTIONS[name].reference
    ends = [np.asarray(function(np.where(np.isneginf(end), -NEARLY, end))) for end in (x.low, x.high)]
    least = np.where((x.low < turn) & (x.high > turn), function(np.float64(turn)), np.minimum(*ends))
    low, high = (
        np.where(np.isfinite(end), end + sign * FUNCTION_ERROR * np.maximum(np.abs(end), 1.0), end)
        for sign, end in ((-1, least), (1, np.maximum(*ends)))
    )
    nan = x.nan | np.isneginf(x.low)
    return _rounded(np.where(x.empty, np.inf, low), np.where(x.empty, -np.inf, high), nan, F32)


def _increasing(name: str, x: Interval) -> Interval:
    """Return the interval of a function that increases with x: NaN below the numbers for which it is defined."""
    low, high = (np.asarray(FUNCTIONS[name].reference(end)) for end in (x.low, x.high))
    empty = x.empty | np.isnan(high)
    nan = x.nan | np.isnan(low)
    low = np.where(np.isnan(low), FUNCTIONS[name].reference(0.0), low)
    floor = 1.0 if name in FROM_ONE else 0.0
    low, high = (
        np.where(np.isfinite(end), end + sign * FUNCTION_ERROR * np.maximum(np.abs(end), floor), end)
        for sign, end in ((-1, low), (1, high))
    )
    return _rounded(np.where(empty, np.inf, low), np.where(empty, -np.inf, high), nan, F32)


def _to_real(x: Interval) -> Interval:
    if x.low.dtype.kind == "f":
        return x
    return _rounded(x.low.astype(np.float64), x.high.astype(np.float64), x.nan, F32)


def _to_whole(x: Interval) -> Interval:
    low, high = (FUNCTIONS["int32"].reference(end) for end in (x.low, x.high))
    low, high = np.where(x.empty, 0, low), np.where(x.empty, 0, high)
    low, high = np.where(x.nan, np.minimum(low, 0), low), np.where(x.nan, np.maximum(high, 0), high)
    return Interval(low, high, np.zeros(low.shape, bool))


def _to_truth(x: Interval) -> Interval:
    if x.low.dtype == bool:
        return x
    return _truth((x.low > 0) | (x.high < 0), (x.low != 0) | (x.high != 0) | x.nan)


CONVERSIONS: Mapping[str, Callable[[Interval], Interval]] = {
    **{"float32": _to_real, "int32": _to_whole, "bool": _to_truth},
    "isnan": lambda x: _truth(x.empty, x.nan),
}
