"""Reductions on the bench: of an array along an axis, beside the device's copy bandwidth and NumPy.

Errors of sums are multiples of the sums of magnitudes; maxima and positions have none.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Size, Trial
from webmm.cases.products import reduced
from webmm.cases.streaming import Streamed, StreamingOp, drawn, spread
from webmm.dtypes import F32, MATRIX_DTYPES, DType
from webmm.engine.device import Device
from webmm.kernels.base import LOOP_LIMIT
from webmm.kernels.reduce.base import CHAIN, ReduceKernel
from webmm.problems.reduce import OPERATIONS, Reduction, Span, operation_of
from webmm.verify import sum_bound

R = TypeVar("R", bound=Reduction)

SMALL, FEW = 2**20, 2**17  # elements that are little time, and up to which there may be several rows of them
LARGEST = 2.0  # of the elements of a trial: of one in every row


class ReduceCase(Streamed[Reduction]):
    """One array x[outer, length, inner], and what becomes of some of its rows."""

    def __init__(self, device: Device, problem: Reduction) -> None:
        p = self.problem = problem
        self.operation = operation_of(p.operation)
        self.x = drawn(p.flops, p.dtype).reshape(p.outer, p.length, p.inner)
        self.inputs = {"x": device.array(self.x)}
        self.checked = spread(p.results, p.length)
        self.scale = "·Σ|x|" if self.operation.sums else ""

    @property
    def bound(self) -> float:
        """Rounding explains nothing but of sums."""
        return sum_bound(self.problem.length, self.problem.out_dtype) if self.operation.sums else 0.0

    @functools.cached_property
    def _rows(self) -> NDArray[np.float64]:
        return self.x[self.checked // self.problem.inner, :, self.checked % self.problem.inner].astype(np.float64)

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        """What NumPy makes of these rows."""
        return self.operation.reference(self._rows).astype(np.float64)

    @functools.cached_property
    def unit(self) -> NDArray[np.float64] | float:
        """Σ|x|, of a mean its share; log(Σ) has Σ's relative error for its absolute one."""
        name, magnitudes = self.operation.name, np.abs(self._rows)
        if not self.operation.sums:
            return 1.0
        if name == "logsumexp":
            return np.asarray(8 + magnitudes.max(axis=1))
        least = float(np.finfo(np.float32).tiny)
        return np.asarray((magnitudes.sum(axis=1) + least) / (self.problem.length if name == "mean" else 1))

    def numpy(self) -> NDArray[Any]:
        """Reduce in float32."""
        return np.asarray(self.operation.reference(np.moveaxis(self.in_f32, 1, -1)))  # type: ignore[arg-type]


class ReduceOp(StreamingOp[Reduction]):
    """y = the sum, or another operation, along an axis."""

    name = "reduce"
    variants = tuple(OPERATIONS)
    tried = (((64, 1024, 1), "nn"), ((65, 1023, 1), "nn"), ((3, 77, 65), "nn"), ((1, 2**17, 1), "nn"))

    def along(self, size: Size, dtype: DType) -> Reduction:
        """Return the reduction of a dense array."""
        return _reduction(self.variant, size, dtype)

    def case(self, device: Device, problem: Reduction) -> ReduceCase:
        """Return `problem` with its array."""
        return ReduceCase(device, problem)

    def stand_ins(self, kernel: ReduceKernel, problem: Reduction) -> Iterator[Reduction]:
        """Yield small arrays."""
        yield from smaller(kernel, problem)

    def trial(self, problem: Reduction) -> Trial:
        """Return elements whose sum is exact, and of which one is the largest, or the smallest."""
        p, operation = problem, operation_of(problem.operation)
        x = elements(p)
        expected = operation.reference(np.moveaxis(x, 1, -1).astype(np.float64))
        out = p.out_dtype.eps if p.out_dtype != F32 else 0.0
        if operation.name == "logsumexp":
            allowed = np.full(expected.shape, sum_bound(p.length, p.out_dtype) * (8 + LARGEST))
        else:
            allowed = (4 * F32.eps + out) * np.abs(expected)
        return Trial({"x": strided(x, p)}, expected, allowed)

    def examples(self) -> Iterator[tuple[str, Reduction]]:
        """Yield each operation and dtype, of rows and columns that tiles divide, and of some that they do not."""
        for name, dtype, inner in itertools.product(OPERATIONS, MATRIX_DTYPES, (1, 4096)):
            for words, ragged in (("aligned", 0), ("ragged", 1)):
                size = (64, 2**20 - ragged, inner - ragged * (inner > 1))
                what = f"{name} {dtype.name} {'rows' if inner == 1 else 'columns'} {words}"
                yield what, _reduction(name, size, dtype)


# What a reduction's trial and a normalisation's have in common


def smaller(kernel: ReduceKernel, p: R) -> Iterator[R]:
    """Yield arrays of few rows, or strips of columns, that take as many levels of loops as those of `p`."""
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
        if outer * length * inner <= most:
            for span in (along_k, along_j) if p.x.stride < p.x.inner_stride else (along_j, along_k):
                x = replace(span, offset=offset)
                yield replace(p, outer=outer, length=length, inner=inner, x=x, y_offset=p.y_offset % 4)


def elements(p: Reduction) -> NDArray[np.float32]:
    """Return x[i, k, j] of quarters, none of them 0, and an outlier at another place of each row, the last of one."""
    rng = np.random.default_rng(0)
    pattern = rng.choice(
        np.array([-0.75, -0.5, -0.25, 0.25, 0.5, 0.75], np.float32), 4099
    )  # a prime, as lengths are not
    x = np.resize(pattern, (p.outer, p.length, p.inner))
    places = rng.integers(0, p.length, (p.outer, p.inner))
    places[0, 0] = p.length - 1
    i, j = np.ogrid[: p.outer, : p.inner]
    x[i, places, j] = -LARGEST if p.operation == "min" else LARGEST
    return x


def strided(x: NDArray[np.float32], p: Reduction) -> NDArray[np.float32]:
    """Return the buffer that holds x[i, k, j] as `p` says."""
    buffer = np.full(p.buffers()[0].end, np.nan, np.float32)
    strides = (buffer.itemsize * far for far in (p.x.outer_stride, p.x.stride, p.x.inner_stride))
    np.lib.stride_tricks.as_strided(buffer[p.x.offset :], x.shape, tuple(strides))[...] = x
    return buffer


def _reduction(operation: str, size: Size, dtype: DType) -> Reduction:
    rows, length, inner = size[:3]
    return Reduction(
        operation, rows, length, inner, dtype, operation_of(operation).out_dtype(dtype), Span.dense(length, inner)
    )


OP = ReduceOp
