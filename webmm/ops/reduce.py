"""Reductions on the bench: the sum of each row of a matrix, beside the device's copy bandwidth and NumPy.

Of a record, m is rows, n columns and k 1; `peak_fraction` is the share of the measured copy bandwidth, since a
reduction reads each element once and reckons next to nothing; errors are multiples of the rows' sums of magnitudes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.device import Device
from webmm.dtypes import MATRIX_DTYPES, dtype_of
from webmm.errors import ConfigError
from webmm.kernels.base import Kernel, ceil_div
from webmm.kernels.reduce.base import WAYS
from webmm.kernels.reduce.rows import Map, Rows
from webmm.operations import OPERATIONS
from webmm.ops.base import Case, Op, Size, split_size
from webmm.problem import Problem
from webmm.records import Record
from webmm.reduction import Elementwise, Normalisation, Reduction, Span, reduction
from webmm.roofline import Roofline
from webmm.verify import sum_bound

# The first four are those that others publish; the last does not fit into any cache.
DEFAULT_SIZES: tuple[Size, ...] = (
    (512, 8192, 1),
    (128, 32768, 1),
    (64 * 256, 1024, 1),
    (64 * 64, 4096, 1),
    (8192, 32768, 1),
)
SHARE = 1 / 4000  # of the budget that reading a default size once may take at the copy bandwidth


class RowsCase(Case[Reduction]):
    """One matrix, drawn uniformly from [-0.5, 0.5)."""

    scale = "·Σ|x|"

    def __init__(self, device: Device, problem: Reduction) -> None:
        self.problem = problem
        rng = np.random.default_rng(0)
        shape = (problem.results, problem.length)
        self.x = (rng.random(shape, np.float32) - np.float32(0.5)).astype(problem.dtype.numpy)
        self.inputs = {"x": device.array(self.x)}

    @property
    def bound(self) -> float:
        """As a multiple of Σ|x|."""
        return sum_bound(self.problem.length, self.problem.out_dtype)

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error as a multiple of Σ|x|."""
        error = np.abs(got - self.x.sum(axis=1, dtype=np.float64)) / self._magnitudes
        return math.inf if np.isnan(error).any() else float(error.max())

    @functools.cached_property
    def _magnitudes(self) -> NDArray[np.float64]:
        tiny = np.finfo(np.float32).tiny
        return np.asarray([np.abs(row).sum(dtype=np.float64) + tiny for row in self.x])

    @functools.cached_property
    def _in_f32(self) -> NDArray[np.float32]:
        return np.asarray(self.x, np.float32)

    def numpy(self) -> NDArray[Any]:
        """Sum in float32."""
        return np.asarray(self._in_f32.sum(axis=1))

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of NumPy's sums, whose order is pairwise, too."""
        return self.error(got)


class ReduceOp(Op[Reduction]):
    """y = the sum of each row."""

    name = "reduce"
    shape = "N nor ROWSxCOLUMNS"
    unit = "GB/s"

    def parse(self, text: str) -> Size:
        """Return (rows, columns, 1) of a size such as 1024, 512x8192 or 64x256x1024."""
        lengths = split_size(text)
        if not lengths:
            raise self.no_size(text)
        return (lengths[0] if len(lengths) == 1 else math.prod(lengths[:-1])), lengths[-1], 1

    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return those that one reading of takes a small share of the budget; the smallest in any case."""
        room = ceiling.gbytes * 1e9 * budget * SHARE
        return [size for size in DEFAULT_SIZES if 4 * math.prod(size) <= room] or [DEFAULT_SIZES[0]]

    def problem(self, size: Size, dtype: str, layout: str = "nn") -> Reduction:
        """Return the sum of each row; the last length counts columns, too, where it is not 1."""
        if layout != "nn":
            raise ConfigError(f"reductions have no layout {layout!r}: strides are not part of the shader")
        return reduction(size[0], size[1], dtype=dtype_of(dtype))

    def probe(self, n: int, dtype: str) -> Reduction:
        """Return few long rows: what a workgroup costs by itself must not count as if it were the elements' doing."""
        return self.problem((ceil_div(n, 64), 64 * n, 1), dtype)

    def case(self, device: Device, problem: Reduction) -> RowsCase:
        """Return `problem` with its matrix."""
        return RowsCase(device, problem)

    def examples(self) -> Iterator[tuple[str, Reduction]]:
        """Yield each operation and dtype, of rows and columns that tiles divide, and of some that they do not."""
        for (name, operation), dtype, inner in itertools.product(OPERATIONS.items(), MATRIX_DTYPES, (1, 4096)):
            for words, ragged in (("aligned", 0), ("ragged", 1)):
                outer, length, inner_ = 64, 2**20 - ragged, inner - ragged * (inner > 1)
                out, x = operation.out_dtype(dtype), Span.dense(length, inner_)
                problem = Reduction(name, outer, length, inner_, dtype, out, x)
                yield f"{name} {dtype.name} {'rows' if inner == 1 else 'columns'} {words}", problem

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield the stages on the examples, and what is built on them."""
        yield from super().shaders()
        for name, operation in {"softmax": "logsumexp", "layer_norm": "sum", "rms_norm": "sum"}.items():
            for dtype, length, vectors, way in itertools.product(
                MATRIX_DTYPES, (2**20, 2**20 - 1), (False, True), WAYS
            ):
                shape, x = (operation, 64, length, 1), Span.dense(length, 1)
                problem = Normalisation(*shape, dtype, dtype, x, function=name, weight=vectors, bias=vectors)
                yield f"{name} {dtype.name} {length}", Rows(combine=way), problem
        for activation, dtype, size in itertools.product(("gelu", "gelu_tanh"), MATRIX_DTYPES, (1024, 1023)):
            yield f"{activation} {dtype.name} {size}", Map(), Elementwise(activation, size, dtype)

    def peak(self, problem: Reduction, ceiling: Roofline) -> float:
        """Return the elements that the copy bandwidth allows."""
        return ceiling.gbytes * problem.flops / problem.bytes

    def rate(self, record: Record) -> float:
        """Return GB/s: elements read, and results written."""
        itemsize = dtype_of(record.dtype).itemsize
        return (record.gflops or 0.0) * itemsize * (1 + 1 / record.n)
