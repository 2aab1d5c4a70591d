"""Steps of sequences: an operand on the host whose content changes between calls that are otherwise equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from live import Live, step
from numpy.typing import NDArray
from special_numbers import bits_equal

import webmm

SMALL, LARGE = 8, 80  # lengths: the content of a large operand is not part of a plan's key
CALLS: dict[str, Callable[[Any, Any], Any]] = {  # of an array x on the device, (n, n), and h on the host, (n,)
    "x / h": lambda x, h: webmm.elementwise("x / h", x=x, h=h),
    "bias": lambda x, h: webmm.matmul(x, x, bias=h),
    "x @ h": lambda x, h: webmm.matmul(x, h),
    "h @ x": lambda x, h: webmm.matmul(h, x),
    "einsum": lambda x, h: webmm.einsum("ij,j->ij", x, h),
    "concatenate": lambda x, h: webmm.concatenate([x[0], h]),
}
EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "x / h": lambda x, h: x / h,
    "bias": lambda x, h: x @ x + h,
    "x @ h": lambda x, h: x @ h,
    "h @ x": lambda x, h: h @ x,
    "einsum": lambda x, h: x * h,
    "concatenate": lambda x, h: np.concatenate([x[0], h]),
}


class Array(np.ndarray):
    """A subclass of NumPy's array."""


def forms(values: NDArray[Any]) -> dict[str, Any]:
    """Return objects that hold the values: those that can be changed and, last, those that must be made again."""
    every_second = np.zeros(2 * len(values), values.dtype)[::2]
    every_second[...] = values
    return {
        "array": values.copy(),
        "view": every_second,
        "reversed": values[::-1].copy()[::-1],
        "subclass": values.copy().view(Array),
        "list": list(values),
        "tuple": tuple(values),
    }


def changed(form: str, held: Any, values: NDArray[Any]) -> Any:
    """Return the same object with other values, or an equal one if it cannot be changed."""
    if form == "tuple":
        return tuple(values)
    held[:] = list(values) if form == "list" else values
    return held


@step(often=2)
def host_operands(s: Live) -> None:
    """A NumPy array, a list or a tuple, with other numbers in each call; some are only zeros of the other sign."""
    n, name = s.draw.pick("length", (SMALL, SMALL, LARGE)), s.draw.pick("call", tuple(CALLS))
    host = np.abs(s.whole((n, n), 1).astype(np.float32)) + 1
    x = s.device.array(host.astype(s.whole((), 1).dtype))
    first = s.whole((n,), 1)
    second = -first if s.draw.pick("signs change", (False, True)) else s.whole((n,), 1)
    if name == "x / h":
        first, second = (
            np.where(each == 0, each, np.sign(each.astype(np.float32))).astype(x.dtype) for each in (first, second)
        )
    form = s.draw.pick("form", tuple(forms(first)))
    held, got, exact = forms(first)[form], [], []
    for values in (first, second, first):
        held = changed(form, held, values)
        got.append(CALLS[name](x, held))
        with np.errstate(all="ignore"):
            wide = values.astype(np.float32)
            exact.append(np.asarray(EXACT[name](host, wide)).astype(x.dtype))
    changed(form, held, np.full_like(first, 77))
    for one, right in zip(got, exact, strict=True):
        result = one.numpy()
        if name == "x / h":
            bits_equal(result, right)
        else:
            s.compare(result, right.astype(np.float64), 0.0, s.dtype)


@step()
def changed_indices(s: Live) -> None:
    """take() by a list or an array of positions that change."""
    n = SMALL
    values = s.whole((n, 3), 2)
    x, held = s.device.array(values), [0, 1, 2]
    at = np.array(held, np.int32) if s.draw.pick("an array", (False, True)) else held
    for _ in range(3):
        at[:] = [s.draw.pick("index", range(n)) for _ in range(3)]
        s.keep(webmm.take(x, at, 0), values.astype(np.float64)[list(at)])


@step()
def a_changing_number(s: Live) -> None:
    """A number in an array without axes."""
    values, number = s.whole((5,), 2), np.array(1, s.whole((), 1).dtype)
    x = s.device.array(values)
    for _ in range(2):
        number[...] = s.draw.pick("number", (-1, 2, 3))
        s.keep(webmm.elementwise("x * y", x=x, y=number), values.astype(np.float64) * float(number))
