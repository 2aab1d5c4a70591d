"""The common part of test cases for ops that are limited by memory bandwidth.

In a record, m, n and k are the lengths of x[m, n, k], where n is the axis of the op, and m and k combine all axes
before and after it. `peak_fraction` is the fraction of the measured copy bandwidth, for the minimum of bytes to move.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Case, Exhibit, Op, Size, split_size
from webmm.dtypes import DType, dtype_of
from webmm.errors import ConfigError
from webmm.kernels.base import ceil_div
from webmm.measure.records import Record
from webmm.measure.roofline import Roofline
from webmm.measure.verify import SAMPLED, Wrong, unwritten, wrong_elements
from webmm.problems.base import Problem
from webmm.text import whole

# Other projects publish results for the first four; the last does not fit into any cache.
DEFAULT_SIZES: tuple[Size, ...] = (
    (512, 8192, 1),
    (128, 32768, 1),
    (64 * 256, 1024, 1),
    (64 * 64, 4096, 1),
    (8192, 32768, 1),
)
# On the page.
SHOWN_SIZES: dict[str, tuple[Size, ...]] = {
    "gpu": ((64, 1024, 1), (512, 8192, 1), (128, 32768, 1)),
    "cpu": ((61, 1001, 1), (64, 1024, 1), (512, 8192, 1)),
}
SHARE = 1 / 4000  # the largest part of the budget for reading a default size once at the copy bandwidth
CHECKED = 2**26  # every result is checked up to this many elements, evenly spaced ones above

P = TypeVar("P", bound=Problem)


@functools.lru_cache(maxsize=1)  # the next problem often has the same size
def drawn(count: int, dtype: DType) -> NDArray[Any]:
    """Return elements drawn uniformly from [-0.5, 0.5)."""
    drawn: NDArray[Any] = (np.random.default_rng(0).random(count, np.float32) - np.float32(0.5)).astype(dtype.numpy)
    return drawn


def spread(count: int, each: int) -> NDArray[np.intp]:
    """Return the indices to check among `count` results of `each` elements: all, or evenly spaced ones."""
    most = max(1, CHECKED // each)
    return np.arange(count) if count <= most else np.unique(np.linspace(0, count - 1, min(most, SAMPLED)).astype(int))


class Streamed(Case[P]):
    """An array, and the indices `checked` of the results to check."""

    x: NDArray[Any]
    checked: NDArray[np.intp]

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        """The expected checked results, in float64."""
        raise NotImplementedError

    @functools.cached_property
    def unit(self) -> NDArray[np.float64] | float:
        """The unit of the errors of the checked results."""
        raise NotImplementedError

    @functools.cached_property
    def in_f32(self) -> NDArray[np.float32]:
        """The array in float32, in which NumPy is fast."""
        return np.asarray(self.x, np.float32)

    def at_checked(self, got: NDArray[Any]) -> NDArray[Any]:
        """Return the checked results."""
        return np.asarray(got.reshape(-1)[self.checked])

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error; inf if any result is NaN or was not written."""
        if (got < 0 if got.dtype.kind == "i" else np.isnan(got)).any():  # positions, or floats of NumPy or ml_dtypes
            return math.inf
        return float((np.abs(self.at_checked(got) - self.expected) / self.unit).max())

    def wrong(self, got: NDArray[Any]) -> Wrong | None:
        """Return the wrong elements among the checked results, or else all floats that were not written."""
        found = self.at_checked(got).astype(np.float64)
        allowed = np.broadcast_to(np.asarray(self.bound * self.unit), found.shape)
        elements = wrong_elements(found, self.expected, ~(np.abs(found - self.expected) <= allowed))
        if elements is None:
            return None if got.dtype.kind == "i" else unwritten(got)
        places = self.at_checked(np.arange(got.size)).reshape(-1)
        return replace(elements, first=int(places[elements.first]))

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of NumPy's result, in float32."""
        return self.error(got)


class StreamingOp(Op[P]):
    """An op whose sizes are (m, n, k): x[m, n, k] along n."""

    shape = "N nor ROWSxCOLUMNS, nor more lengths, with an axis as in 64x256x1024@1"
    unit = "GB/s"
    axes = 2
    result = "y"
    indices = 1

    def parse(self, text: str) -> Size:
        """Return (m, n, k) of a size such as 1024, 512x8192 or 64x256x1024@1: along the last axis, or number 1."""
        shape, at, axis = text.partition("@")
        lengths = split_size(shape)
        lengths = lengths * 2 if len(lengths) == 1 else lengths
        place = whole(axis) if at else len(lengths) - 1
        if place is None or not 0 <= place < len(lengths):
            raise self.invalid_size(text)
        return math.prod(lengths[:place]), lengths[place], math.prod(lengths[place + 1 :])

    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return the default sizes that can be read in a small part of the budget, at least the smallest."""
        room = ceiling.gbytes * 1e9 * budget * SHARE
        return [size for size in DEFAULT_SIZES if 4 * math.prod(size) <= room] or [DEFAULT_SIZES[0]]

    def probe(self, n: int, dtype: str) -> P:
        """Return few long rows, so that the overhead of workgroups does not distort the time per element."""
        return self.problem((ceil_div(n, 64), 64 * n, 1), dtype)

    def problem(self, size: Size, dtype: str, layout: str = "nn") -> P:
        """Return the problem of a dense array."""
        if layout != "nn":
            raise ConfigError(
                f"op {self.name} has no layout {layout!r}: one shader serves all strides; omit the layout"
            )
        return self.along(size, dtype_of(dtype))

    def along(self, size: Size, dtype: DType) -> P:
        """Return the problem of x[m, n, k] along n."""
        raise NotImplementedError

    def described(self, rows: int, columns: int, dtype: str = "float32") -> P:
        """Return the problem of the rows of a dense matrix, for `webmm/shaders`."""
        return self.problem((rows, columns, 1), dtype)

    def out_dtype(self, dtype: DType) -> DType:
        """Return the dtype of the result of a call, which may be computed by other problems."""
        (written,) = (extent for extent in self.along((1, 1, 1), dtype).buffers() if extent.written)
        return written.dtype

    def reference(self, problem: P, row: Sequence[float]) -> Iterable[tuple[float, float]]:
        """Return the results for a row x[i, :, j], each with the unit of its error, of which `bound()` is a multiple.

        The page checks with it, in its ladder, Explain panel and form; an op that lacks it is shown without a check.
        """
        raise NotImplementedError

    def bound(self, problem: P) -> float:
        """Return the largest error of a correct kernel, as a multiple of the unit in `reference()`."""
        raise NotImplementedError

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """All stages, by default."""
        (every,) = super().exhibits
        return (replace(every, sizes=SHOWN_SIZES),)

    def element(self, problem: P, place: int) -> tuple[int, ...]:
        """Return the row and the column of an element of a result as large as x, and the place in a smaller one."""
        rows, length, inner, _ = problem.sizes
        count = next(extent.end - extent.start for extent in problem.buffers() if extent.written)
        if count != rows * length * inner:
            return (place,)
        i, k, j = (int(x) for x in np.unravel_index(place, (rows, length, inner)))
        return i * inner + j, k

    def peak(self, problem: P, ceiling: Roofline) -> float:
        """Return the operations that the copy bandwidth allows, in 10⁹/s."""
        return ceiling.gbytes * problem.flops / problem.bytes

    def rate(self, record: Record) -> float:
        """Return GB/s, for the minimum of bytes to move."""
        problem = self.problem((record.m, record.n, record.k), record.dtype)
        return (record.gflops or 0.0) * problem.bytes / problem.flops
