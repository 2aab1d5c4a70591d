"""Steps of sequences: zeros of either sign, NaN and infinities, as numbers of a call and as elements.

A number that equals another one, as −0.0 equals 0.0, 1 equals True and NaN equals nothing, must not get its results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from live import TOLERANCE, Live, step
from numpy.typing import NDArray

import webmm
from webmm.dtypes import dtype_of
from webmm.errors import ProblemError

NAN, INF = float("nan"), float("inf")
ELEMENTS = (1.0, -1.0, 2.0, -0.5, 0.0, -0.0, NAN, INF, -INF)
NUMBERS = (0.0, -0.0, 0, 1.0, True, 1, -2.0, NAN, INF, -INF, np.float32(-0.0), np.float64(0.0), np.float16(-0.0))
CALLS: dict[str, Callable[[Any, Any], Any]] = {  # with a number; NumPy defines the sign of each zero
    "x / s": lambda x, s: x / s,
    "s / x": lambda x, s: s / x,
    "x * s": lambda x, s: x * s,
    "x + s": lambda x, s: x + s,
    "s - x": lambda x, s: s - x,
    "x == s": lambda x, s: x == s,
    "x < s": lambda x, s: x < s,
    "where": lambda x, s: np.where(x < 1, s, x),
}
FUNCTIONS = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh, "abs": np.abs}
TEXTS = (  # expressions whose constants or results are at the ends of a range
    *("x / -0.0", "x * -0.0", "x + 0.0 * -1.0", "exp(x * 30.0)", "x * 100000.0", "x * 70000.0 * -1.0", "x + 1/0"),
    *("x * x * 1e38", "x + exp(100.0)", "where(~(1 < 2), x, -x)", "x + 3000000000", "x * 1e-40 * 1e30"),
)
WHOLE_TEXTS = ("x + False", "x + -2147483648", "x * 65536 * 65536", "x + 2147483647 + 1", "x + 3000000000")


def bits_equal(got: NDArray[Any], exact: NDArray[Any]) -> None:
    """Raise AssertionError unless the numbers, the signs of zeros and the places of NaN are the same."""
    x, y = got.astype(np.float64), exact.astype(np.float64)
    same = ((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))
    if got.dtype != exact.dtype or got.shape != exact.shape or not same.all():
        at = tuple(np.argwhere(~same)[0]) if got.shape == exact.shape and not same.all() else "dtype or shape"
        raise AssertionError(f"{got.dtype} {x}, not {exact.dtype} {y}: wrong, first at {at}")


def elements(s: Live) -> NDArray[Any]:
    return np.array(s.draw.rng.choices(ELEMENTS, k=12)).astype(dtype_of(s.dtype).numpy)


@step(often=2)
def numbers(s: Live) -> None:
    """Calls with a number: the same calls again and again, whose numbers are equal but not the same."""
    name, x = s.draw.pick("call", tuple(CALLS)), elements(s)
    on_device = s.device.array(x)
    for number in [s.draw.pick("number", NUMBERS) for _ in range(2)]:
        if name == "where" and not isinstance(number, float):
            continue
        with np.errstate(all="ignore"):
            exact = CALLS[name](x.astype(np.float32), np.float32(number))
        exact = exact if exact.dtype == bool else exact.astype(x.dtype)
        bits_equal(CALLS[name](on_device, number).numpy(), exact)


@step()
def alpha_and_beta(s: Live) -> None:
    """Of products without zeros, so that the sign of each zero is that of a factor."""
    sign = np.array([[1], [-1], [-1], [1], [1]])
    a = (np.abs(s.whole((5, 5), 1)).astype(np.float32) + 1) * sign
    b, c = np.abs(s.whole((5, 5), 1)).astype(np.float32) + 1, s.whole((5, 5), 2).astype(np.float32)
    numpy = dtype_of(s.dtype).numpy
    x, y, z = (s.device.array(each.astype(numpy)) for each in (a, b, c))
    for alpha in [s.draw.pick("alpha", (0.0, -0.0, NAN, 1.0, -2.0)) for _ in range(2)]:
        with np.errstate(all="ignore"):
            product = np.float32(alpha) * (a @ b)
            bits_equal(webmm.matmul(x, y, alpha=alpha).numpy(), product.astype(numpy))
            beta = s.draw.pick("beta", (0.0, -0.0, NAN, 1.0, -1.0))
            c = product + np.float32(beta) * c if beta else product
        got = webmm.gemm(x, y, z, alpha=alpha, beta=beta).numpy()
        bits_equal(np.abs(got), np.abs(c.astype(numpy)))


@step()
def eps(s: Live) -> None:
    values = s.whole((5, 8), 2)
    values[2] = 0
    x, wide = s.device.array(values), values.astype(np.float64)
    for eps in [s.draw.pick("eps", (0.0, -0.0, NAN, 1.0)) for _ in range(2)]:
        try:
            got = webmm.rms_norm(x, eps=eps)
        except ProblemError:
            if eps == 1.0:
                raise
            continue
        with np.errstate(all="ignore"):
            exact = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps)
        s.compare(got, exact, TOLERANCE[s.dtype], s.dtype)


@step()
def ends_of_functions(s: Live) -> None:
    x = elements(s)
    name = s.draw.pick("function", tuple(FUNCTIONS))
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        s.compare(FUNCTIONS[name](s.device.array(x)), FUNCTIONS[name](wide), TOLERANCE[s.dtype], s.dtype)


@step()
def ends_of_reductions(s: Live) -> None:
    rows = np.stack([elements(s) for _ in range(5)])
    rows[s.draw.pick("row", range(5))] = -INF
    wide, op = rows.astype(np.float64), s.draw.pick("op", ("logsumexp", "sum", "max", "argmax", "softmax"))
    x = s.device.array(rows)
    with np.errstate(all="ignore"):
        most = wide.max(1, keepdims=True)
        e = np.exp(wide - np.where(np.isfinite(most), most, 0))
        if op == "softmax":
            exact = np.exp(wide - most) / np.exp(wide - most).sum(1, keepdims=True)
            s.compare(webmm.softmax(x, 1), exact, TOLERANCE[s.dtype], s.dtype)
            return
        log = np.where(np.isfinite(most[:, 0]), np.log(e.sum(1)) + most[:, 0], most[:, 0])
        exact = log if op == "logsumexp" else getattr(wide, op)(1).astype(np.float64)
    dtype = "int32" if op == "argmax" else s.dtype
    s.compare(webmm.reduce(x, op, 1), exact, TOLERANCE[s.dtype], dtype)


@step()
def ends_of_expressions(s: Live) -> None:
    """Constants and results at the ends of a range: as NumPy rounds and wraps them, or one clear error."""
    whole = s.draw.pick("int32", (False, True))
    x = np.array([1, -2, 3], np.int32) if whole else np.array([1, -2, 0.5]).astype(dtype_of(s.dtype).numpy)
    text = s.draw.pick("expression", WHOLE_TEXTS if whole else TEXTS)
    try:
        got = webmm.elementwise(text, x=s.device.array(x)).numpy()
    except ProblemError:
        return
    of = {"exp": np.exp, "where": lambda c, x, y: x if bool(c) and c != -2 else y}
    with np.errstate(all="ignore"):
        if whole:
            exact = np.asarray(eval(text, {}, {"x": x.astype(np.int64)})).astype(np.int32)
        else:
            exact = np.asarray(eval(text, of, {"x": x.astype(np.float64)})).astype(np.float32).astype(x.dtype)
    s.compare(got, exact.astype(np.float64), TOLERANCE[s.dtype], exact.dtype.name)
