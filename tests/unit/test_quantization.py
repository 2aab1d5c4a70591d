"""The quantisation scheme against exact rational arithmetic; `quantize`, `dequantize`; refused arguments."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import webmm
from webmm.dtypes import dtype_of
from webmm.errors import ProblemError
from webmm.problems.scheme import (
    FixedPoint,
    Scheme,
    checked_bias,
    checked_scale,
    checked_zero,
    dequantize,
    quantize,
    reference,
)

U8, I8, I32 = (dtype_of(name) for name in ("uint8", "int8", "int32"))
floats = st.floats(2.0**-100, 2.0**100)
sums = st.integers(-(2**31), 2**31 - 1)


def fixed(value):
    return FixedPoint.of(np.array([value], np.float64))


def exactly(x):
    """Return a FixedPoint of one element as a fraction."""
    return Fraction(int(x.mantissa[0])) / Fraction(2) ** int(x.shift[0])


@given(floats)
@example(1.0)
@example(np.nextafter(1.0, 0.0))  # rounds up to one bit more
@example(1 + 2.0**-31)  # half a unit in the last place
def test_fixed_point_has_31_bits_rounded_halves_up(value):
    found = fixed(value)
    assert 2**30 <= found.mantissa[0] < 2**31
    step = Fraction(1) / Fraction(2) ** int(found.shift[0])
    error = exactly(found) - Fraction(value)
    assert -step / 2 < error <= step / 2


@given(floats, floats)
@example(1.4142135623730951, 1.4142135623730951)
@example(np.nextafter(2.0, 0.0), np.nextafter(2.0, 0.0))
def test_products_of_fixed_points_have_31_bits_rounded_halves_up(x, y):
    x, y = fixed(x), fixed(y)
    product = x * y
    assert 2**30 <= product.mantissa[0] < 2**31
    error = exactly(product) - exactly(x) * exactly(y)
    step = Fraction(1) / Fraction(2) ** int(product.shift[0])
    assert -step / 2 <= error <= step / 2


@given(sums, st.floats(2.0**-31, 2.0**29))
@example(-1, 0.5)
@example(1, 0.5)
@example(-3, 0.5)
@example(2**31 - 1, 2.0**-31)
@example(-(2**31), 2.0**-31)
def test_scaling_rounds_once_and_halves_up(total, multiplier):
    m = fixed(multiplier).clamped()
    assert m.scale(np.array([total]))[0] == floor(total * exactly(m) + Fraction(1, 2))


def test_shifts_are_clamped():
    tiny, huge = fixed(2.0**-40).clamped(), fixed(2.0**40).clamped()
    ends = np.array([-(2**31), -1, 0, 1, 2**31 - 1])
    assert tiny.scale(ends).tolist() == [0] * 5
    assert (np.sign(huge.scale(ends)) == np.sign(ends)).all()
    assert (np.abs(huge.scale(ends))[ends != 0] >= 2**29).all()


def scheme(scale_a, zero_a, scale_b, zero_b, scale_c, zero_c):
    scales = (np.asarray(x, np.float32) for x in (scale_a, scale_b))
    (sa, sb), za, zb = scales, np.asarray(zero_a, np.int32), np.asarray(zero_b, np.int32)
    return Scheme(sa, za, sb, zb, scale_c, zero_c, None)


def test_reference_agrees_with_real_arithmetic():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (5, 40)).astype(np.uint8), rng.integers(-128, 128, (40, 6)).astype(np.int8)
    rows, columns = rng.random(5) + 0.1, rng.random(6) + 0.1
    for scale_a, scale_b in ((0.5, 0.25), (rows, 0.25), (0.5, columns), (rows, columns)):
        s = scheme(scale_a, 7, scale_b, -9, 60.0, 3)
        real = dequantize(a, s.scale_a, 7, axis=0 if s.by_row else None).astype(float) @ dequantize(
            b, s.scale_b, -9, axis=1 if s.by_column else None
        )
        assert np.abs(reference(a, b, s, I8) - np.clip(real / 60 + 3, -128, 127)).max() <= 0.501


def test_reference_saturates_at_both_ends():
    a, b = np.array([[127], [-128]], np.int8), np.array([[127, -128]], np.int8)
    assert reference(a, b, scheme(1, 0, 1, 0, 100.0, 0), I8).tolist() == [[127, -128], [-128, 127]]
    assert reference(a, b, scheme(1, 0, 1, 0, 100.0, 5), U8).tolist() == [[166, 0], [0, 169]]


# quantize, dequantize


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantize_rounds_within_a_step_and_keeps_zero(dtype, symmetric, axis):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((30, 40)) * 10
    x[3, 4] = 0
    q, scale, zero = quantize(x, dtype, axis, symmetric)
    assert (q.dtype, scale.dtype, zero.dtype) == (np.dtype(dtype), np.float32, np.int32)
    assert scale.shape == zero.shape == (() if axis is None else (x.shape[axis],))
    back = dequantize(q, scale, zero, axis)
    assert back.dtype == np.float32
    assert back[3, 4] == 0
    assert np.abs(back - x).max() <= scale.max() * (0.5001 if symmetric else 1.0001)
    if symmetric:
        assert (zero == (128 if dtype == "uint8" else 0)).all()


@pytest.mark.parametrize("x", [np.zeros((3, 4)), np.full(5, 3.0), np.full(5, -3.0), np.float32(2), np.zeros((0, 3))])
@pytest.mark.parametrize("symmetric", [False, True])
def test_quantize_of_constants(x, symmetric):
    q, scale, zero = quantize(x, "int8", symmetric=symmetric)
    assert scale > 0
    assert np.allclose(dequantize(q, scale, zero), x, atol=0.01)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_weights_without_elements(shape):
    for bits in (4, 8):
        assert webmm.quantize_blocks(np.zeros(shape, np.float32), bits).dequantize().shape == shape


def test_quantize_uses_the_whole_integer_range():
    q, scale, zero = quantize(np.linspace(-1, 3, 256))
    assert (q.min(), q.max()) == (0, 255)
    assert (float(scale), int(zero)) == (pytest.approx(4 / 255), 64)
    assert quantize([1e-45, 0.0])[0].tolist() == [0, 0]  # too small to divide by


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: quantize([np.nan]), "x contains NaN or infinity"),
        (lambda: quantize([np.inf]), "x contains NaN or infinity"),
        (lambda: quantize([1.0], "int16"), "dtype int16 is not supported"),
        (lambda: quantize([1.0], "float32"), "cannot quantise to dtype float32; use uint8 or int8"),
        (lambda: quantize(np.ones((2, 3)), axis=2), r"axis 2 is out of range for an array of shape \(2, 3\)"),
        (lambda: dequantize([0.5], 1.0), "q is float32; quantised values must be integers"),
        (lambda: dequantize(np.ones((2, 3), int), [1.0, 2.0], axis=1), r"scale has shape \(2,\); .* each of 3"),
        (lambda: dequantize(np.ones((2, 3), int), 1.0, [1, 2], axis=1), "zero has 2 elements; it must have 1 or 3"),
        (lambda: checked_scale("scale_a", 0.0, 3), "scale_a must be positive and finite in float32, not 0.0"),
        (lambda: checked_scale("scale_a", -1.0, 3), "scale_a must be positive and finite in float32, not -1.0"),
        (lambda: checked_scale("scale_a", np.nan, 3), "scale_a must be positive and finite in float32, not nan"),
        (lambda: checked_scale("scale_b", [1, np.inf], 2), "scale_b must be positive and finite in float32, not inf"),
        (lambda: checked_scale("scale_b", 1e-60, 2), "scale_b must be positive and finite in float32, not 0.0"),
        (lambda: checked_scale("scale_b", 1e60, 2), "scale_b must be positive and finite in float32, not inf"),
        (lambda: checked_scale("scale_b", [1.0, 2.0], 3), r"scale_b has shape \(2,\); it must be a number, or one for"),
        (lambda: checked_scale("scale_b", np.ones((2, 2)), 4), r"scale_b has shape \(2, 2\)"),
        (lambda: checked_scale("scale_b", "wide", 3), "scale_b is <U4; scales must be numbers"),
        (lambda: checked_zero("zero_a", 256, 3, U8), "zero_a must be from 0 to 255 for uint8, not 256"),
        (lambda: checked_zero("zero_a", [0, -129], 2, I8), "zero_a must be from -128 to 127 for int8, not -129"),
        (lambda: checked_zero("zero_a", 1.0, 3, U8), "zero_a is float64; zero points must be integers"),
        (lambda: checked_zero("zero_a", [1, 2], 3, U8), r"zero_a has shape \(2,\)"),
        (lambda: checked_bias(np.zeros(3), 3), "bias is float64; it must be int32, in steps of scale_a·scale_b"),
        (lambda: checked_bias(np.zeros(2, np.int32), 3), r"bias has shape \(2,\); it must be \(3,\), one per column"),
    ],
)
def test_invalid_arguments_are_refused(call, words):
    with pytest.raises(ProblemError, match=words):
        call()


def test_a_sum_that_may_overflow_is_refused_with_the_longest_k():
    def check(k, zero_a, zero_b, dtype, bias=None):
        given = None if bias is None else np.array([bias], np.int32)
        Scheme(np.float32(1), np.int32(zero_a), np.float32(1), np.int32(zero_b), None, 0, given).check(k, dtype, dtype)

    check(33_025, 0, 255, U8)
    with pytest.raises(ProblemError, match=r"k = 33,026 products may overflow 32 bits; the largest safe k is 33,025"):
        check(33_026, 0, 255, U8)
    check(131_071, 128, 128, U8)
    check(131_071, 0, 0, I8)
    with pytest.raises(ProblemError, match="largest safe k is 131,071"):
        check(131_072, 0, 0, I8)
    with pytest.raises(ProblemError, match=r"and bias a sum of k = 1 .* largest safe k is 0"):
        check(1, 0, 0, U8, 2**31 - 1)


# The call


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a": np.zeros((2, 3), np.float32)}, "a is float32; quantised operands must be uint8 or int8"),
        ({"b": np.zeros((3, 4), np.int32)}, "b is int32; quantised operands must be uint8 or int8"),
        ({"b": np.zeros((4, 4), np.int8)}, r"a \(2, 3\) and b \(4, 4\) do not fit: the inner sizes 3 and 4 differ"),
        ({"a": np.zeros(3, np.int8)}, r"quantised products take matrices, not arrays of shapes \(3,\) and \(3, 4\)"),
        ({"scale_a": [1.0, 2.0, 3.0]}, r"scale_a has shape \(3,\); it must be a number, or one for each of 2"),
        ({"zero_b": [1, 2]}, r"zero_b has shape \(2,\); it must be a number, or one for each of 4"),
        ({"scale_b": 0.0}, "scale_b must be positive and finite"),
        ({"scale_c": -1.0}, "scale_c must be positive and finite"),
        ({"scale_c": 1.0, "zero_c": 128}, "zero_c must be from -128 to 127 for int8, not 128"),
        ({"zero_c": 1}, "out_dtype float32 is not requantised; omit zero_c"),
        ({"out_dtype": "int32", "scale_c": 1.0}, "out_dtype int32 is not requantised; omit scale_c"),
        ({"out_dtype": "uint8"}, "out_dtype uint8 needs scale_c, the scale of the result"),
        ({"out_dtype": "float16"}, "out_dtype float16 is not supported; choose int8, uint8, int32 or float32"),
        ({"bias": np.zeros(3, np.int32)}, r"bias has shape \(3,\); it must be \(4,\)"),
    ],
)
def test_qmatmul_refuses(changes, words):
    given = {"a": np.zeros((2, 3), np.int8), "b": np.zeros((3, 4), np.int8), "scale_a": 1, "zero_a": 0}
    given |= {"scale_b": 1, "zero_b": 0} | changes
    a, b = given.pop("a"), given.pop("b")
    with pytest.raises(ProblemError, match=words):
        webmm.qmatmul(a, b, given.pop("scale_a"), given.pop("zero_a"), **given)
