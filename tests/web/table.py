"""A table of calls with expected results, run by Python, and by webmm.js in a browser and in node.

A case has the Python name of a call, operands (on the host, or on the device and seen through views), and options. It
expects NumPy's result in float64 with an allowed error per element, exact integers, or the name of an error. `check()`
compares the outcomes of all languages in the same way.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import dtype_of
from webmm.epilogues import ACTIVATIONS
from webmm.problems.normalise import NORMALISATIONS
from webmm.problems.reduce import OPERATIONS
from webmm.problems.scheme import Scheme as Quantisation
from webmm.problems.scheme import checked_scale, checked_zero, reference
from webmm.problems.weights import quantize_blocks
from webmm.verify import product_bound, sum_bound

RNG = np.random.default_rng(16)
EPS = {"float32": 2.0**-23, "float16": 2.0**-10}
TINY = {"float32": 2.0**-126, "float16": 2.0**-24}
JAVASCRIPT_ERRORS = {"TypeError": "ConfigError"}  # by Python's error, for unknown options
NAN, INF = float("nan"), float("inf")

Views = tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class X:
    """An operand: an array, and the views applied to it before the call."""

    data: NDArray[Any]
    views: Views = ()

    @property
    def seen(self) -> NDArray[Any]:
        """The operand of the call, as a NumPy array."""
        x: Any = self.data
        for name, arguments in self.views:
            x = VIEWS[name](x, *arguments)
        return np.asarray(x)


def sliced(x: Any, *ranges: Any) -> Any:
    """Return a slice by ranges as in webmm.js: None, an index, or [start, stop, step]."""
    keys = [
        slice(None) if r is None else r if isinstance(r, int) else slice(*(list(r) + [None] * (3 - len(r))))
        for r in ranges
    ]
    return x[(*keys, ...)]


def transposed(x: Any, *axes: int) -> Any:
    """Return NumPy's transpose, or for an `Array` the equivalent T or mT."""
    if isinstance(x, np.ndarray):
        return x.transpose(*axes) if axes else x.T
    if not axes:
        return x.T
    assert axes == (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2), "Array supports no other transposes"
    return x.mT


VIEWS = {
    "slice": sliced,
    "transpose": transposed,
    "reshape": lambda x, *shape: x.reshape(*shape),
    "broadcast_to": lambda x, *shape: np.broadcast_to(x, shape) if isinstance(x, np.ndarray) else x.broadcast_to(shape),
}


@dataclass(frozen=True)
class Case:
    """A call and its expected outcome: an array and the allowed error, or the name of an error."""

    name: str
    call: str
    operands: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    expected: NDArray[Any] | None = None
    allowed: NDArray[np.float64] | float = 0.0
    dtype: str = "float32"
    error: str = ""
    resident: bool = False

    @property
    def needs_float16(self) -> bool:
        """Whether the call needs the feature shader-f16."""
        arrays = [x.data for x in (*self.operands, *self.options.values()) if isinstance(x, X)]
        return self.dtype == "float16" or any(a.dtype == np.float16 for a in arrays)


def drawn(*shape: int, dtype: str = "float32", scale: float = 1.0) -> NDArray[Any]:
    """Return random numbers that are exact in float16, or any integers of the dtype."""
    if dtype in ("int8", "uint8", "int32"):
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    return (scale * RNG.standard_normal(shape)).astype(np.float16).astype(dtype)


# Float products


def product(
    name: str,
    a: X | NDArray[Any],
    b: X | NDArray[Any],
    *,
    resident: bool = False,
    transpose_a: bool = False,
    transpose_b: bool = False,
    **options: Any,
) -> Case:
    """Return a case of `matmul()`; NumPy computes the expected result."""
    a, b = (x if isinstance(x, X) else X(x) for x in (a, b))
    left, right = (x.seen.astype(np.float64) for x in (a, b))
    left = left.swapaxes(-1, -2) if transpose_a else left
    right = right.swapaxes(-1, -2) if transpose_b else right
    given: dict[str, Any] = {k: X(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    dtype = options.get("out_dtype", a.data.dtype.name)
    extra = {k: given[k].seen.astype(np.float64) if k in given else 0.0 for k in ("bias", "residual")}
    alpha = options.get("alpha", 1.0)
    with np.errstate(all="ignore"):
        sums = alpha * (left @ right) + extra["bias"]
        size = abs(alpha) * (np.abs(left) @ np.abs(right)) + np.abs(extra["bias"])
        active = ACTIVATIONS[options["activation"]].reference(sums) if options.get("activation") else sums
        expected = np.asarray(active + extra["residual"])
        k = left.shape[-1]
        allowed = 1.2 * (k + 3) * EPS["float32"] * size + 2 * EPS[dtype] * (np.abs(active) + np.abs(extra["residual"]))
        expected, allowed = (
            np.asarray(expected),
            np.asarray(allowed + 2e-6 * bool(options.get("activation")) + TINY[dtype]),
        )
    flags = {k: v for k, v in (("transpose_a", transpose_a), ("transpose_b", transpose_b)) if v}
    return Case(name, "matmul", (a, b), {**given, **flags}, expected, allowed, dtype, resident=resident)


def products() -> Iterator[Case]:
    """Yield products of matrices, vectors, batches and views, with every option."""
    for m, n, k in ((1, 1, 1), (5, 7, 3), (64, 64, 64), (33, 68, 40), (1, 300, 257), (129, 1, 65), (70, 66, 1030)):
        yield product(f"{m}x{n}x{k}", drawn(m, k), drawn(k, n))
    yield product("no rows", drawn(0, 3), drawn(3, 4))
    yield product("no columns", drawn(2, 3), drawn(3, 0))
    yield product("no terms", drawn(2, 0), drawn(0, 4))
    yield product("no terms and a bias", drawn(2, 0), drawn(0, 4), bias=drawn(4), activation="relu")
    yield product("vector by vector", drawn(9), drawn(9))
    yield product("vector by matrix", drawn(9), drawn(9, 4))
    yield product("matrix by vector", drawn(4, 9), drawn(9))
    yield product("batch by vector", drawn(3, 4, 9), drawn(9))
    yield product("batch", drawn(3, 4, 9), drawn(3, 9, 5))
    yield product("batch by one matrix", drawn(3, 4, 9), drawn(9, 5))
    yield product("one matrix by a batch", drawn(4, 9), drawn(3, 9, 5))
    yield product("batches that broadcast", drawn(2, 1, 4, 9), drawn(3, 9, 5))
    yield product("batches with an empty one", drawn(0, 4, 9), drawn(9, 5))
    a, b = drawn(12, 8), drawn(8, 20)
    at, bt = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    yield product("transpose a", at, b, transpose_a=True)
    yield product("transpose b", a, bt, transpose_b=True)
    yield product("transpose both", at, bt, transpose_a=True, transpose_b=True)
    yield product("transpose b of a batch", drawn(2, 5, 6), drawn(2, 7, 6), transpose_b=True, resident=True)
    for name in ACTIVATIONS:
        yield product(f"bias and {name}", a, b, bias=drawn(20), activation=name)
    yield product("bias by row", a, b, bias=drawn(12, 1))
    yield product("residual", a, b, residual=drawn(12, 20))
    yield product("alpha", a, b, alpha=-0.5)
    yield product("alpha 0", a, b, alpha=0.0, bias=drawn(20))
    yield product(
        "everything", drawn(3, 12, 8), b, alpha=1.5, bias=drawn(20), activation="silu", residual=drawn(3, 12, 20)
    )
    yield product("precision", a, b, precision="high")
    yield product("float16", drawn(40, 33, dtype="float16"), drawn(33, 24, dtype="float16"))
    yield product("float16 into float32", *(drawn(16, 16, dtype="float16") for _ in "ab"), out_dtype="float32")
    yield product("float32 into float16", a, b, out_dtype="float16", bias=drawn(20), activation="gelu")
    yield from resident_products()
    yield from special_products()
    yield from refused_products()


def resident_products() -> Iterator[Case]:
    """Yield products of device arrays and their views, which are read in place or copied if that is not possible."""
    both = drawn(12, 8), drawn(8, 20)
    yield product("resident", *both, resident=True)
    yield product(
        "resident with everything", *both, bias=drawn(20), activation="gelu", residual=drawn(12, 20), resident=True
    )
    for name, a, b in (
        ("transposed views", X(drawn(8, 12), (("transpose", ()),)), X(drawn(20, 8), (("transpose", ()),))),
        (
            "slices",
            X(drawn(16, 30), (("slice", ([2, 9], [5, 25])),)),
            X(drawn(4, 20, 17), (("slice", (1, None, [3, 14])),)),
        ),
        ("every other row", X(drawn(16, 8), (("slice", ([None, None, 2],)),)), X(both[1])),
        ("rows backwards", X(drawn(16, 8), (("slice", ([None, None, -1],)),)), X(both[1])),
        ("no unit stride", X(drawn(16, 16), (("slice", ([None, None, 2], [None, None, 2])),)), X(both[1])),
        ("reshaped", X(drawn(96), (("reshape", (12, 8)),)), X(both[1])),
        ("repeated", X(drawn(1, 8), (("broadcast_to", (5, 12, 8)),)), X(both[1])),
        ("transposed batch", X(drawn(3, 8, 12), (("transpose", (0, 2, 1)),)), X(drawn(3, 8, 5))),
        ("transposed result shape", X(drawn(2, 3, 4, 8)), X(drawn(3, 8, 5))),
    ):
        yield product(name, a, b, resident=True)


def special_products() -> Iterator[Case]:
    """Yield products with NaN and infinities, and sums that overflow."""
    a, b = drawn(6, 5), drawn(5, 7)
    a[1, 2], a[3, 0], b[4, 6] = NAN, INF, -INF
    yield product("NaN and infinities", a, b)
    yield product("NaN and relu", np.array([[NAN], [INF], [-INF]], np.float32), np.ones((1, 1), np.float32))
    yield product("overflow", np.full((2, 3), 3e38, np.float32), np.full((3, 2), 2, np.float32))
    yield product("overflow of float16", np.full((2, 3), 6e4, np.float16), np.full((3, 2), 2, np.float16))
    yield product("signed zeros", np.array([[-0.0]], np.float32), np.array([[1.0]], np.float32))


def refused_products() -> Iterator[Case]:
    """Yield products with invalid operands and options."""
    a, b = X(drawn(3, 4)), X(drawn(4, 5))
    for name, operands, options, error in (
        ("inner sizes differ", (a, a), {}, "ProblemError"),
        ("batches do not broadcast", (X(drawn(2, 3, 4)), X(drawn(3, 4, 5))), {}, "ProblemError"),
        ("a number", (X(np.float32(2).reshape(())), b), {}, "ProblemError"),
        ("different types", (a, X(drawn(4, 5, dtype="float16"))), {}, "ProblemError"),
        ("integers", (X(drawn(3, 4, dtype="int8")), X(drawn(4, 5, dtype="int8"))), {}, "ProblemError"),
        ("bias of another length", (a, b), {"bias": X(drawn(4))}, "ProblemError"),
        ("bias of integers", (a, b), {"bias": X(drawn(5, dtype="int8"))}, "ProblemError"),
        ("residual of another shape", (a, b), {"residual": X(drawn(5))}, "ProblemError"),
        ("unknown activation", (a, b), {"activation": "tanhh"}, "ProblemError"),
        ("unknown out_dtype", (a, b), {"out_dtype": "float31"}, "ProblemError"),
        ("out_dtype of integers", (a, b), {"out_dtype": "int8"}, "ProblemError"),
        ("unknown precision", (a, b), {"precision": "higher"}, "ProblemError"),
        ("alpha in words", (a, b), {"alpha": "one"}, "ProblemError"),
        ("unknown option", (a, b), {"transposed_b": True}, "TypeError"),
    ):
        yield Case(name, "matmul", operands, options, error=error)
        yield Case(f"{name}, resident", "matmul", operands, options, error=error, resident=True)


def in_place() -> Iterator[Case]:
    """Yield cases of `gemm()`, which updates its result in place."""
    a, b, c = drawn(12, 8), drawn(8, 20), drawn(12, 20)
    columns = X(drawn(20, 12), (("transpose", ()),))
    part = X(drawn(20, 30), (("slice", ([3, 15], [4, 24])),))
    for name, into, alpha, beta in (
        ("gemm", X(c), 1.0, 0.0),
        ("gemm that adds", X(c), 0.5, -2.0),
        ("gemm into columns", columns, 1.0, 1.0),
        ("gemm into a part", part, 1.0, 1.0),
        ("gemm over NaN", X(np.full((12, 20), NAN, np.float32)), 1.0, 0.0),
    ):
        before = into.seen.astype(np.float64) if beta else 0.0
        expected = alpha * (a.astype(np.float64) @ b) + beta * before
        allowed = 12 * EPS["float32"] * (np.abs(a) @ np.abs(b) + np.abs(beta * before))
        yield Case(name, "gemm", (X(a), X(b), into), {"alpha": alpha, "beta": beta}, expected, allowed, resident=True)
    yield Case("gemm on the host", "gemm", (X(a), X(b), X(c)), error="ProblemError")
    yield Case("gemm of other shapes", "gemm", (X(a), X(b), X(drawn(3, 3))), error="ProblemError", resident=True)
    one_row = X(a, (("slice", ([0, 1],)),))
    yield Case("gemm of one row into many", "gemm", (one_row, X(b), X(c)), error="ProblemError", resident=True)
    repeated = X(drawn(1, 20), (("broadcast_to", (12, 20)),))
    yield Case("gemm into what repeats", "gemm", (X(a), X(b), repeated), error="ProblemError", resident=True)


# float64 products, which browsers compute with integers


def float64_products() -> Iterator[Case]:
    """Yield `matmul()` and `gemm()` of float64: layouts, batches, epilogues, and numerically difficult operands."""
    wide = 2.0 ** RNG.integers(-300, 300, (9, 90))
    for name, a, b, options in (
        ("one term", random_float64(3, 1), random_float64(1, 4), {}),
        ("few terms", random_float64(5, 7), random_float64(7, 3), {}),
        ("slices", random_float64(33, 140), random_float64(140, 68), {}),
        ("vectors", random_float64(200), random_float64(200), {}),
        (
            "a batch by one matrix",
            random_float64(3, 4, 90),
            random_float64(90, 5),
            {"bias": random_float64(5), "alpha": 1 / 3},
        ),
        (
            "bias by row, residual",
            random_float64(6, 90),
            random_float64(90, 5),
            {"bias": random_float64(6, 1), "residual": random_float64(6, 5)},
        ),
        ("no terms", random_float64(2, 0), random_float64(0, 3), {}),
        ("powers of two by 600", random_float64(9, 90) * wide, random_float64(90, 7), {}),
        ("all cancels but little", np.tile(random_float64(5, 40), 2), np.repeat([[1.0], [-1 - 2.0**-45]], 40, 0), {}),
        (
            "NaN and infinities",
            np.where(np.eye(5, 64) > 0, (np.inf, np.nan) * 32, random_float64(5, 64)),
            random_float64(64, 3),
            {},
        ),
        ("overflow and subnormals", np.array([[1e200], [1e-170]]), np.array([[1e200, 1e-150]]), {}),
    ):
        yield float64_product(f"float64: {name}", a, b, **options)
    views = (
        X(random_float64(90, 12), (("transpose", ()),)),
        X(random_float64(2, 120, 9), (("slice", (1, [30, 120], [1, 8, 2])),)),
    )
    yield float64_product("float64: views", *views, resident=True)
    yield float64_product(
        "float64: transposed", random_float64(90, 6), random_float64(5, 90), transpose_a=True, transpose_b=True
    )
    a, b, c = (random_float64(*shape) for shape in ((6, 80), (80, 9), (9, 6)))
    into, expected = X(c, (("transpose", ()),)), 0.3 * (a @ b) - 0.7 * c.T
    allowed = 82 * 2.0**-52 * (np.abs(a) @ np.abs(b) + np.abs(c.T))
    terms = {"alpha": 0.3, "beta": -0.7}
    yield Case("float64: gemm", "gemm", (X(a), X(b), into), terms, expected, allowed, "float64", resident=True)
    yield from float64_sums()
    for name in ("relu", "silu"):  # a software driver takes minutes to compile the others
        expected, sums = ACTIVATIONS[name].reference(a @ b), np.abs(a) @ np.abs(b)
        allowed = 100 * 2.0**-52 * (sums + np.abs(expected))
        given = {"activation": name}
        yield Case(f"float64: {name}", "matmul", (X(a), X(b)), given, expected, allowed, "float64")
    for name, operands, options in (
        ("by float32", (X(a), X(b.astype(np.float32))), {}),
        ("into float32", (X(a), X(b)), {"out_dtype": "float32"}),
        ("bias of float16", (X(a), X(b)), {"bias": X(drawn(9, dtype="float16"))}),
    ):
        yield Case(f"float64: {name}", "matmul", operands, options, error="ProblemError")


def float64_sums() -> Iterator[Case]:
    """Yield sums and means along any axes, which are computed as products with ones."""
    x, long = random_float64(4, 50, 6), random_float64(3, 4000)
    for op, axis in itertools.product(("sum", "mean"), (None, 0, 1, -1, (0, 2))):
        expected = getattr(np, op)(x.astype(np.longdouble), axis=axis).astype(np.float64)
        allowed = 2 * 2.0**-52 * np.sum(np.abs(x), axis=axis)
        given = {"op": op} | ({} if axis is None else {"axis": axis})
        yield Case(f"float64: {op} along {axis}", "reduce", (X(x),), given, expected, allowed, "float64")
    exact = long.astype(np.longdouble).sum(1, keepdims=True).astype(np.float64)
    allowed, options = 2.0**-52 * np.abs(long).sum(1, keepdims=True), {"op": "sum", "axis": 0, "keepdims": True}
    rows = {"op": "sum", "axis": 1, "keepdims": True}  # in parts if memory is small
    yield Case("float64: sum of long rows", "reduce", (X(long),), rows, exact, 2 * allowed, "float64")
    columns = X(long, (("transpose", ()),))
    yield Case("float64: sum of a view", "reduce", (columns,), options, exact.T, allowed.T, "float64", resident=True)
    yield Case(
        "float64: mean of nothing",
        "reduce",
        (X(np.zeros((2, 0))),),
        {"op": "mean", "axis": 1},
        np.full(2, NAN),
        0.0,
        "float64",
    )
    yield from extremes_of_doubles()
    for name, options in (("prod", {"op": "prod"}), ("sum into float32", {"op": "sum", "out_dtype": "float32"})):
        yield Case(f"float64: {name}", "reduce", (X(x),), options, error="ProblemError")


def extremes_of_doubles() -> Iterator[Case]:
    """Yield maxima, minima and positions, of numbers that differ in their low words and of special ones."""
    x, long = (1 + RNG.integers(0, 2**33, shape) // 3 * 2.0**-52 for shape in ((4, 50, 6), (3, 4000)))
    x[1::2] *= -1
    x[2, :, 1], x[2, 7, 2], x[2, [30, 9], 3], x[2, :, 4], x[2, ::2, 5] = -INF, -INF, NAN, 2.0**-1074, -0.0
    for op, axis in itertools.product(("max", "min", "argmax", "argmin"), (None, 0, 1, -1)):
        given = {"op": op} | ({} if axis is None else {"axis": axis})
        dtype = "int32" if op.startswith("arg") else "float64"
        yield Case(f"float64: {op} along {axis}", "reduce", (X(x),), given, getattr(np, op)(x, axis=axis), 0.0, dtype)
        if axis == 1:  # in parts if memory is small
            columns = (("transpose", ()),)
            for name, rows, options in (("long rows", X(long), {"axis": 1}), ("a view", X(long, columns), {"axis": 0})):
                expected, resident = getattr(np, op)(long, axis=1), bool(rows.views)
                options = {"op": op, **options}
                yield Case(
                    f"float64: {op} of {name}", "reduce", (rows,), options, expected, 0.0, dtype, resident=resident
                )


def random_float64(*shape: int) -> NDArray[np.float64]:
    """Return random numbers with all bits of a double."""
    return RNG.standard_normal(shape)


def float64_product(name: str, a: Any, b: Any, *, resident: bool = False, **options: Any) -> Case:
    """Return a case of `matmul()`; the expected result is computed in longdouble."""
    a, b = (x if isinstance(x, X) else X(x) for x in (a, b))
    flags = {k: options.pop(k) for k in ("transpose_a", "transpose_b") if k in options}
    x, y = (x.seen.swapaxes(-1, -2) if f"transpose_{n}" in flags else x.seen for n, x in (("a", a), ("b", b)))
    with np.errstate(all="ignore"):
        x, y, alpha = x.astype(np.longdouble), y.astype(np.longdouble), options.get("alpha", 1.0)
        more = [options[term] for term in ("bias", "residual") if term in options]
        expected = sum(more, alpha * (x @ y)).astype(np.float64)
        size = sum(map(np.abs, more), np.abs(alpha) * (np.abs(x) @ np.abs(y)))
        allowed = ((x.shape[-1] + 2) * 2.0**-52 * size + 2.0**-1074).astype(np.float64)
    given = {k: X(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    return Case(name, "matmul", (a, b), given | flags, expected, allowed, "float64", resident=resident)


# Integers


def quantized() -> Iterator[Case]:
    """Yield exact 8-bit products: all dtypes; zero points and scales per matrix, row and column."""
    types = (("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8"))
    for (a, b), out in zip(types * 4, ("int32", "float32", "uint8", "int8") * 3, strict=True):
        yield quantized_product(f"{a} by {b} into {out}", drawn(9, 33, dtype=a), drawn(33, 12, dtype=b), out)
    a, b = drawn(9, 64, dtype="uint8"), drawn(64, 12, dtype="int8")
    rows = {"scale_a": np.linspace(0.01, 0.02, 9, dtype=np.float32), "zero_a": np.arange(9, dtype=np.int32)}
    columns = {"scale_b": np.linspace(0.01, 0.5, 12, dtype=np.float32), "zero_b": np.arange(-6, 6, dtype=np.int32)}
    for out in ("int32", "float32", "uint8"):
        yield quantized_product(f"by row into {out}", a, b, out, **rows)
        yield quantized_product(f"by column into {out}", a, b, out, **columns)
        yield quantized_product(f"by row and column into {out}", a, b, out, **rows, **columns)
        yield quantized_product(f"with a bias into {out}", a, b, out, bias=np.arange(12, dtype=np.int32) * 1000)
    yield quantized_product("resident bytes", a, b, "uint8", resident=True, **rows)
    yield quantized_product(
        "resident batch of bytes", drawn(3, 4, 16, dtype="int8"), drawn(16, 8, dtype="int8"), "int32", resident=True
    )
    yield quantized_product("batch of bytes", drawn(3, 4, 16, dtype="int8"), drawn(3, 16, 8, dtype="int8"), "float32")
    given = {"scale_a": 1.0, "zero_a": 0, "scale_b": 1.0, "zero_b": 0}
    for name, operands, options in (
        ("bytes of floats", (X(drawn(3, 4)), X(drawn(4, 5))), {}),
        ("scale of 0", (X(a), X(b)), {"scale_a": 0.0}),
        ("zero point out of range", (X(a), X(b)), {"zero_a": 256}),
        ("scales of another length", (X(a), X(b)), {"scale_a": X(np.ones(5, np.float32))}),
        ("bytes without scale_c", (X(a), X(b)), {"out_dtype": "uint8"}),
        ("int32 with scale_c", (X(a), X(b)), {"out_dtype": "int32", "scale_c": 1.0}),
        ("bias of floats", (X(a), X(b)), {"bias": X(np.ones(12, np.float32))}),
        ("bytes that do not fit", (X(b), X(b)), {}),
    ):
        yield Case(name, "qmatmul", operands, {**given, **options}, error="ProblemError")


def quantized_product(
    name: str, a: NDArray[Any], b: NDArray[Any], out: str, *, resident: bool = False, **changed: Any
) -> Case:
    """Return a case of `qmatmul()`, which must equal `scheme.reference` bit for bit."""
    zero = {"uint8": 7, "int8": -3}
    options: dict[str, Any] = {
        "scale_a": 0.02,
        "zero_a": zero[a.dtype.name],
        "scale_b": 0.05,
        "zero_b": zero[b.dtype.name],
    }
    options |= {"out_dtype": out, **changed}
    if out in zero:
        options |= {"scale_c": 0.75, "zero_c": zero[out]}
    scheme = Quantisation(
        checked_scale("scale_a", options["scale_a"], a.shape[-2]),
        checked_zero("zero_a", options["zero_a"], a.shape[-2], dtype_of(a.dtype)),
        checked_scale("scale_b", options["scale_b"], b.shape[-1]),
        checked_zero("zero_b", options["zero_b"], b.shape[-1], dtype_of(b.dtype)),
        float(np.float32(options["scale_c"])) if "scale_c" in options else None,
        options.get("zero_c", 0),
        options.get("bias"),
    )
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    expected = np.zeros((*batch, a.shape[-2], b.shape[-1]), out)
    for i in np.ndindex(batch):
        x, y = (np.broadcast_to(z, (*batch, *z.shape[-2:]))[i] for z in (a, b))
        expected[i] = reference(x, y, scheme, dtype_of(out))
    given = {k: X(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    return Case(name, "qmatmul", (X(a), X(b)), given, expected, 0.0, out, resident=resident)


def weights() -> Iterator[Case]:
    """Yield products with quantised weights; each language quantises them itself."""
    for bits, block in ((4, 32), (4, 128), (8, 32), (8, 128)):
        yield with_weights(f"{bits} bits in blocks of {block}", drawn(5, 200), drawn(200, 24), bits=bits, block=block)
    yield with_weights("symmetric", drawn(33, 64), drawn(64, 40), symmetric=True)
    yield with_weights("a row", drawn(100), drawn(100, 40))
    yield with_weights("a batch", drawn(2, 3, 64), drawn(64, 16))
    yield with_weights("resident", drawn(6, 64), drawn(64, 16), resident=True)
    x, w = X(drawn(3, 64)), X(drawn(64, 8))
    for name, operands, options in (
        ("weights of 3 bits", (x, w), {"bits": 3}),
        ("blocks of 7", (x, w), {"block": 7}),
        ("weights of another length", (X(drawn(3, 65)), w), {}),
        ("weights with NaN", (x, X(np.full((64, 8), NAN, np.float32))), {}),
        ("weights of one axis", (x, X(drawn(64))), {}),
        ("bytes by weights", (X(drawn(3, 64, dtype="int8")), w), {}),
    ):
        yield Case(name, "qmatmul_weights", operands, options, error="ProblemError")


def with_weights(name: str, x: NDArray[Any], w: NDArray[Any], *, resident: bool = False, **options: Any) -> Case:
    """Return a case of `qmatmul_weights()`."""
    meant = quantize_blocks(w, **options).dequantize().astype(np.float64)
    expected = x.astype(np.float64) @ meant
    allowed = 1.2 * (w.shape[0] + 3) * EPS["float32"] * (np.abs(x.astype(np.float64)) @ np.abs(meant)) + 1e-30
    return Case(name, "qmatmul_weights", (X(x), X(w)), options, expected, allowed, resident=resident)


# Reductions and normalisations


def reductions() -> Iterator[Case]:
    """Yield every operation over rows, columns, all elements, several axes, and views."""
    for op, operation in OPERATIONS.items():
        for shape, axis in (((7, 300), -1), ((300, 7), 0), ((4, 5, 6), 1), ((5, 70_001), 1)):
            yield reduced(f"{op} of {shape} along {axis}", reduction_operand(op, *shape), op, axis=axis)
            if operation.integers:
                x = reduction_operand(op, *shape, dtype="int32")
                yield reduced(f"{op} of int32 of {shape} along {axis}", x, op, axis=axis, resident=axis == 0)
        yield reduced(f"{op} of all", reduction_operand(op, 6, 50), op)
        yield reduced(f"{op}, keepdims", reduction_operand(op, 6, 50), op, axis=1, keepdims=True)
        yield reduced(f"{op} of float16", reduction_operand(op, 6, 50, dtype="float16"), op, axis=1)
        x = reduction_operand(op, 4, 9)
        x[1, 3], x[2, 2], x[3, 1] = NAN, INF, -INF
        yield reduced(f"{op} of NaN and infinities", x, op, axis=1)
    for op in ("sum", "max"):
        yield reduced(f"{op} of two axes", drawn(4, 5, 6), op, axis=(0, 2))
        for name, views in (
            ("transposed", (("transpose", ()),)),
            ("a slice", (("slice", (None, [1, 20, 3])),)),
            ("backwards", (("slice", (None, [None, None, -1])),)),
        ):
            yield reduced(f"{op} of {name}", drawn(30, 40), op, axis=0, views=views, resident=True)
    yield reduced("sum into float32", drawn(6, 50, dtype="float16"), "sum", axis=1, out_dtype="float32")
    yield reduced("sum of nothing", drawn(3, 0), "sum", axis=1)
    yield reduced("product of nothing", drawn(3, 0, dtype="int32"), "prod", axis=1)
    yield reduced("mean of nothing", drawn(3, 0), "mean", axis=1)
    yield reduced("sum of a number", drawn(), "sum")
    for name, x, options in (
        ("unknown reduction", X(drawn(3, 4)), {"op": "median"}),
        ("axis out of range", X(drawn(3, 4)), {"op": "sum", "axis": 2}),
        ("axis twice", X(drawn(3, 4)), {"op": "sum", "axis": (0, 0)}),
        ("maximum of nothing", X(drawn(3, 0)), {"op": "max", "axis": 1}),
        ("argmax of two axes", X(drawn(3, 4, 5)), {"op": "argmax", "axis": (0, 1)}),
        ("sum of integers", X(drawn(3, 4, dtype="int8")), {"op": "sum"}),
        ("sum into integers", X(drawn(3, 4)), {"op": "sum", "out_dtype": "int32"}),
        ("sum of int32 into floats", X(drawn(3, 4, dtype="int32")), {"op": "sum", "out_dtype": "float32"}),
        ("mean of int32", X(drawn(3, 4, dtype="int32")), {"op": "mean"}),
        ("logsumexp of int32", X(drawn(3, 4, dtype="int32")), {"op": "logsumexp", "axis": 0}),
        ("minimum of no integers", X(drawn(3, 0, dtype="int32")), {"op": "min", "axis": 1}),
        ("argmin of two axes", X(drawn(3, 4, 5, dtype="int32")), {"op": "argmin", "axis": (0, 1)}),
    ):
        yield Case(name, "reduce", (x,), options, error="ProblemError")


def reduction_operand(op: str, *shape: int, dtype: str = "float32") -> NDArray[Any]:
    """Return an operand for an operation; for products, values near 1 or odd integers, so that they do not become 0."""
    x = drawn(*shape, dtype=dtype)
    if dtype == "int32":
        return x | 1
    return np.exp(x / 16).astype(np.float16).astype(dtype) if op == "prod" else x


def reduced(name: str, x: NDArray[Any], op: str, *, views: Views = (), resident: bool = False, **options: Any) -> Case:
    """Return a case of `reduce()`."""
    given = X(x, views)
    axis = options.get("axis")
    seen = given.seen if x.dtype == np.int32 else given.seen.astype(np.float64)
    axes = (
        tuple(range(seen.ndim))
        if axis is None
        else tuple(a % seen.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))
    )
    others = [a for a in range(seen.ndim) if a not in axes]
    count = int(np.prod([seen.shape[a] for a in axes]))
    rows = seen.transpose(*others, *axes).reshape(*(seen.shape[a] for a in others), count)
    operation = OPERATIONS[op]
    with np.errstate(all="ignore"):
        if count:
            expected = operation.exact(rows)
            size = np.nansum(np.where(np.isfinite(rows), np.abs(rows), 0), axis=-1) + TINY["float32"]
        else:
            expected, size = np.full(rows.shape[:-1], operation.empty), np.ones(rows.shape[:-1])
    dtype = "int32" if operation.index else options.get("out_dtype", x.dtype.name)
    unit = size / max(count, 1) if op == "mean" else 16 + size / max(count, 1) if op == "logsumexp" else size
    allowed = unit * sum_bound(count) if operation.sums and x.dtype != np.int32 else np.zeros(expected.shape)
    if op == "prod" and x.dtype != np.int32:
        allowed = np.abs(np.nan_to_num(expected)) * product_bound(count) + TINY["float32"]
    if dtype == "float16":
        allowed = allowed + EPS["float16"] * np.abs(np.nan_to_num(expected, nan=0, posinf=0, neginf=0))
    if options.get("keepdims"):
        shape = tuple(1 if i in axes else n for i, n in enumerate(seen.shape))
        expected, allowed = expected.reshape(shape), np.reshape(allowed, shape)
    return Case(name, "reduce", (given,), {"op": op, **options}, expected, allowed, dtype, resident=resident)


def normalised() -> Iterator[Case]:
    """Yield softmax along any axis, and layer and RMS norms with weights."""
    for shape, axis in (((7, 300), -1), ((300, 7), 0), ((4, 5, 6), 1), ((3, 20_000), -1)):
        yield normalisation(f"softmax of {shape} along {axis}", "softmax", drawn(*shape), axis=axis)
    x = drawn(5, 9)
    x[1, 3], x[2, 2], x[3, 1] = NAN, INF, -INF
    yield normalisation("softmax of NaN and infinities", "softmax", x)
    yield normalisation("softmax of large numbers", "softmax", drawn(5, 9, scale=3000.0))
    yield normalisation("softmax of float16", "softmax", drawn(5, 40, dtype="float16"))
    yield normalisation("softmax of nothing", "softmax", drawn(0, 4))
    views: Views = (("transpose", ()),)
    yield normalisation("softmax of a transposed view", "softmax", drawn(30, 40), views=views, resident=True)
    for call in ("layer_norm", "rms_norm"):
        yield normalisation(f"{call}", call, drawn(7, 300))
        yield normalisation(f"{call} of a batch", call, drawn(2, 3, 64), weight=drawn(64), eps=0.5)
        yield normalisation(
            f"{call} of float16", call, drawn(5, 64, dtype="float16"), weight=drawn(64, dtype="float16")
        )
        yield normalisation(f"{call}, resident", call, drawn(5, 64), weight=drawn(64), resident=True)
    yield normalisation("layer_norm with both", "layer_norm", drawn(9, 130), weight=drawn(130), bias=drawn(130))
    yield Case(
        "weight of another length", "layer_norm", (X(drawn(3, 4)),), {"weight": X(drawn(3))}, error="ProblemError"
    )
    yield Case("softmax out of range", "softmax", (X(drawn(3, 4)),), {"axis": 5}, error="ProblemError")
    yield Case("softmax of integers", "softmax", (X(drawn(3, 4, dtype="uint8")),), error="ProblemError")
    yield Case("rms_norm has no bias", "rms_norm", (X(drawn(3, 4)),), {"bias": X(drawn(4))}, error="TypeError")


def normalisation(
    name: str, call: str, x: NDArray[Any], *, views: Views = (), resident: bool = False, **options: Any
) -> Case:
    """Return a case of a normalisation."""
    given = X(x, views)
    axis = options.get("axis", -1)
    rows = np.moveaxis(given.seen.astype(np.float64), axis, -1)
    dtype = x.dtype.name
    with np.errstate(all="ignore"):
        y = NORMALISATIONS[call].reference(rows, options.get("eps", 1e-5)) if x.size else rows
        y = y * options["weight"].astype(np.float64) if "weight" in options else y
        y = y + options["bias"].astype(np.float64) if "bias" in options else y
    expected = np.moveaxis(y, -1, axis)
    size = np.abs(np.nan_to_num(expected, nan=0, posinf=0, neginf=0))
    steep = 1 + np.abs(np.nan_to_num(given.seen.astype(np.float64), posinf=0, neginf=0)) if call == "softmax" else 4.0
    allowed = (sum_bound(rows.shape[-1]) * steep + EPS[dtype]) * (size + (call != "softmax")) + TINY[dtype] + 1e-38
    arrays = {k: X(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    return Case(name, call, (given,), arrays, expected, allowed, dtype, resident=resident)


def elements() -> Iterator[Case]:
    """Yield GELU in both forms."""
    x = np.concatenate([drawn(2000, scale=3.0), np.array([NAN, INF, -INF, 0.0, -0.0, 1e30, -1e30], np.float32)])
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        exact = np.where(wide == -INF, NAN, wide * 0.5 * (1 + np.vectorize(erf)(wide / np.sqrt(2))))
        exact = np.where(np.isneginf(wide), 0.0, exact)
    for approximate in (False, True):
        with np.errstate(all="ignore"):
            other = ACTIVATIONS["gelu_tanh"].reference(wide)
        y = np.where(np.isneginf(wide), 0.0, other) if approximate else exact
        allowed = 4e-6 * (1 + np.abs(np.nan_to_num(wide, posinf=0, neginf=0)))
        for resident in (False, True):
            yield Case(
                f"gelu, approximate={approximate}, resident={resident}",
                "gelu",
                (X(x[:2000].reshape(40, 50)),),
                {"approximate": approximate},
                y[:2000].reshape(40, 50),
                allowed[:2000].reshape(40, 50),
                resident=resident,
            )
    yield Case("gelu of integers", "gelu", (X(drawn(3, dtype="uint8")),), error="ProblemError")


def views() -> Iterator[Case]:
    """Yield arrays that are read back through views, of every type."""
    for dtype in ("float32", "float16", "float64", "int8", "uint8", "int32"):
        x = np.arange(-60, 60).astype(dtype).reshape(4, 5, 6)
        for name, seen in (
            ("all", ()),
            ("transposed", (("transpose", ()),)),
            ("matrices transposed", (("transpose", (0, 2, 1)),)),
            ("a part", (("slice", ([1, 3], None, [1, 6, 2])),)),
            ("backwards", (("slice", (None, [None, None, -1], [4, 0, -2])),)),
            ("a place", (("slice", (1, -1)),)),
            ("nothing", (("slice", ([3, 3],)),)),
            ("reshaped", (("reshape", (2, -1, 3)),)),
            ("repeated", (("slice", (0, [0, 1])), ("broadcast_to", (3, 5, 6)))),
        ):
            given = X(x, seen)
            yield Case(f"{dtype}: {name}", "read", (given,), expected=given.seen, dtype=dtype, resident=True)
    for name, wrong in (
        ("reshaped to another size", (("reshape", (7, 7)),)),
        ("reshaped without a copy", (("transpose", ()), ("reshape", (20, 6)))),
        ("broadcast to another shape", (("broadcast_to", (4, 5, 7)),)),
    ):
        yield Case(name, "read", (X(drawn(4, 5, 6), wrong),), error="ProblemError", resident=True)
    yield Case("freed", "freed", (X(drawn(2, 3)),), error="FreedArrayError", resident=True)
    yield Case(
        "freed operand", "matmul_freed", (X(drawn(2, 3)), X(drawn(3, 2))), error="FreedArrayError", resident=True
    )


def cases() -> list[Case]:
    """Return the table; the index of a case is its number."""
    columns = (views, products, float64_products, in_place, quantized, weights, reductions, normalised, elements)
    return [case for column in columns for case in column()]


# As JSON, and back


def as_json(case: Case) -> dict[str, Any]:
    """Return the data that another language needs for the call."""
    return {
        "call": case.call,
        "operands": [_plain(x) for x in case.operands],
        "options": {name: _plain(x) for name, x in case.options.items()},
        "resident": case.resident,
    }


def _plain(x: Any) -> Any:
    if not isinstance(x, X):
        return x
    data = {"dtype": x.data.dtype.name, "shape": x.data.shape, "base64": base64.b64encode(x.data.tobytes()).decode()}
    return {"array": data, "views": x.views}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: an array, or an error's name and message."""

    array: NDArray[Any] | None = None
    error: str = ""
    message: str = ""

    @classmethod
    def of_json(cls, row: dict[str, Any]) -> Outcome:
        """Return the outcome that another language wrote as JSON."""
        if "error" in row:
            return cls(error=row["error"], message=row["message"])
        return cls(np.frombuffer(base64.b64decode(row["base64"]), row["dtype"]).reshape(row["shape"]))


def check(case: Case, outcome: Outcome, python: bool = False) -> str:
    """Return a description of what is wrong with the outcome of a case, or ""."""
    expected_error = case.error if python else JAVASCRIPT_ERRORS.get(case.error, case.error)
    if expected_error or outcome.array is None:
        found = f"{outcome.error}: {outcome.message}" if outcome.error else "a result"
        if not expected_error:
            return found
        return "" if outcome.error == expected_error and outcome.message else f"{found}, not {expected_error}"
    got, expected = outcome.array, np.asarray(case.expected)
    if got.shape != expected.shape or got.dtype.name != case.dtype:
        return f"{got.dtype} of shape {got.shape}, not {case.dtype} of {expected.shape}"
    with np.errstate(all="ignore"):
        stored = expected.astype(case.dtype).astype(np.float64)
        actual = got.astype(np.float64)
        special = ~np.isfinite(stored)
        if not np.array_equal(actual[special], stored[special], equal_nan=True):
            return "NaN or infinities differ"
        error = np.abs(actual - expected)[~special]
        wrong = ~(error <= np.broadcast_to(case.allowed, expected.shape)[~special])
    return f"{int(wrong.sum())} elements are off, by up to {error.max(initial=0):.3g}" if wrong.any() else ""


def faults(outcomes: list[Outcome], table: list[Case], *, python: bool = False, float16: bool = True) -> dict[str, str]:
    """Return what is wrong, by case; devices without `float16` must refuse cases that need it."""
    wrong = {}
    for i, (case, outcome) in enumerate(zip(table, outcomes, strict=True)):
        refused = (
            case.needs_float16
            and not float16
            and outcome.error == "UnsupportedError"
            and "shader-f16" in outcome.message
        )
        if not refused and (said := check(case, outcome, python)):
            wrong[f"{i} {case.call}: {case.name}"] = said
    return wrong
