"""8-bit products and products with quantised weights, in Tint's dialect: right in Chromium and in node on Dawn."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.web.dispatches import case, in_chromium, in_node, quarter, result
from webmm.arguments.quantized import integer_range
from webmm.dtypes import F32, I8, I32, U8, DType
from webmm.kernels.quantized.base import QuantizedKernel
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.kernels.weights.cpu_lanes import CpuLanes
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.measure.verify import bound, worst_error
from webmm.problems.product import Operand
from webmm.problems.quantized import describe
from webmm.problems.scheme import Scheme, reference
from webmm.problems.weights import WeightOnly, quantize_blocks

TILES = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 1}  # SwiftShader compiles these in a second
PRODUCTS = (Unpacked(4, 4), Packed(**TILES))
EMULATED = Packed(**TILES, dot="emulated")
DIVIDED = Packed(**TILES, splits=2)
WEIGHTED = (Vector(lanes=8, tm=2), Tiles(**TILES), Tiles(**TILES, splits=3), CpuLanes(4, 4, 8))
RAGGED, WORDS = (17, 35, 37), (20, 36, 64)  # not aligned; aligned to 4 and 16 bytes


def products() -> list[tuple[str, dict[str, Any], np.ndarray]]:
    """Return (label, case, expected) for signs, layouts, alignments, result dtypes, and scales per row and column."""
    variants: list[tuple[DType, DType, DType, tuple[int, int, int], bool, bool, bool]] = [
        *((U8, U8, U8, shape, t, t, False) for shape, t in itertools.product((RAGGED, WORDS), (False, True))),
        *((a, b, I32, RAGGED, False, False, False) for a, b in ((I8, I8), (U8, I8), (I8, U8))),
        *((U8, I8, out, RAGGED, False, True, True) for out in (I8, U8, I32, F32)),
    ]
    return [
        *(product(kernel, *each) for kernel, each in itertools.product(PRODUCTS, variants)),
        *(product(EMULATED, *each) for each in variants if each[2] == I32 and not each[-1]),
        *(product(DIVIDED, *each) for each in variants if each[-1]),
    ]


def product(
    kernel: QuantizedKernel,
    a_type: DType,
    b_type: DType,
    out: DType,
    shape: tuple[int, int, int],
    ta: bool,
    tb: bool,
    each: bool,
) -> tuple[str, dict[str, Any], np.ndarray]:
    """Return (label, case, expected) of one product; with `each`, scales and zero points differ per row and column."""
    rng, (m, n, k) = np.random.default_rng(0), shape
    a, b = (
        rng.integers(*integer_range(t), size, np.int16, endpoint=True).astype(t.numpy)
        for t, size in ((a_type, (m, k)), (b_type, (k, n)))
    )
    scheme = by_row_and_column(rng, m, n, a_type, b_type, out) if each else plain(k, out)
    left, right = (Operand(x.shape[0] if t else x.shape[1], transposed=t) for x, t in ((a, ta), (b, tb)))
    problem, terms = describe(m, n, k, (a_type, left), (b_type, right), scheme, out)
    names = (extent.name for extent in problem.buffers() if not extent.written)
    stored = (x.T.copy() if t else x for x, t in ((a, ta), (b, tb)))
    inputs = dict(zip(names, (*stored, *terms), strict=True))
    label = f"{kernel} {a_type.name} {b_type.name} to {out.name} {problem} {ta} {tb}"
    return label, case(kernel, problem, **inputs), reference(a, b, scheme, out)


def plain(k: int, out: DType) -> Scheme:
    scale_c = 60.0 * k**0.5 if out in (I8, U8) else None
    one, zero = np.ones((), np.float32), np.array(3, np.int32)
    return Scheme(one, zero, one, zero, scale_c, 5 if scale_c else 0, None)


def by_row_and_column(rng: np.random.Generator, m: int, n: int, a: DType, b: DType, out: DType) -> Scheme:
    scales = (rng.uniform(0.5, 1.5, count).astype(np.float32) for count in (m, n))
    zeros = (rng.integers(*integer_range(t), count, np.int32) for t, count in ((a, m), (b, n)))
    (scale_a, scale_b), (zero_a, zero_b) = scales, zeros
    bias = rng.integers(-1000, 1000, n, np.int32)
    return replace(plain(37, out), scale_a=scale_a, zero_a=zero_a, scale_b=scale_b, zero_b=zero_b, bias=bias)


def weight_products() -> list[tuple[str, dict[str, Any], Any]]:
    """Return (label, case, operands) of products with weights of every bit width and block size."""
    rng = np.random.default_rng(1)
    found = []
    for kernel, bits, block, (m, n, k) in itertools.product(WEIGHTED, (8, 4), (32, 128), ((3, 33, 65), (8, 64, 128))):
        a, w = (rng.random(shape, np.float32) - np.float32(0.5) for shape in ((m, k), (k, n)))
        weights = quantize_blocks(w, bits, block)
        problem = WeightOnly(m, n, k, F32, F32, Operand(k), bits, block)
        inputs = dict(zip(("a", "b", "scales", "zeros"), (a, *weights.parts), strict=True))
        operands = (problem, a, weights.dequantize())
        found.append((f"{kernel} {bits} bits by {block} {problem}", case(kernel, problem, **inputs), operands))
    return found


def judge(run: Any, which: int) -> None:
    exact, rounded = quarter(products(), which), quarter(weight_products(), which)
    outcome = run([each for _, each, _ in (*exact, *rounded)])
    results = iter(outcome["results"])
    for label, _, expected in exact:
        got = result(next(results), expected.dtype, expected.shape, label)
        if expected.dtype == np.float32:
            np.testing.assert_allclose(got, expected, rtol=2.0**-23, err_msg=label)
        else:
            np.testing.assert_array_equal(got, expected, err_msg=label)
    for label, _, (problem, a, w) in rounded:
        got = result(next(results), np.float32, (problem.m, problem.n), label)
        assert worst_error(got, a, w) <= bound(problem), label


def test_quantised_products_in_node(node_modules: Path, node, tmp_path: Path) -> None:
    judge(lambda cases: in_node(node, node_modules, tmp_path, cases), 0)


def test_quantised_products_in_chromium(page) -> None:
    judge(lambda cases: in_chromium(page, cases), 2)
