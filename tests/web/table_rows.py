"""The table of calls: reductions, normalisations and GELU."""

from __future__ import annotations

from collections.abc import Iterator
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.web.table_case import EPS, INF, NAN, RNG, TINY, Case, Views, X, drawn
from webmm.measure.verify import product_bound, sum_bound
from webmm.problems.normalise import NORMALISATIONS
from webmm.problems.reduce import OPERATIONS
from webmm.wgsl.epilogues import ACTIVATIONS


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
    truths = np.arange(210).reshape(7, 30) % 11 > 4
    for op, dtype in (("sum", "int32"), ("mean", "float32")):
        expected, allowed = getattr(truths, op)(axis=1), np.full(7, 1e-6 * (op == "mean"))
        for resident in (False, True):
            options, name = {"op": op, "axis": 1}, f"{op} of booleans"
            yield Case(name, "reduce", (X(truths),), options, expected, allowed, dtype, resident=resident)
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
    for call in NORMALISATIONS:  # refused by devices without float64, such as every browser's
        for resident in (False, True):
            yield normalisation(f"{call} of float64", call, RNG.standard_normal((3, 40)), resident=resident)
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
    rounding = sum_bound(rows.shape[-1]) * min(1.0, EPS[dtype] / EPS["float32"])  # float16 is summed in float32
    allowed = (rounding * steep + EPS[dtype]) * (size + (call != "softmax")) + TINY[dtype] + 1e-38
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
