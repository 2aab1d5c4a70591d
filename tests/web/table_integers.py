"""The table of calls: products of 8-bit integers, and products with quantised weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.web.table_case import EPS, NAN, Case, X, drawn
from webmm.dtypes import dtype_of
from webmm.problems.scheme import Scheme as Quantisation
from webmm.problems.scheme import checked_scale, checked_zero, reference
from webmm.problems.weights import quantize_blocks


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
    for resident in (False, True):
        yield by_matrix(resident)
    none = drawn(3, 0, dtype="uint8"), drawn(0, 5, dtype="int8")
    yield quantized_product("bytes without terms", *none, "int32", bias=np.arange(5, dtype=np.int32))
    given = {"scale_a": 1.0, "zero_a": 0, "scale_b": 1.0, "zero_b": 0}
    for name, operands, options in (
        ("bytes of floats", (X(drawn(3, 4)), X(drawn(4, 5))), {}),
        ("scale of 0", (X(a), X(b)), {"scale_a": 0.0}),
        ("zero point out of range", (X(a), X(b)), {"zero_a": 256}),
        ("fractional zero point", (X(a), X(b)), {"zero_b": 0.5}),
        ("scales of another batch", (X(a), X(b)), {"scale_a": X(np.ones((2, 9, 1), np.float32))}),
        ("sums beyond int32", (X(a), X(b)), {"bias": X(np.full(12, 2**31 - 1, np.int32))}),
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


def by_matrix(resident: bool) -> Case:
    """Return a case of `qmatmul()` with scales and zero points for each matrix of a batch, some of which broadcast."""
    a, b = drawn(2, 3, 5, 8, dtype="uint8"), drawn(3, 8, 4, dtype="int8")
    scales = np.array([0.5, 1, 2], np.float32)
    options = {
        "scale_a": scales[np.arange(30) % 3].reshape(2, 3, 5, 1),
        "zero_a": np.arange(3, dtype=np.int32).reshape(3, 1, 1) * np.ones((5, 1), np.int32),
        "scale_b": scales[np.arange(12) % 3].reshape(3, 1, 4),
        "zero_b": -3,
    }
    left, right = options["scale_a"] * (a - options["zero_a"].astype(float)), options["scale_b"] * (b + 3.0)
    given = {name: X(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
    return Case("by matrix", "qmatmul", (X(a), X(b)), given, left @ right, 0.0, resident=resident)


def weights() -> Iterator[Case]:
    """Yield products with quantised weights; each language quantises them itself."""
    for bits, block in ((4, 32), (4, 128), (8, 32), (8, 128)):
        yield with_weights(f"{bits} bits in blocks of {block}", drawn(5, 200), drawn(200, 24), bits=bits, block=block)
    yield with_weights("symmetric", drawn(33, 64), drawn(64, 40), symmetric=True)
    yield with_weights("a row", drawn(100), drawn(100, 40))
    yield with_weights("a batch", drawn(2, 3, 64), drawn(64, 16))
    yield with_weights("resident", drawn(6, 64), drawn(64, 16), resident=True)
    none = X(drawn(3, 0)), X(drawn(0, 8))
    for resident in (False, True):
        zeros = np.zeros((3, 8), np.float32)
        yield Case("no terms", "qmatmul_weights", none, {"activation": "gelu"}, zeros, resident=resident)
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
