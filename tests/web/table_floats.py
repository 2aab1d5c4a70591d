"""The table of calls: products of float32, float16 and float64, and updates in place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.web.table_case import EPS, INF, NAN, RNG, TINY, Case, X, drawn
from webmm.wgsl.epilogues import ACTIVATIONS


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
    yield from float64_extremes()
    near_one = np.exp(x / 100)
    yield Case("float64: prod", "reduce", (X(near_one),), {"op": "prod"}, near_one.prod(), 1e-12, "float64")
    options = {"op": "logsumexp", "axis": 1}
    yield Case("float64: logsumexp", "reduce", (X(x),), options, np.log(np.exp(x).sum(1)), 1e-13, "float64")
    options = {"op": "sum", "out_dtype": "float32"}
    yield Case("float64: sum into float32", "reduce", (X(x),), options, error="ProblemError")


def float64_extremes() -> Iterator[Case]:
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
