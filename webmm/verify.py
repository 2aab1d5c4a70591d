"""Verification of products against NumPy in a longer type, with a bound that rounding alone cannot exceed.

Every element must satisfy ``|C - Ĉ| ≤ (c·K·ε + ε_out)·(|A|·|B|)`` with c = 1 and ε = 2⁻²³, or 2⁻⁵² for float64: the
error of a dot product of length K is at most K·ε/2·|a|·|b|, in any order of summation (Higham, Accuracy and Stability
of Numerical Algorithms, §3.1), and storing it in a shorter type adds that type's rounding. Errors are reported as
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

FULL_CHECK = 2**33  # multiply-adds up to which every element is checked; above, only some rows and columns
SAMPLED = 128  # rows, and columns, that are checked then
SLOWER = 64  # how much slower products in longdouble are

Floats = NDArray[np.float64]


def bound(problem: Gemm | WeightOnly) -> float:
    """Return the largest error, as a multiple of |A|·|B|, that rounding can explain."""
    out = problem.out_dtype
    sums = problem.dtype.sums
    eps = problem.eps if isinstance(problem, Gemm) else sums.eps
    return problem.k * eps + (out.eps if out != sums else 0.0)


def worst_error(got: NDArray[Any], a: NDArray[Any], b: NDArray[Any], out: DType = F32) -> float:
    """Return max |got - a·b| / (|a|·|b|), or inf if a NaN, an infinity or its sign differs from NumPy's.

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
    """The operands of a product or of a batch, to check results with."""

    problem: Gemm | WeightOnly
    a: NDArray[Any]
    b: NDArray[Any]

    def error(self, got: NDArray[Any]) -> float:
        """Return the worst error of `got` (…, m, n), of a large one over evenly spaced rows and columns."""
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
    """Return the largest error of a sum of `length` elements, as a multiple of Σ|x|, that rounding can explain.

    A sum has a level for each factor of 16 in its length, with 16 additions per element, and then a tree: in total
    4·log2(n) + 16 roundings, of half of F32.eps each (F64.eps for float64), plus one for a quotient.
    """
    roundings = 4 * math.log2(max(length, 1)) + 17
    return roundings * out.sums.eps / 2 + (out.eps if out != out.sums else 0.0)


def product_bound(length: int, out: DType = F32) -> float:
    """Return the largest relative error of a product of `length` elements: one rounding for each."""
    return length * out.sums.eps / 2 + (out.eps if out != out.sums else 0.0)
