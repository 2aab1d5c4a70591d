"""Benchmark and self-test cases of reductions, compared with the device's copy bandwidth and with NumPy.

Errors of sums are multiples of the sum of magnitudes, errors of products are relative; maxima, positions and integers
must be exact.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases import declared
from webmm.cases.base import Exhibit, Size, Trial
from webmm.cases.exact import ExactCase, Input, Ladder
from webmm.cases.row_trials import LARGEST, elements, second_elements, smaller, special_rows, strided
from webmm.cases.steps.rows import ReductionSubject
from webmm.cases.streaming import DEFAULT_SIZES, Streamed, StreamingOp, drawn, spread
from webmm.dtypes import F16, F32, I32, DType
from webmm.engine.device import Device
from webmm.kernels.base import Kernel
from webmm.kernels.reduce.base import ReduceKernel
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.serial import Serial
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.measure.verify import product_bound, sum_bound
from webmm.problems.base import Problem
from webmm.problems.reduce import DECLARED, OPERATIONS, Other, Reduction, Span, operation_of, reduction

# The ladder of the page. On GPUs, the settings of stages that Python would not choose are the fastest at 512×8192 and
# 128×32768 on an H200; a subgroup of `alone` has 32 lanes on most. CPU adapters have few lanes, and compile slowly.
LADDER: dict[str, tuple[ReduceKernel, ...]] = {
    "gpu": (*(Serial(), PerRow(), Vectorized(32, 8), Tree(), Subgroup(), Alone(32), Alone(), TwoPass(128, 4, 4)),),
    "cpu": (*(Serial(), PerRow(8), Vectorized(8, 2), Tree(32, 1), Subgroup(32, 2), Alone(4, 2), TwoPass(32, 1, 2)),),
}
ROWS = {
    "gpu": ((64, 2048), *(size[:2] for size in DEFAULT_SIZES[:4])),
    "cpu": ((61, 1001), (64, 4096), (512, 8192)),
}
# Ranges of integers whose sums over the longest rows are exact: below 2^24 for float32, 2^11 for float16.
SUMMED = {F32: (-128, 127), F16: (-1, 1)}
COMPARED = (-(2**23), 2**23 - 1)


class ReduceCase(Streamed[Reduction]):
    """An array x[outer, length, inner], and the expected results of some of its rows."""

    def __init__(self, device: Device, problem: Reduction) -> None:
        p = self.problem = problem
        self.operation = operation_of(p.operation)
        self.x = _drawn_for(p).reshape(p.outer, p.length, p.inner)
        self.arrays = [self.x]
        if p.other:
            self.arrays.append(np.roll(self.x, 7, axis=0).astype(p.other.dtype.numpy))
        self.inputs = {name: device.array(x) for name, x in zip(("x", "other"), self.arrays, strict=False)}
        self.checked = spread(p.results, p.length * (declared.WORK if self.operation.declared else 1))
        sums = p.rounded_sums and not self.operation.declared
        self.scale = "·Σ|x|" if sums else "·Π|x|" if p.operation == "prod" else ""

    @property
    def bound(self) -> float:
        """The rounding error; 0 except for sums and products of floats; 1 for declared ones, whose unit it is."""
        return rounding(self.problem)

    @functools.cached_property
    def _rows(self) -> list[NDArray[Any]]:
        i, j = self.checked // self.problem.inner, self.checked % self.problem.inner
        return [x[i, :, j] for x in self.arrays]

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        """NumPy's results for these rows."""
        return self.operation.exact(*self._rows).astype(np.float64)

    @functools.cached_property
    def unit(self) -> NDArray[np.float64] | float:
        """Σ|x|, for a mean divided by the length; for logsumexp a constant plus max|x|; for a product its magnitude."""
        name, least = self.operation.name, float(np.finfo(np.float32).tiny)
        if self.operation.declared:
            return np.maximum(declared.allowed(self.problem, *self._rows), least)
        if not self.bound:
            return 1.0
        if name == "prod":
            return np.asarray(np.abs(self.expected) + least)
        magnitudes = np.abs(self._rows[0].astype(np.float64))
        if name == "logsumexp":
            return np.asarray(8 + magnitudes.max(axis=1))
        return np.asarray((magnitudes.sum(axis=1) + least) / (self.problem.length if name == "mean" else 1))

    def numpy(self) -> NDArray[Any]:
        """Reduce in float32, or in the dtype of the array for int32 and float64."""
        as_they_are = self.problem.dtype == I32 or self.problem.dtype.wide
        arrays = self.arrays if as_they_are else [self.in_f32, *(x.astype(np.float32) for x in self.arrays[1:])]
        rows = [np.moveaxis(x, 1, -1) for x in arrays]
        return np.asarray(self.operation.exact(*rows) if self.problem.dtype == I32 else self.operation.reference(*rows))

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error, for integers in units; inf if a result is missing or NaN."""
        if self.operation.declared:
            return declared.error(self.at_checked(got).astype(np.float64), self.expected, self.unit)
        if self.operation.index or self.problem.dtype != I32:
            return super().error(got)
        return float(np.abs(self.at_checked(got).astype(np.float64) - self.expected).max())


class ReduceOp(StreamingOp[Reduction]):
    """y = the sum, or another operation, along an axis."""

    name = "reduce"
    variants = tuple(OPERATIONS)
    tried = (
        ((64, 1024, 1), "nn"),
        ((999, 7, 1), "nn"),
        ((65, 1023, 1), "nn"),
        ((3, 77, 65), "nn"),
        ((1, 2**17, 1), "nn"),
    )

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        self.dtypes = operation_of(self.variant).dtypes

    def knows(self, variant: str) -> bool:
        """Return whether it is an operation of ours, or a declared one."""
        return variant in OPERATIONS or variant in DECLARED

    def along(self, size: Size, dtype: DType) -> Reduction:
        """Return the reduction of a dense array."""
        return _reduction(self.variant, size, dtype)

    def described(self, rows: int, columns: int, dtype: str = "float32", operation: str = "") -> Reduction:
        """Return the reduction of the rows of a dense matrix, for `webmm/shaders`."""
        return reduction(rows, columns, operation or self.variant, dtype=dtype)

    def out_dtype(self, dtype: DType) -> DType:
        """Return the dtype of the result of a call: means and logsumexp of float64 are no problems of this op."""
        return operation_of(self.variant).out_dtype(dtype)

    def reference(self, problem: Reduction, row: Sequence[float]) -> Iterable[tuple[float, float]]:
        """Return the result of a row, and the unit of its error, as `ReduceCase.unit` has it."""
        name = problem.operation
        if name in ("max", "min", "argmax", "argmin"):
            best = max(row) if name in ("max", "argmax") else min(row)
            return [(best if name in ("max", "min") else row.index(best), 1.0)]
        if name == "prod":
            product = math.prod(row)
            return [(product, abs(product) + problem.dtype.tiny)]
        if name == "logsumexp":
            top = max(row)
            return [(top + math.log(sum(math.exp(x - top) for x in row)), 8 + max(abs(x) for x in row))]
        parts = problem.length if name == "mean" else 1
        return [(sum(row) / parts, sum(abs(x) for x in row) / parts + problem.dtype.tiny)]

    def bound(self, problem: Reduction) -> float:
        """Return the error that rounding can explain, as a multiple of that unit."""
        return rounding(problem)

    @property
    def ladders(self) -> tuple[Ladder, ...]:
        """The stages for rows of any length, with sums, maxima and positions."""
        return LADDERS

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """The stages for columns; those for rows are in `ladders`."""
        sizes: tuple[Size, ...] = ((1, 64, 1024), (1, 512, 8192), (1, 128, 32768))
        return (Exhibit("Column sums", {"gpu": sizes, "cpu": sizes}, "sum", ("columns", "columns_two_pass")),)

    def case(self, device: Device, problem: Reduction) -> ReduceCase:
        """Return `problem` with its array."""
        return ReduceCase(device, problem)

    def element(self, problem: Reduction, place: int) -> tuple[int, ...]:
        """Return the number of the result."""
        return (place,)

    def steps(self, kernel: Any, problem: Reduction) -> ReductionSubject:
        """Return NumPy's values for the steps of a kernel."""
        return ReductionSubject(self, kernel, problem)

    def stand_ins(self, kernel: ReduceKernel, problem: Reduction) -> Iterator[Reduction]:
        """Yield small arrays."""
        yield from smaller(kernel, problem)

    def trial(self, problem: Reduction) -> Trial:
        """Return elements with an exact sum and an outlier in each row."""
        p, operation = problem, operation_of(problem.operation)
        x, other = elements(p), second_elements(p)
        rows = [np.moveaxis(each, 1, -1) for each in (x, *other)]
        expected = operation.exact(*rows).astype(np.float64)
        out = p.out_dtype.eps if p.out_dtype != F32 else 0.0
        if operation.declared:
            allowed = declared.allowed(p, *rows)
        elif operation.name == "logsumexp":
            allowed = np.full(expected.shape, sum_bound(p.length, p.out_dtype) * (8 + LARGEST))
        elif operation.name == "prod":
            allowed = rounding(p) * np.abs(expected)
        else:
            allowed = (4 * F32.eps + out) * np.abs(expected) * (not p.dtype.wide)
        second = {"other": strided(other[0], p.other.span)} if p.other else {}
        return Trial({"x": strided(x, p.x), **second}, expected, allowed)

    def extremes(self, problem: Reduction) -> Trial | None:
        """Return rows with infinities and NaN; None for int32, and for declared ones: order matters."""
        p = problem
        if p.dtype == I32 or operation_of(p.operation).declared:
            return None
        x = special_rows(p)
        with np.errstate(all="ignore"):
            expected = operation_of(p.operation).exact(np.moveaxis(x, 1, -1)).astype(np.float64)
        finite = np.isfinite(expected)  # rows whose infinities add nothing, and positions
        largest = np.where(finite, np.abs(expected), 0.0)
        allowed = rounding(p) * (8 + LARGEST) if p.operation == "logsumexp" else rounding(p) * largest
        return Trial({"x": strided(x, p.x)}, expected, np.where(finite, allowed, 0.0))

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield all stages on the examples, and on two declared operations, whose states differ most."""
        yield from super().shaders()
        for stage, (name, dtype) in itertools.product(self.stages, declared.SHOWN):
            problem = _reduction(name, (64, 31, 1) if stage is RowTiles else (64, 4097, 7), dtype)
            if stage().unsuited(problem) is None:
                yield f"{name} {dtype.name}", stage(), problem

    def examples(self) -> Iterator[tuple[str, Reduction]]:
        """Yield each operation and dtype, with rows and columns that tiles divide and that they do not."""
        for operation, inner in itertools.product(OPERATIONS.values(), (1, 4096)):
            for dtype, (words, ragged) in itertools.product(operation.dtypes, (("aligned", 0), ("ragged", 1))):
                size = (64, 2**20 - ragged, inner - ragged * (inner > 1))
                what = f"{operation.name} {dtype.name} {'rows' if inner == 1 else 'columns'} {words}"
                yield what, _reduction(operation.name, size, dtype)


def rounding(problem: Reduction) -> float:
    """Return the largest error that rounding can explain, as a multiple of the case's unit."""
    p = problem
    if operation_of(p.operation).declared:
        return 1.0
    if p.dtype != I32 and p.operation == "prod":
        return product_bound(p.length, p.out_dtype)
    return sum_bound(p.length, p.out_dtype) if p.rounded_sums else 0.0


def _drawn_for(p: Reduction) -> NDArray[Any]:
    """Return the elements of a case; for products near 1, to avoid overflow and underflow."""
    if p.dtype == I32:
        return np.asarray(np.random.default_rng(0).integers(-(2**31), 2**31, p.flops, np.int32) | np.int32(1))
    if p.operation != "prod":
        return drawn(p.flops, p.dtype)
    return np.asarray(np.exp(drawn(p.flops, F32) * min(1 / 32, 8 / math.sqrt(p.length))).astype(p.dtype.numpy))


def _reduction(operation: str, size: Size, dtype: DType) -> Reduction:
    rows, length, inner = size[:3]
    found, span = operation_of(operation), Span.dense(length, inner)
    other = Other(dtype, span) if found.two else None
    return Reduction(operation, rows, length, inner, dtype, found.out_dtype(dtype), span, other=other)


def exactly_reduced(operation: str, size: tuple[int, ...], dtype: DType) -> ExactCase:
    """Return the reduction of each row of a matrix."""
    rows, length = size
    problem = reduction(rows, length, operation, dtype=dtype)
    low, high = SUMMED[dtype] if operation_of(operation).sums else COMPARED
    drawn = Input("x", dtype, rows * length, 1, low, high)
    return ExactCase(problem, (drawn,), lambda x: operation_of(operation).reference(x.reshape(rows, length)))


LADDERS = tuple(
    Ladder(title, LADDER, functools.partial(exactly_reduced, operation), ROWS, dtypes)
    for title, operation, dtypes in (
        ("Row sums", "sum", (F32, F16)),
        ("Row maxima", "max", (F32,)),
        ("Row argmax", "argmax", (F32,)),
    )
)
OP = ReduceOp
