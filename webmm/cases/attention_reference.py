"""The expected results of attention, and the bound of their errors.

A result o = Σ_j w_j·v_j, w_j = 2^(s_j - m)/Σ_j 2^(s_j - m), may differ from the exact one by these relative errors of
its terms w_j·v_j, with ε = 2⁻²³ (Higham, Accuracy and Stability of Numerical Algorithms, §3.1 and §4.2):

- expm1(δ_j), where δ_j is the error of the score s_j: a dot product of `width` terms, (width + 4)·ε·scale·Σ|q||k|; the
  addition of a mask, 2ε·|mask|; a softcap of c, whose tanh has an absolute error of 8ε, 8ε·c;
- of the power, exp_error + 2ε·|s_j - m|: that of the driver, and the rounding of its argument;
- both again, on the average over the weights, of the sum in the denominator;
- (keys + 16)·ε, the rounding of the two sums in any order, and of their corrections as the maximum grows;
- for shorter types two roundings to them, since weights may be multiplied as such, and one of the result; small weights
  in float16 have an absolute error, 2⁻³² of the largest one.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import BOOL, F16, F32
from webmm.problems.attention import LEAST_SCORE, Attention

Floats = NDArray[np.float64]
SMALLEST = 2.0**-126  # smaller weights may be 0
SMALLEST_HALF = 2.0**-32  # of the largest weight: the error of smaller ones as float16, scaled by 2**7 at least


class Given:
    """The operands of a problem in float64, as arrays of four axes, and the expected rows of its result."""

    def __init__(self, problem: Attention, arrays: dict[str, NDArray[Any]]) -> None:
        self.problem = problem
        self.q, self.k, self.v = (np.asarray(arrays[name], np.float64) for name in "qkv")
        self.mask, self.lengths = arrays.get("mask"), arrays.get("lengths")

    def seen(self, entry: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether each of these queries sees each key, apart from a mask."""
        p, keys = self.problem, np.arange(self.problem.keys)
        length = p.keys
        place = rows + p.shift
        if self.lengths is not None:
            length = int(np.clip(int(self.lengths[entry]) - p.first_key, 0, p.keys))
            place = place + int(self.lengths[entry]) * p.from_end
        found = np.broadcast_to(keys < length, (len(rows), p.keys))
        if p.right >= 0:
            found = found & (keys <= place[:, None] + p.right)
        if p.left >= 0:
            found = found & (keys >= place[:, None] - p.left)
        return found

    def scores(self, entry: int, head: int, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return the scores of these queries of a head, -∞ for hidden keys, and their errors."""
        with np.errstate(all="ignore"):
            return self._scores(entry, head, rows)

    def rows(self, entry: int, head: int, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return the expected results of these queries of a head, and the errors that rounding explains."""
        with np.errstate(all="ignore"):
            return self._rows(entry, head, rows)

    def _scores(self, entry: int, head: int, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        p, eps = self.problem, F32.eps
        q, k = self.q[entry, head, rows], self.k[entry, head // p.group].T
        scores = q @ k * p.scale
        delta = (p.width + 4) * eps * abs(p.scale) * (np.abs(q) @ np.abs(k))
        if p.softcap:
            delta = np.where(np.isfinite(scores), np.minimum(delta, 2 * p.softcap), 0.0) + 8 * eps * p.softcap
            scores = p.softcap * np.tanh(scores / p.softcap)
        seen = self.seen(entry, rows)
        if self.mask is not None:
            mask = self.mask[entry, head, rows]
            if p.mask_dtype == BOOL:
                seen = seen & mask.astype(bool)
            else:
                added = mask.astype(np.float64)
                scores, delta = scores + added, delta + 2 * eps * np.abs(np.where(np.isfinite(added), added, 0.0))
        scores = np.where(seen & ~(scores < LEAST_SCORE), scores, -np.inf)
        return scores, np.where(np.isfinite(scores), delta, 0.0)

    def _rows(self, entry: int, head: int, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        p, eps = self.problem, F32.eps
        weights, delta = weighed(*self._scores(entry, head, rows))
        v = self.v[entry, head // p.group]
        result = times(weights, v)
        short = 2 * p.dtype.eps if p.dtype != F32 else 0.0
        least = SMALLEST_HALF if p.dtype == F16 else SMALLEST
        size = np.where(np.isfinite(v), np.abs(v), 0.0)
        allowed = (weights * (delta + (p.keys + 16) * eps + short)) @ size + least * size.sum(axis=0)
        allowed += p.out_dtype.tiny + (p.out_dtype.eps if p.out_dtype != F32 else 0.0) * np.abs(result)
        hidden = (np.nan_to_num(weights) == 0) & (np.arange(p.keys) < self._length(entry))
        loose = hidden.astype(float) @ ~np.isfinite(v) > 0  # what keys without weight contain may be multiplied by 0
        return result, np.where(loose, np.inf, np.where(np.isnan(allowed), 0.0, allowed))

    def _length(self, entry: int) -> int:
        return self.problem.keys if self.lengths is None else int(self.lengths[entry]) - self.problem.first_key

    def all_rows(self) -> tuple[Floats, Floats]:
        """Return the expected results, and the errors that rounding explains, of all queries."""
        p = self.problem
        every = np.arange(p.queries)
        found = [self.rows(b, h, every) for b, h in itertools.product(range(p.batch), range(p.heads))]
        shape = (p.batch, p.heads, p.queries, p.value_width)
        result, allowed = (np.stack(each).reshape(shape) for each in zip(*found, strict=True))
        return result, allowed


def weighed(scores: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """Return the softmax of rows, zeros for one of only -∞, and the relative errors of the weights."""
    top = scores.max(axis=-1, keepdims=True)
    far = scores - np.where(top == -np.inf, 0.0, top)
    powers = np.where(scores == -np.inf, 0.0, np.exp(far))
    powers = np.where(np.isnan(top), np.nan, powers)
    total = powers.sum(axis=-1, keepdims=True)
    weights = powers / np.where(total == 0, 1.0, total)
    relative = np.expm1(delta) + F32.exp_error + 2 * F32.eps * np.abs(np.where(np.isfinite(far), far, 0.0))
    whole = (np.nan_to_num(weights) * relative).sum(axis=-1, keepdims=True)
    return weights, relative + whole


def times(weights: Floats, v: Floats) -> Floats:
    """Return weights·v, in which keys without weight contribute nothing, whatever v contains."""
    if np.isfinite(v).all():
        return weights @ v
    there = (weights > 0).astype(float)
    found = weights @ np.where(np.isfinite(v), v, 0.0)
    up, down, none = (there @ each > 0 for each in (v == np.inf, v == -np.inf, np.isnan(v)))
    found = np.where(up, np.inf, np.where(down, -np.inf, found))
    return np.where(none | (up & down), np.nan, found)
