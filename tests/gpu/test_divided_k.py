"""k divided among workgroups, for 8-bit integers and block weights: every part is added once, whatever its length."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.gpu.test_quantized import F32, I8, I32, PAIRS, U8, check, draw, scheme_of
from tests.gpu.test_weights import check as check_weights
from tests.gpu.test_weights import random_weights
from tests.sampled import covered, crossed
from webmm.arguments.quantized import integer_range
from webmm.cases import op_of
from webmm.errors import UnsupportedError
from webmm.kernels.quantized.packed import Packed, SumSplits
from webmm.kernels.weights.tiles import Tiles
from webmm.measure import selftest

# Numbers of parts whose sums one, four and sixteen invocations add; steps that the parts share evenly, and not.
PACKED = Packed(bm=32, bn=32, bk=8, tm=4, tn=4, unroll=1)
WEIGHTS = Tiles(bm=32, bn=32, bk=8, tm=4, tn=4, unroll=1)
STEP = PACKED.inner_step

PARTS = [(2, 1), (7, 1), (13, 4), (37, 16)]


@pytest.mark.parametrize(("parts", "size"), crossed(PARTS, [(64, 32), (33, 39)]), ids=str)
def test_integers(device, parts, size):
    (splits, adders), (m, n) = parts, size
    assert SumSplits(splits).adders == adders
    rng = np.random.default_rng(splits)
    kernel = dataclasses.replace(PACKED, splits=splits)
    for k in (splits * STEP, splits * STEP + 1, (2 * splits - 1) * STEP - 3):
        a, b = draw(rng, (m, k), U8), draw(rng, (k, n), I8)
        check(device, kernel, a, b, scheme_of(0.02, 9, 0.03, -4, 40.0, 5), I8)


@pytest.mark.parametrize(("pair", "out"), covered(itertools.product(PAIRS, [I8, U8, F32, I32])), ids=str)
def test_zero_points_and_scales(device, pair, out):
    a_dtype, b_dtype = pair
    rng = np.random.default_rng(1)
    kernel, (m, n, k) = dataclasses.replace(PACKED, splits=3), (34, 37, 5 * STEP + 6)
    a, b = draw(rng, (m, k), a_dtype), draw(rng, (k, n), b_dtype)
    rows, columns, bias = np.linspace(0.1, 0.2, m), np.linspace(0.5, 2, n), rng.integers(-(2**20), 2**20, n)
    zeros = [(x, y) for x, y in zip(integer_range(a_dtype), integer_range(b_dtype), strict=True)]
    zeros += [(0, 0), (draw(rng, m, a_dtype), 3), (5, draw(rng, n, b_dtype))]
    requantised = {"scale_c": 30.0, "zero_c": 7} if out in (I8, U8) else {}
    for zero_a, zero_b in zeros:
        check(device, kernel, a, b, scheme_of(rows, zero_a, columns, zero_b, **requantised, bias=bias), out)
    check(device, kernel, a, b, scheme_of(0.1, 0, 0.2, 0, **requantised), out)


@pytest.mark.parametrize("layout", ["nt", "tn", "tt"])
def test_layouts(device, layout):
    rng = np.random.default_rng(2)
    a, b = draw(rng, (40, 4 * STEP - 1), I8), draw(rng, (4 * STEP - 1, 35), U8)
    ta, tb = (x == "t" for x in layout)
    kernel = dataclasses.replace(PACKED, splits=4)
    for pads, offsets in (((0, 0), (0, 0)), ((1, 3), (2, 1))):
        check(device, kernel, a, b, scheme_of(1, 3, 1, 200), I32, ta=ta, tb=tb, pads=pads, offsets=offsets)


def test_sums_may_overflow_in_between(device):
    k = 33_000  # the sum of all parts is near the largest int32, and the terms of the zero points are beyond it
    a, b = np.full((1, k), -128, np.int8), np.full((k, 2), 0, np.uint8)
    check(device, dataclasses.replace(PACKED, splits=16), a, b, scheme_of(zero_a=127, zero_b=255), I32)


@pytest.mark.parametrize(("parts", "bits"), crossed(PARTS, [4, 8]), ids=str)
def test_weights(device, parts, bits):
    splits, adders = parts
    rng = np.random.default_rng(splits)
    kernel = dataclasses.replace(WEIGHTS, splits=splits)
    assert kernel.after[0].adders == adders
    for m, n, k in ((32, 32, 8 * splits), (35, 37, 16 * splits - 11)):
        x = rng.standard_normal((m, k)).astype(np.float32)
        check_weights(device, kernel, x, random_weights(rng, k, n, bits, 32))


@pytest.mark.parametrize(
    ("kernel", "splits"), [(PACKED, 4), (PACKED, 64), (WEIGHTS, 2), (WEIGHTS, 16)], ids=lambda x: getattr(x, "op", x)
)
@pytest.mark.parametrize("size", [(33, 36, 40_001), (32, 64, 32_768)])
def test_the_self_test_runs_the_same_shaders(device, kernel, splits, size):
    divided, problem = (
        dataclasses.replace(kernel, splits=splits),
        op_of(kernel.op).problem(size, next(iter(op_of(kernel.op).dtypes)).name),
    )
    small = next(selftest.stand_ins(divided, problem, device))
    assert small.k < problem.k
    assert selftest.prove(divided, small, device) == ""


def test_every_part_has_a_step(device):
    rng, integers, weights = np.random.default_rng(3), *(dataclasses.replace(x, splits=5) for x in (PACKED, WEIGHTS))
    a, b = draw(rng, (4, 4 * STEP), I8), draw(rng, (4 * STEP, 4), I8)
    with pytest.raises(UnsupportedError, match=f"needs 5 parts of k, at least {STEP} each; k = {4 * STEP}"):
        check(device, integers, a, b, scheme_of(), I32)
    with pytest.raises(UnsupportedError, match="needs 5 parts of k, at least 8 each; k = 32 "):
        check_weights(device, weights, np.ones((4, 32), np.float32), random_weights(rng, 32, 4, 8, 32))
