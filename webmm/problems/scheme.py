"""The quantisation scheme of 8-bit and 4-bit integers, and the reference of their products in NumPy.

An integer q represents ``scale·(q - zero)`` (Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, CVPR 2018, §2.1). A product sums ``(a - zero_a)·(b - zero_b)`` in 32-bit integers,
exactly, and multiplies the sum by ``M = scale_a·scale_b/scale_c``, without floating point: M, in float64, is rounded
to ``mantissa·2^-shift`` with a mantissa of 31 bits, halves up; the result is ``floor(sum·mantissa·2^-shift + 1/2)``:
a single rounding of the exact 64-bit product, halves up. This is TFLite's scheme in its single-rounding form
(MultiplyByQuantizedMultiplier with TFLITE_SINGLE_ROUNDING); gemmlowp's older scheme rounds twice and can differ by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from webmm.arguments.arrays import host_array
from webmm.arguments.quantized import (
    check_integer_bias,
    check_length,
    check_sums,
    furthest,
    integer_range,
    wrong_scale,
    wrong_zero,
)
from webmm.dtypes import BYTES, I32, DType, dtype_of
from webmm.errors import ProblemError

MANTISSA_BITS = 31
LEAST_SCALE, GREATEST_SCALE = 2.0**-149, (2 - 2.0**-23) * 2.0**127  # positive and finite in float32
MAX_SHIFT = 62  # the product of a 32-bit sum and a 31-bit mantissa has 62 bits and a sign

Integers = NDArray[Any]
Numbers = NDArray[Any]


# Numbers → integers → numbers


def quantize(
    x: ArrayLike, dtype: DTypeLike = "uint8", axis: int | None = None, symmetric: bool = False
) -> tuple[Integers, NDArray[np.float32], Integers]:
    """Return (q, scale, zero) such that ``scale·(q - zero)`` is nearest to `x`, for `qmatmul()`.

    Arguments:

    - `x`: an array of finite floats.
    - `dtype`: uint8 or int8. The range of x, extended to include 0, is mapped to the whole range of the dtype; 0 is
      represented exactly.
    - `axis`: with an axis, each index along it has its own scale and zero point: 0 for one per row of a matrix, 1 for
      one per column. By default there is one for the whole array.
    - `symmetric`: map -max|x| to max|x| in 254 steps, with `zero` in the middle: 0 for int8, 128 for uint8.

    Returns `q` of `dtype` and of the shape of `x`, `scale` in float32 and `zero` in int32, 0-D or 1-D along `axis`.

    Raises ProblemError for another dtype, an axis that `x` does not have, and NaN or infinity in `x`.

    Example: ``w_q, scale, zero = webmm.quantize(w, "int8", axis=1)``
    """
    target = _byte_type(dtype)
    host = host_array(x).astype(np.float32, copy=False)
    if not np.isfinite(host).all():
        raise ProblemError("x contains NaN or infinity, which cannot be quantised")
    q, scale, zero = spread(host, _other_axes(host, axis), *integer_range(target), symmetric)
    shape = () if axis is None else (host.shape[axis],)
    return q.astype(target.numpy), scale.reshape(shape), zero.reshape(shape)


def spread(
    x: NDArray[np.float32], axes: tuple[int, ...], bottom: int, top: int, symmetric: bool
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """Return (q, scale, zero) as `quantize()`, with q from `bottom` to `top`; elements along `axes` share a scale."""
    low, high = (f(x, axis=axes, initial=0.0, keepdims=True).astype(np.float64) for f in (np.min, np.max))
    if symmetric:
        middle = (bottom + top + 1) // 2
        scale = _positive(np.maximum(high, -low) / (top - middle))
        zero = np.full(scale.shape, middle, np.int32)
        bottom = middle - (top - middle)
    else:
        scale = _positive((high - low) / (top - bottom))
        zero = np.clip(np.rint(bottom - low / scale), bottom, top).astype(np.int32)
    steps = np.rint(x / scale.astype(np.float64)) + zero
    return np.clip(steps, bottom, top).astype(np.int32), scale, zero


def _positive(scale: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the scale in float32, replaced by 1 if it is 0 or subnormal, since all of x is then 0 or close to it."""
    rounded: NDArray[np.float32] = np.array(scale, np.float32)
    rounded[rounded < np.finfo(np.float32).tiny] = 1.0
    return rounded


def dequantize(q: ArrayLike, scale: ArrayLike, zero: ArrayLike = 0, axis: int | None = None) -> NDArray[np.float32]:
    """Return ``scale·(q - zero)`` in float32, of the shape of `q`.

    - `q`: an array of integers.
    - `scale`, `zero`: numbers, or one value for each index along `axis`, as returned by `quantize()`.

    Raises ProblemError if `q` or `zero` does not contain integers, or if the lengths of `scale` and `zero` are not the
    length of the axis.
    """
    host = host_array(q)
    if host.dtype.kind not in "iu":
        raise ProblemError(f"q is {host.dtype}; quantised values must be integers")
    _other_axes(host, axis)
    length = 1 if axis is None else host.shape[axis]
    scales, zeros = checked_scale("scale", scale, length), np.asarray(zero)
    if zeros.dtype.kind not in "iu":
        raise ProblemError(f"zero is {zeros.dtype}; zero points must be integers")
    if zeros.size not in (1, length):
        raise ProblemError(f"zero has {zeros.size} elements; it must have 1 or {length}")
    steps = (host.astype(np.int64) - _along(zeros.astype(np.int64), host, axis)).astype(np.float32)
    numbers: NDArray[np.float32] = steps * _along(scales, host, axis)
    return numbers


def _byte_type(dtype: DTypeLike) -> DType:
    target = dtype_of(dtype)
    if target not in BYTES:
        raise ProblemError(f"cannot quantise to dtype {target.name}; use uint8 or int8")
    return target


def _other_axes(x: NDArray[Any], axis: int | None) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    if not -x.ndim <= axis < x.ndim:
        raise ProblemError(f"axis {axis} is out of range for an array of shape {x.shape}")
    return tuple(i for i in range(x.ndim) if i != axis % x.ndim)


def _along(values: NDArray[Any], x: NDArray[Any], axis: int | None) -> NDArray[Any]:
    """Return `values` in a shape that broadcasts along `axis` of x."""
    if axis is None or values.size == 1:
        return values.reshape(())
    shape = [1] * x.ndim
    shape[axis] = -1
    return values.reshape(shape)


# Checks of scales, zero points and bias


def checked_scale(name: str, scale: ArrayLike, length: int) -> Numbers:
    """Return `scale` in float32, 0-D or 1-D of `length`; raises ProblemError for an invalid shape, dtype or value."""
    values = _vector(name, scale, length, False)
    wrong = first_outside(values, LEAST_SCALE, GREATEST_SCALE)
    if wrong is not None:
        raise wrong_scale(name, wrong)
    return values


def checked_zero(name: str, zero: ArrayLike, length: int, dtype: DType) -> Numbers:
    """Return `zero` in int64, 0-D or 1-D of `length`; raises ProblemError for values outside the range of `dtype`."""
    values = _vector(name, zero, length, True)
    wrong = first_outside(values, *integer_range(dtype))
    if wrong is not None:
        raise wrong_zero(name, wrong, dtype)
    return values


def checked_bias(bias: Numbers, length: int) -> Numbers:
    """Return `bias`, int32, 1-D of `length`; raises ProblemError for another shape or dtype."""
    check_integer_bias(name_of_dtype(bias), bias.shape, length)
    return bias


def _vector(name: str, given: ArrayLike, length: int, whole: bool) -> Numbers:
    values = numbers_of(given)
    check_length(name, values.shape, values.size, length)
    return vector(name, values, whole)


# What the checks do with arrays; JavaScript has its own versions of these (`web/calls/scheme.js`)


def numbers_of(x: ArrayLike) -> Numbers:
    """Return numbers as an array, as precise as they are given."""
    return np.asarray(x)


def name_of_dtype(x: Numbers) -> str:
    """Return the name of the type of an array's elements, also of one that no kernel supports."""
    return str(x.dtype.name)


def vector(name: str, x: Numbers, whole: bool) -> Numbers:
    """Return scales in float32, or zero points, which are `whole`, in int64: 0-D for a single one, else 1-D.

    Raises ProblemError for other dtypes.
    """
    kinds, rule = ("iu", "zero points must be integers") if whole else ("fiu", "scales must be numbers")
    if x.dtype.kind not in kinds:
        raise ProblemError(f"{name} is {x.dtype}; {rule}")
    with np.errstate(over="ignore"):
        return x.reshape(() if x.size == 1 else -1).astype(np.int64 if whole else np.float32)


def first_outside(x: Numbers, least: float, greatest: float) -> Any:
    """Return the first number that is not from `least` to `greatest`, such as NaN, or None if there is none."""
    wrong = ~((least <= x) & (x <= greatest))
    return x[wrong][0] if wrong.any() else None


def extremes(x: Numbers, least: int, greatest: int) -> tuple[int, int]:
    """Return the least and the greatest of these integers and of the numbers in `x`."""
    return int(np.min(x, initial=least)), int(np.max(x, initial=greatest))


def single(x: Numbers) -> Any:
    """Return the number in an array without axes, or None for one with axes."""
    return None if x.ndim else x.item()


# Fixed point


@dataclass(frozen=True)
class FixedPoint:
    """Numbers ``mantissa·2^-shift``, with mantissas of 31 bits whose highest bit is set."""

    mantissa: NDArray[np.int64]
    shift: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> FixedPoint:
        """Round positive numbers to 31 bits, halves up."""
        fraction, exponent = np.frexp(values)
        mantissa = np.floor(np.ldexp(fraction, MANTISSA_BITS) + 0.5).astype(np.int64)
        return cls(mantissa, MANTISSA_BITS - exponent.astype(np.int64))._normalised()

    def _normalised(self) -> FixedPoint:
        carried = self.mantissa == 2**MANTISSA_BITS  # rounding has carried into bit 32
        return FixedPoint(np.where(carried, self.mantissa // 2, self.mantissa), self.shift - carried)

    def __mul__(self, other: FixedPoint) -> FixedPoint:
        """Return the products, rounded to 31 bits, halves up."""
        product = self.mantissa * other.mantissa  # 61 or 62 bits
        surplus = np.where(product >= 2**61, 31, 30)
        mantissa = (product + (np.int64(1) << (surplus - 1))) >> surplus
        return FixedPoint(mantissa, self.shift + other.shift - surplus)._normalised()

    def clamped(self) -> FixedPoint:
        """Clamp shifts to 1..62: with a larger shift every sum becomes 0, with a smaller one all but 0 saturate."""
        return FixedPoint(np.where(self.shift > MAX_SHIFT, 0, self.mantissa), np.clip(self.shift, 1, MAX_SHIFT))

    def scale(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ``floor(sums·self + 1/2)`` for 32-bit sums; shifts must be clamped."""
        result: NDArray[np.int64] = (sums * self.mantissa + (np.int64(1) << (self.shift - 1))) >> self.shift
        return result

    def pairs(self) -> NDArray[np.int32]:
        """Return mantissa and shift, stacked along a new last axis of length 2."""
        return np.stack([self.mantissa, self.shift], -1).astype(np.int32)


@dataclass(frozen=True)
class Scheme:
    """The quantisation of a product's operands and result: float32 scales, integer zero points and bias, all checked.

    Those of A are 0-D or have one element per row, those of B 0-D or one per column. `scale_c` is None if the result is
    not requantised, `bias` is None if there is none.
    """

    scale_a: Numbers
    zero_a: Numbers
    scale_b: Numbers
    zero_b: Numbers
    scale_c: float | None
    zero_c: int
    bias: Numbers | None

    @property
    def by_row(self) -> bool:
        """Whether the multiplier has a factor for each row."""
        return self.scale_a.ndim > 0

    @property
    def by_column(self) -> bool:
        """Whether the multiplier has a factor for each column."""
        return self.scale_b.ndim > 0

    def check(self, k: int, a: DType, b: DType) -> None:
        """Raise ProblemError if a sum of k products of integers of `a` and `b` may overflow 32 bits."""
        least, greatest = (0, 0) if self.bias is None else extremes(self.bias, 0, 0)
        check_sums(k, _furthest(a, self.zero_a), _furthest(b, self.zero_b), max(-least, greatest))

    def multipliers(self) -> tuple[FixedPoint | None, FixedPoint | None]:
        """Return the fixed-point multipliers of rows and of columns; the multiplier of an element is their product.

        Both are given only if both scales are vectors; otherwise one of them is the whole multiplier, the other None.
        """
        scale_a, scale_b = self.scale_a.astype(np.float64), self.scale_b.astype(np.float64)
        scale_c = np.float64(1.0 if self.scale_c is None else self.scale_c)
        if self.by_row and self.by_column:
            return FixedPoint.of(scale_a), FixedPoint.of(scale_b / scale_c)
        whole = FixedPoint.of(scale_a * scale_b / scale_c).clamped()
        return (whole, None) if self.by_row else (None, whole)


def _furthest(dtype: DType, zero: Numbers) -> int:
    bottom, top = integer_range(dtype)
    return furthest(dtype, *extremes(zero, top, bottom))


def accumulate(a: Integers, b: Integers, scheme: Scheme) -> NDArray[np.int64]:
    """Return Σ (a - zero_a)·(b - zero_b) + bias for a (m, k) and b (k, n), exactly."""
    left = a.astype(np.float64) - scheme.zero_a.reshape(-1, 1)
    right = b.astype(np.float64) - scheme.zero_b.reshape(1, -1)
    sums = (left @ right).astype(np.int64)  # float64 holds such sums exactly, and multiplies faster than int64
    return sums if scheme.bias is None else sums + scheme.bias


def reference(a: Integers, b: Integers, scheme: Scheme, out: DType) -> NDArray[Any]:
    """Return the quantised product of a (m, k) and b (k, n) as `out`, bit for bit as kernels compute it.

    int32 is the sum; float32 is ``float32(sum)·(scale_a·scale_b)``, each operation in float32; int8 and uint8 are
    ``floor(sum·M + 1/2) + zero_c``, saturated, with M as in the docstring of the module. If both scales are vectors, M
    is the product of scale_a and scale_b/scale_c, each rounded to 31 bits, itself rounded to 31 bits.
    """
    sums = accumulate(a, b, scheme)
    if out == I32:
        return sums.astype(np.int32)
    if out not in BYTES:
        factors: NDArray[np.float32] = scheme.scale_a.reshape(-1, 1) * scheme.scale_b.reshape(1, -1)
        with np.errstate(over="ignore", under="ignore"):
            return sums.astype(np.float32) * factors
    rows, columns = scheme.multipliers()
    if rows is not None:
        rows = FixedPoint(rows.mantissa.reshape(-1, 1), rows.shift.reshape(-1, 1))
    multiplier = (rows * columns).clamped() if rows and columns else rows or columns
    assert multiplier is not None
    return np.clip(multiplier.scale(sums) + scheme.zero_c, *integer_range(out)).astype(out.numpy)
