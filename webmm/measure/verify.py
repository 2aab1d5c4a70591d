"""Verification of products against NumPy in a longer type, with a bound that rounding alone cannot exceed.

Every element must satisfy ``|C - Ĉ| ≤ (c·K·ε + ε_out)·(|A|·|B|)`` with c = 1 and ε = 2⁻²³, or 2⁻⁵² for float64: the
error of a dot product of length K is at most K·ε/2·|a|·|b|, in any order of summation (Higham, Accuracy and Stability
of Numerical Algorithms, §3.1), and storing it in a shorter type adds that type's rounding. Errors are reported as
multiples of |A|·|B|, so that they compare with the bound directly.

Its functions of numbers are in the translated subset (docs/page.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import F32, DType
from webmm.problems.gemm import Gemm
from webmm.problems.weights import WeightOnly

FULL_CHECK = 2**33  # multiply-adds up to which every element is checked; above, only some rows and columns
SAMPLED = 128  # rows, and columns, that are checked then
SLOWER = 64  # how much slower products in longdouble are

Floats = NDArray[np.float64]


def bound(problem: Gemm | WeightOnly) -> float:
    """Return the largest error, as a multiple of |A|·|B|, that rounding can explain."""
    out = problem.out_dtype
    return problem.k * problem.eps + (out.eps if out != problem.dtype.sums else 0.0)


@dataclass(frozen=True)
class Wrong:
    """The wrong elements among those of a result that were checked, and the first of them.

    `first` is its position in the dense result.
    """

    count: int
    checked: int
    first: int
    expected: float
    got: float

    def words(self, name: str) -> str:
        """Return a description, in which the first wrong element is called `name`."""
        elements = f"{self.count:,} of {self.checked:,} elements {'is' if self.count == 1 else 'are'} wrong"
        expected, got = _distinct(self.expected, self.got)
        if math.isnan(self.expected) and math.isnan(self.got):  # an element without an expected value, not written
            expected = "a number"
        unwritten = " (never written, read beyond an operand, or so computed)" * math.isnan(self.got)
        return f"{elements}, first {name}: expected {expected}, got {got}{unwritten}"


def excess(error: float, bound: float, scale: str) -> str:
    """Return how the largest error of a wrong result, as a multiple of `scale`, compares with its bound."""
    return f"the largest error is {error:.2e}{scale}, rounding explains at most {bound:.2e}"


def wrong_elements(got: NDArray[Any], expected: NDArray[Any], wrong: NDArray[np.bool_]) -> Wrong | None:
    """Return the elements of a result at which `wrong` holds, or None if there are none; all have the same shape."""
    places = np.flatnonzero(wrong)
    if not places.size:
        return None
    first = int(places[0])
    return Wrong(len(places), wrong.size, first, float(expected.flat[first]), float(got.flat[first]))


def unwritten(got: NDArray[Any]) -> Wrong | None:
    """Return the elements of a result of floats that are NaN, where the expected values are not known."""
    return wrong_elements(got, np.full(got.shape, np.nan), np.isnan(got))


def _distinct(one: float, other: float) -> tuple[str, str]:
    """Return two numbers with as many digits as are needed to tell them apart, but at least 6."""
    each = [digits for digits in (6, 9) if f"{one:.{digits}g}" != f"{other:.{digits}g}"]
    digits = [*each, 17][0]
    return f"{one:.{digits}g}", f"{other:.{digits}g}"


def errors(got: NDArray[Any], a: NDArray[Any], b: NDArray[Any], out: DType = F32) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return |got - a·b| / (|a|·|b|) and a·b, by element; inf where a NaN, an infinity or its sign differs.

    `got` is (m, n), `a` (m, k), `b` (k, n), of any float dtype; a·b is computed in the next longer type.
    """
    longer = out.longer
    a64, b64 = a.astype(longer), b.astype(longer)
    with np.errstate(all="ignore"):
        expected = a64 @ b64
        scale = np.abs(a64) @ np.abs(b64) + out.tiny / out.eps
        stored = expected.astype(out.numpy).astype(np.float64)
        actual = got.astype(np.float64)
        same = (stored == actual) | (np.isnan(stored) & np.isnan(actual))
        error = np.where(np.isfinite(stored), np.abs(actual - expected) / scale, np.where(same, 0.0, np.inf))
    error[np.isnan(error)] = np.inf
    return error, expected


def worst_error(got: NDArray[Any], a: NDArray[Any], b: NDArray[Any], out: DType = F32) -> float:
    """Return the largest of `errors()`."""
    return float(errors(got, a, b, out)[0].max(initial=0.0))


@dataclass(frozen=True)
class Checker:
    """The operands of a product or of a batch, to check results with."""

    problem: Gemm | WeightOnly
    a: NDArray[Any]
    b: NDArray[Any]

    def error(self, got: NDArray[Any]) -> float:
        """Return the worst error of `got` (…, m, n), of a large one over evenly spaced rows and columns."""
        return max(float(found.max(initial=0.0)) for found, _, _, _ in self._compared(got))

    def wrong(self, got: NDArray[Any], bound: float) -> Wrong | None:
        """Return the elements of `got` (…, m, n) whose error exceeds `bound`, among those that `error()` checks."""
        (m, n), batch = got.shape[-2:], math.prod(got.shape[:-2])
        blocks = []
        for found, expected, rows, columns in self._compared(got):
            places = np.arange(batch)[:, None, None] * m * n + np.arange(m)[rows, None] * n + np.arange(n)[columns]
            actual = got[..., rows, :][..., columns]
            blocks.append([x.reshape(-1) for x in (places, actual, expected, ~(found <= bound))])
        places, actual, expected, wrong = (np.concatenate(each) for each in zip(*blocks, strict=True))
        places, once = np.unique(places, return_index=True)
        elements = wrong_elements(actual[once], expected[once], wrong[once])
        return elements and replace(elements, first=int(places[elements.first]))

    def _compared(self, got: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any], Any, Any]]:
        """Yield the errors and the expected values of blocks of `got`, with the block's rows and columns."""
        p, whole = self.problem, slice(None)
        slower = SLOWER if p.dtype.wide else 1
        blocks: list[tuple[Any, Any]] = [(whole, whole)]
        if p.m * p.n * p.k * p.batch > FULL_CHECK // slower:
            rows, columns = (np.unique(np.linspace(0, n - 1, SAMPLED // slower).astype(int)) for n in (p.m, p.n))
            blocks = [(rows, whole), (whole, columns)]
        for rows, columns in blocks:
            a, b = self.a[..., rows, :], self.b[..., columns]
            yield *errors(got[..., rows, :][..., columns], a, b, p.out_dtype), rows, columns


def sum_bound(length: int, out: DType = F32) -> float:
    """Return the largest error of a sum of `length` elements, as a multiple of Σ|x|, that rounding can explain.

    A sum has a level for each factor of 16 in its length, with 16 additions per element, and then a tree: in total
    4·log2(n) + 16 roundings, of half of F32.eps each (that of a wide type for its sums), plus one for a quotient.
    """
    roundings = 4 * math.log2(max(length, 1)) + 17
    return roundings * out.sums.eps / 2 + (out.eps if out != out.sums else 0.0)


def product_bound(length: int, out: DType = F32) -> float:
    """Return the largest relative error of a product of `length` elements: one rounding for each."""
    return length * out.sums.eps / 2 + (out.eps if out != out.sums else 0.0)
