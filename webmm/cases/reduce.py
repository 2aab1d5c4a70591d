"""Reductions on the bench: of an array along an axis, beside the device's copy bandwidth and NumPy.

Errors of sums are multiples of the sums of magnitudes; maxima and positions have none.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Size
from webmm.cases.streaming import Streamed, StreamingOp, drawn, spread
from webmm.dtypes import MATRIX_DTYPES, DType
from webmm.engine.device import Device
from webmm.problems.reduce import OPERATIONS, Reduction, Span, operation_of
from webmm.verify import sum_bound


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

    def along(self, size: Size, dtype: DType) -> Reduction:
        """Return the reduction of a dense array."""
        return _reduction(self.variant, size, dtype)

    def case(self, device: Device, problem: Reduction) -> ReduceCase:
        """Return `problem` with its array."""
        return ReduceCase(device, problem)

    def examples(self) -> Iterator[tuple[str, Reduction]]:
        """Yield each operation and dtype, of rows and columns that tiles divide, and of some that they do not."""
        for name, dtype, inner in itertools.product(OPERATIONS, MATRIX_DTYPES, (1, 4096)):
            for words, ragged in (("aligned", 0), ("ragged", 1)):
                size = (64, 2**20 - ragged, inner - ragged * (inner > 1))
                what = f"{name} {dtype.name} {'rows' if inner == 1 else 'columns'} {words}"
                yield what, _reduction(name, size, dtype)


def _reduction(operation: str, size: Size, dtype: DType) -> Reduction:
    _, length, inner = size
    return Reduction(operation, *size, dtype, operation_of(operation).out_dtype(dtype), Span.dense(length, inner))
