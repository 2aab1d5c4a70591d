"""Operands and stand-ins that the self-tests of reductions and normalisations share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from webmm.cases.products import reduced
from webmm.dtypes import I32
from webmm.kernels.base import LOOP_LIMIT
from webmm.kernels.reduce.base import CHAIN, ReduceKernel
from webmm.problems.reduce import Reduction, Span, operation_of

R = TypeVar("R", bound=Reduction)

SMALL, FEW = 2**20, 2**17  # elements of a quick stand-in; elements up to which it has several rows
LARGEST = 2.0  # magnitude of the outlier in each row of a trial
# The other doubles have the same high word, and a smaller low word.
LARGEST_DOUBLE = 2.0 - 2.0**-20 + (2**32 - 1) * 2.0**-52


def smaller(kernel: ReduceKernel, p: R) -> Iterator[R]:
    """Yield problems with few rows, or strips of columns, that take as many levels of loops as `p`."""
    first = kernel.dispatches[0]
    assert isinstance(first, ReduceKernel)
    step = first.step * first.splits
    most = max(SMALL, step, p.flops // 8)
    whole = [2, 1, 0, *(CHAIN**level + more for level in (1, 2, 3) for more in (1, 0))]
    if first.steps(p) > LOOP_LIMIT:  # as it then stays
        whole = [LOOP_LIMIT + 2, *whole]
    lengths = [n for n in (steps * step + p.length % step for steps in whole) if 0 < n <= p.length]
    rows = next((n for n in (3, 9, 33, 65, 129, 257) if first.workgroups(replace(p, outer=n, inner=1)) > 1), 3)
    inner = 1 if p.inner == 1 else reduced(p.inner, math.lcm(first.columns, 4), 1)
    for length, offset in itertools.product(dict.fromkeys((*lengths, p.length)), (0, 1)):
        outer = max(1, min(p.outer, rows if inner == 1 else 2, FEW // (length * inner)))
        along_j, along_k = Span.dense(length, inner), Span(length * inner, 1, length)
        if inner == 1 and p.x.stride != 1:
            along_j = Span(2 * length, 2, 1)
        if outer * length * inner <= most:
            for span in (along_k, along_j) if p.x.stride < p.x.inner_stride else (along_j, along_k):
                x = replace(span, offset=offset)
                other = replace(p.other, span=replace(along_k, offset=3)) if p.other else None
                yield replace(p, outer=outer, length=length, inner=inner, x=x, y_offset=p.y_offset % 4, other=other)


def elements(p: Reduction) -> NDArray[Any]:
    """Return x[i, k, j] without zeros, with an outlier at a random place of each row, and at the end of the first row.

    Elements are multiples of 1/4, whose sums are exact; for products near 1, above and below; for int32 odd; for maxima
    and minima of float64 numbers whose high words differ in the sign only.
    """
    rng = np.random.default_rng(0)
    x = np.resize(_pattern(p, rng), (p.outer, p.length, p.inner))
    places = rng.integers(0, p.length, (p.outer, p.inner))
    places[0, 0] = p.length - 1
    i, j = np.ogrid[: p.outer, : p.inner]
    largest = (
        2**31 - 1
        if p.dtype == I32
        else LARGEST_DOUBLE
        if p.dtype.wide and operation_of(p.operation).compared
        else LARGEST
    )
    x[i, places, j] = -largest if p.operation in ("min", "argmin") else largest
    return x


def second_elements(p: Reduction) -> tuple[NDArray[Any], ...]:
    """Return other[i, k, j] if there are two arrays: the elements of x in another order, without outliers."""
    if p.other is None:
        return ()
    found = np.resize(_pattern(p, np.random.default_rng(2)), (p.outer, p.length, p.inner))
    return (found.astype(p.other.dtype.numpy),)


def special_rows(p: Reduction) -> NDArray[Any]:
    """Return elements() with rows, in turn, of only -∞, and with a NaN, ∞, -∞, or both infinities."""
    x = elements(p)
    rows = np.moveaxis(x, 1, -1).reshape(-1, p.length)  # a copy, unless inner is 1
    places = np.random.default_rng(1).integers(0, p.length, len(rows))
    numbers = np.arange(len(rows))
    for i, value in enumerate((-math.inf, math.nan, math.inf, -math.inf, math.inf)):
        rows[numbers[i::5], places[i::5]] = value
    rows[::5] = -math.inf
    rows[4::5, 0] = -math.inf
    return np.ascontiguousarray(np.moveaxis(rows.reshape(p.outer, p.inner, p.length), -1, 1))


def _pattern(p: Reduction, rng: np.random.Generator) -> NDArray[Any]:
    count = 4099  # a prime, so that rows of no usual length repeat
    if p.dtype == I32:
        return np.asarray(rng.integers(-(2**30), 2**30, count, np.int32) | np.int32(1))
    if p.dtype.wide and operation_of(p.operation).compared:
        return np.asarray(rng.choice([-1, 1], count) * (LARGEST_DOUBLE - rng.integers(1, 2**32, count) * 2.0**-52))
    if p.operation != "prod":
        return rng.choice(np.array([-0.75, -0.5, -0.25, 0.25, 0.5, 0.75], np.float32), count)
    step = max(1 / 64, p.dtype.eps)
    above = round(count * math.log(1 - step) / (math.log(1 - step) - math.log(1 + step)))
    near = np.repeat(np.array([1 + step, 1 - step], np.float32), (above, count - above))
    return np.asarray(rng.permutation(near) * rng.choice(np.array([-1, 1], np.float32), count))


def strided(x: NDArray[Any], span: Span) -> NDArray[Any]:
    """Return the buffer with x[i, k, j] in that layout."""
    outer, length, inner = x.shape
    buffer = np.full(span.end(outer, length, inner), -77 if x.dtype.kind == "i" else np.nan, x.dtype)
    strides = (buffer.itemsize * far for far in (span.outer_stride, span.stride, span.inner_stride))
    np.lib.stride_tricks.as_strided(buffer[span.offset :], x.shape, tuple(strides))[...] = x
    return buffer
