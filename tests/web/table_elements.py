"""The table of calls: functions of one's own of each element, rotary position embeddings, caches of keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.web.table_case import EPS, Case, Views, X, drawn

TOKENS_FIRST: Views = (("transpose", (0, 1, 3, 2)),)  # of columns first, as far as Python's views go
LEAKY = "where(x > 0, x, slope * x)"


def own() -> Iterator[Case]:
    """Yield `map()` with names and expressions, numbers and arrays, and what is refused."""
    yield mapped("a name", np.maximum, other=0, f="relu", text="")
    yield mapped("a number, views", lambda x, slope: np.where(x > 0, x, slope * x), LEAKY, VIEW, slope=0.1)
    yield mapped("an array per column", lambda x, y: x / (1 + np.exp(-x)) * y, "silu(x) * y", y=drawn(6))
    yield mapped("an array per row, a view", lambda x, y: x - y, "x - y", VIEW, y=drawn(5, 1))
    yield mapped("float16", lambda x, y: x * y, "x * y", dtype="float16", y=drawn(6, dtype="float16"))
    yield mapped("no axes", lambda x: x**2, "x ** 2", shape=())
    yield mapped("nothing", lambda x: x, "x", shape=(3, 0))
    x = X(drawn(4, 5, 6))
    for name, options in (
        ("no function", {"f": ""}),
        ("of an unknown value", {"text": "x + y"}),
        ("with a value that it does not use", {"text": "x", "slope": 1.0}),
        ("of booleans", {"text": "x > 0"}),
        ("with an array that does not broadcast", {"text": "x + y", "y": X(drawn(5))}),
    ):
        yield Case(f"map: {name}", "map", (x,), options, error="ProblemError")
    yield Case("map of int32", "map", (X(drawn(3, dtype="int32")),), {"text": "x"}, error="ProblemError")


VIEW: Views = (("slice", (None, [1, 5], [0, 6, 2])),)


def mapped(
    name: str,
    reference: Any,
    text: str,
    views: Views = (),
    shape: tuple[int, ...] = (4, 5, 6),
    dtype: str = "float32",
    f: str = "",
    other: Any = None,
    **values: Any,
) -> Case:
    """Return a case of `map()`, on the device if there are views."""
    x = X(drawn(*shape, dtype=dtype), views)
    if views:
        values = {key: each[:4] if isinstance(each, np.ndarray) else each for key, each in values.items()}
    given = x.seen.astype(np.float64)
    expected = reference(given, other) if f else reference(given, **values)
    options = {"f": f} if f else {"text": text}
    options |= {key: X(each) if isinstance(each, np.ndarray) else each for key, each in values.items()}
    allowed = 8 * EPS[dtype] * (1 + np.abs(expected))
    return Case(f"map: {name}", "map", (x,), options, expected, allowed, dtype, resident=bool(views))


def rotations() -> Iterator[Case]:
    """Yield `rotary()` of both kinds of pairs, and what is refused."""
    for name, interleaved, shape, table, views, dtype in (
        ("halves", False, (2, 3, 7, 12), (7, 6), (), "float32"),
        ("neighbours, a view", True, (2, 3, 12, 7), (1, 6), TOKENS_FIRST, "float32"),
        ("halves, a view", False, (2, 3, 12, 7), (2, 1, 7, 6), TOKENS_FIRST, "float32"),
        ("float16", True, (7, 12), (7, 6), (), "float16"),
    ):
        x, cos, sin = X(drawn(*shape, dtype=dtype), views), drawn(*table), drawn(*table)
        expected = rotated(x.seen.astype(np.float64), cos, sin, interleaved)
        allowed = 4 * EPS[dtype] * (1 + np.abs(expected)) + 8 * EPS["float32"]
        options = {"interleaved": interleaved}
        yield Case(name, "rotary", (x, X(cos), X(sin)), options, expected, allowed, dtype, resident=bool(views))
    for name, wrong in (
        ("an odd width", (drawn(7, 11), drawn(7, 6), drawn(7, 6))),
        ("a table of another width", (drawn(7, 12), drawn(7, 12), drawn(7, 6))),
        ("a table of more axes", (drawn(7, 12), drawn(7, 6), drawn(2, 7, 6))),
        ("a table of integers", (drawn(7, 12), drawn(7, 6, dtype="int32"), drawn(7, 6))),
        ("integers", (drawn(7, 12, dtype="int32"), drawn(7, 6), drawn(7, 6))),
    ):
        yield Case(f"rotary: {name}", "rotary", tuple(map(X, wrong)), error="ProblemError")


def rotated(x: NDArray[Any], cos: NDArray[Any], sin: NDArray[Any], interleaved: bool) -> NDArray[Any]:
    """Return NumPy's `rotary()`."""
    half = x.shape[-1] // 2
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    pairs = first * cos - second * sin, second * cos + first * sin
    return np.stack(pairs, -1).reshape(x.shape) if interleaved else np.concatenate(pairs, -1)


SIZES = {"layers": 2, "batch": 2, "heads": 3, "capacity": 8, "width": 4}


def caches() -> Iterator[Case]:
    """Yield what is in a `KVCache` after two calls of `append()` for each layer, and what is refused."""
    k, v = ((2, 3, n, width) for n, width in ((5, 4), (5, 6)))
    first, second = [drawn(*k), drawn(*v)], [drawn(2, 3, 4, 2), drawn(2, 3, 6, 2)]
    sizes = SIZES | {"value_width": 6}
    for resident in (False, True):
        views = TOKENS_FIRST if resident else ()
        given = [X(x) for x in first]
        given += [X(x if resident else np.ascontiguousarray(x.swapaxes(-1, -2)), views) for x in second]
        for i, of in enumerate(("keys", "values")):
            whole = np.concatenate([given[i].data, given[2 + i].seen], axis=2)
            options = sizes | {"of": of}
            yield Case(f"{of}, {resident}", "cached", tuple(given), options, whole, resident=resident)
    given = [X(drawn(*k)), X(drawn(*k))]
    for name, options, more in (
        ("too many tokens", {}, [X(drawn(2, 3, 4, 4)), X(drawn(2, 3, 4, 4))]),
        ("other heads", {}, [X(drawn(2, 2, 2, 4)), X(drawn(2, 3, 2, 4))]),
        ("values of fewer tokens", {}, [X(drawn(2, 3, 2, 4)), X(drawn(2, 3, 1, 4))]),
        ("integers", {}, [X(drawn(2, 3, 2, 4)), X(drawn(2, 3, 2, 4, dtype="int32"))]),
        ("no layers", {"layers": 0}, given),
        ("a width of 1.5", {"width": 1.5}, given),
        ("a value width of 0", {"value_width": 0}, given),
        ("float64", {"dtype": "float64"}, given),
        ("layer 2 of 2", {"layer": 2}, given),
    ):
        yield Case(f"cache: {name}", "cached", (*given, *more), SIZES | {"of": "keys"} | options, error="ProblemError")
