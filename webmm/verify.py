"""Is a product right? Compared with NumPy in a longer type, at a bound that rounding alone cannot exceed.

Every element must satisfy ``|C - Ĉ| ≤ (c·K·ε + ε_out)·(|A|·|B|)`` with c = 1 and ε = 2⁻²³, or 2⁻⁵² of float64: a dot
product of length K is off by at most K·ε/2·|a|·|b|, whatever the order of the sum (Higham, Accuracy and Stability of
Numerical Algorithms, §3.1), and storing it in a shorter type adds that type's rounding. Errors are reported as
multiples of |A|·|B|, so that they compare with the bound directly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import F32, F64, DType
from webmm.problems.gemm import Gemm
from webmm.problems.weights import WeightOnly

FULL_CHECK = 2**33  # multiply-adds up to which every element is checked; above, whole rows and columns are
SAMPLED = 128  # rows and columns checked then
SLOWER = 64  # times that a product in longdouble takes

Floats = NDArray[np.float64]


def bound(problem: Gemm | WeightOnly) -> float:
    """Return the largest error, as a multiple of |A|·|B|, that rounding can explain."""
    out = problem.out_dtype
    sums = problem.dtype.sums
    eps = problem.eps if isinstance(problem, Gemm) else sums.eps
    return problem.k * eps + (out.eps if out != sums else 0.0)


def worst_error(got: NDArray[Any], a: NDArray[Any], b: NDArray[Any], out: DType = F32) -> float:
    """Return max |got - a·b| / (|a|·|b|), or inf where a NaN, an infinity or its sign differs from NumPy's.

    `got` is (m, n), `a` (m, k), `b` (k, n), of any float dtype; a·b is computed in the next longer type.
    """
    longer = np.longdouble if out == F64 else np.float64
    a64, b64 = a.astype(longer), b.astype(longer)
    with np.errstate(all="ignore"):
        expected = a64 @ b64
        scale = np.abs(a64) @ np.abs(b64) + out.tiny / out.eps
        stored = expected.astype(out.numpy).astype(np.float64)
        special = ~np.isfinite(stored)
        actual = got.astype(np.float64)
        if not np.array_equal(stored[special], actual[special], equal_nan=True):
            return float("inf")
        error = np.abs(actual - expected)[~special] / scale[~special]
    if np.isnan(error).any():
        return float("inf")
    return float(error.max(initial=0.0))


@dataclass(frozen=True)
class Checker:
    """The operands of one product, or of a batch of them, and which part of it to compare."""

    problem: Gemm | WeightOnly
    a: NDArray[Any]
    b: NDArray[Any]

    def error(self, got: NDArray[Any]) -> float:
        """Return the worst error of `got` (…, m, n): over all of it, or over spread rows and columns of a large one."""
        p = self.problem
        slower = SLOWER if p.dtype == F64 else 1
        if p.m * p.n * p.k * p.batch <= FULL_CHECK // slower:
            return worst_error(got, self.a, self.b, p.out_dtype)
        rows = np.unique(np.linspace(0, p.m - 1, SAMPLED // slower).astype(int))
        columns = np.unique(np.linspace(0, p.n - 1, SAMPLED // slower).astype(int))
        return max(
            worst_error(got[..., rows, :], self.a[..., rows, :], self.b, p.out_dtype),
            worst_error(got[..., columns], self.a, self.b[..., columns], p.out_dtype),
        )


def sum_bound(length: int, out: DType = F32) -> float:
    """Return the largest error of a sum of so many elements, as a multiple of Σ|x|, that rounding can explain.

    Each element goes through 16 additions per level of a sum that has a level for every factor of 16 in its length, and
    then through a tree: 4·log2(n) + 16 roundings in all, of half of F32.eps each. One for a quotient comes on top.
    """
    roundings = 4 * math.log2(max(length, 1)) + 17
    return roundings * F32.eps / 2 + (out.eps if out != F32 else 0.0)


def product_bound(length: int, out: DType = F32) -> float:
    """Return the largest error of a product of so many elements, as a share of it: a rounding for each of them."""
    return length * F32.eps / 2 + (out.eps if out != F32 else 0.0)
