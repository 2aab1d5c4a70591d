"""Benchmark and self-test cases of normalisations. Errors are multiples of the largest result of a row."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Exhibit, Size, Trial
from webmm.cases.row_trials import elements, smaller, special_rows, strided
from webmm.cases.steps.rows import NormalisationSubject
from webmm.cases.streaming import SHOWN_SIZES, Streamed, StreamingOp, drawn, spread
from webmm.dtypes import MATRIX_DTYPES, WIDE, DType, dtype_of
from webmm.engine.device import Device
from webmm.errors import ProblemError
from webmm.kernels.base import Kernel
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.reduce.base import WAYS, ReduceKernel
from webmm.measure.verify import sum_bound
from webmm.problems.base import Problem
from webmm.problems.normalise import NORMALISATIONS, Normalisation
from webmm.problems.reduce import Span

EPSILON = 1e-5


def rounding(p: Normalisation) -> float:
    """Return the error bound of two consecutive sums and an exponential or a root."""
    stored = p.out_dtype.eps if p.out_dtype != p.out_dtype.sums else 0.0
    return 2 * sum_bound(p.length, p.dtype.sums) + p.dtype.exp_error + stored


class NormaliseCase(Streamed[Normalisation]):
    """An array x[outer, length, inner], and the expected results of some of its rows."""

    scale = "·max|y|"

    def __init__(self, device: Device, problem: Normalisation) -> None:
        p = self.problem = problem
        self.x = drawn(p.flops, p.dtype).reshape(p.outer, p.length, p.inner)
        self.inputs = {"x": device.array(self.x)}
        self.checked = spread(p.results, p.length)
        self.reference = NORMALISATIONS[p.function].reference

    @property
    def bound(self) -> float:
        """As a multiple of the largest result of a row."""
        return rounding(self.problem)

    def at_checked(self, got: NDArray[Any]) -> NDArray[np.float64]:
        """Return the checked rows."""
        i, j = self.checked // self.problem.inner, self.checked % self.problem.inner
        return got.reshape(self.x.shape)[i, :, j].astype(np.float64)

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        """NumPy's results for these rows."""
        return self.reference(self.at_checked(self.x), self.problem.epsilon)

    @functools.cached_property
    def unit(self) -> NDArray[np.float64] | float:
        """The largest result of each row."""
        return np.asarray(np.abs(self.expected).max(axis=1, keepdims=True) + self.problem.out_dtype.tiny)

    def numpy(self) -> NDArray[Any]:
        """Normalise in float32, or in float64 if that is the dtype of the array."""
        x: NDArray[Any] = self.x if self.problem.dtype.wide else self.in_f32
        y = self.reference(np.moveaxis(x, 1, -1), self.problem.epsilon)
        return np.moveaxis(y, -1, 1)


class NormaliseOp(StreamingOp[Normalisation]):
    """y = the softmax, or another normalisation, along an axis."""

    name = "normalise"
    variants = tuple(NORMALISATIONS)
    dtypes = (*MATRIX_DTYPES, *WIDE)
    tried = (((64, 1024, 1), "nn"), ((999, 7, 1), "nn"), ((5, 8191, 1), "nn"), ((3, 77, 65), "nn"))

    def along(self, size: Size, dtype: DType) -> Normalisation:
        """Return the problem of a dense array, without a weight."""
        return _normalisation(self.variant, size, dtype)

    def described(
        self,
        rows: int,
        columns: int,
        dtype: str = "float32",
        function: str = "",
        weight: bool = False,
        bias: bool = False,
        eps: float = 0.0,
    ) -> Normalisation:
        """Return the normalisation of the rows of a dense matrix, for `webmm/shaders`; raises ProblemError."""
        name = function or self.variant
        if name not in NORMALISATIONS:
            raise ProblemError(f"unknown normalisation {name!r}; choose from {', '.join(NORMALISATIONS)}")
        plain = _normalisation(name, (rows, columns, 1), dtype_of(dtype))
        return replace(plain, weight=weight, bias=bias, epsilon=eps)

    def reference(self, problem: Normalisation, row: Sequence[float]) -> Iterable[tuple[float, float]]:
        """Return the normalised row, with its largest element as the unit."""
        count = len(row)
        if problem.function == "softmax":
            top = max(row)
            parts = [math.exp(x - top) for x in row]
            total = sum(parts)
            y = [x / total for x in parts]
        else:
            mean = sum(row) / count if problem.function == "layer_norm" else 0.0
            spread = math.sqrt(sum((x - mean) * (x - mean) for x in row) / count + problem.epsilon)
            y = [(x - mean) / spread for x in row]
        unit = max(abs(x) for x in y) + problem.out_dtype.tiny
        return [(x, unit) for x in y]

    def bound(self, problem: Normalisation) -> float:
        """Return the error as a multiple of that unit."""
        return rounding(problem)

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """Softmax with all stages, and a function of sums."""
        return (
            Exhibit("Row softmax", SHOWN_SIZES, "softmax", ("rows", "strips")),
            Exhibit("Row RMS normalisation", SHOWN_SIZES, "rms_norm", ("rows",)),
        )

    def case(self, device: Device, problem: Normalisation) -> NormaliseCase:
        """Return `problem` with its array."""
        return NormaliseCase(device, problem)

    def steps(self, kernel: Any, problem: Normalisation) -> NormalisationSubject:
        """Return NumPy's values for the steps of a kernel."""
        return NormalisationSubject(self, kernel, problem)

    def stand_ins(self, kernel: ReduceKernel, problem: Normalisation) -> Iterator[Normalisation]:
        """Yield small arrays."""
        yield from smaller(kernel, problem)

    def trial(self, problem: Normalisation) -> Trial:
        """Return multiples of 1/4 with an outlier in each row."""
        return _trial(problem, elements(problem))

    def extremes(self, problem: Normalisation) -> Trial:
        """Return rows with infinities and NaN."""
        return _trial(problem, special_rows(problem))

    def examples(self) -> Iterator[tuple[str, Normalisation]]:
        """Yield each function and dtype: rows that stay in registers or not, with and without weight and bias."""
        for name, dtype, vectors in itertools.product(NORMALISATIONS, self.dtypes, (False, True)):
            for length in (2**20, 2**20 - 1, 4092, 4095):
                words = f"{name} {dtype.name} {length}{' scaled' if vectors else ''}"
                yield words, _normalisation(name, (64, length, 1), dtype, vectors)
        for dtype, (words, inner) in itertools.product(MATRIX_DTYPES, {"aligned": 4096, "ragged": 4095}.items()):
            yield f"softmax {dtype.name} columns {words}", _normalisation("softmax", (64, 1024, inner), dtype)

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield the examples with every way of combining partial results."""
        for words, problem in self.examples():
            kernels = [Rows(combine=way) for way in WAYS] if problem.inner == 1 else [Strips()]
            yield from ((words, kernel, problem) for kernel in kernels)


def _trial(p: Normalisation, x: NDArray[Any]) -> Trial:
    with np.errstate(all="ignore"):
        y = NORMALISATIONS[p.function].reference(np.moveaxis(x, 1, -1).astype(np.float64), p.epsilon)
    y = np.moveaxis(y, -1, 1)
    largest = np.abs(np.where(np.isfinite(y), y, 0.0)).max(axis=1, keepdims=True)
    allowed = rounding(p) * largest + p.out_dtype.tiny
    weight, bias = (1 + np.arange(p.length) % 3) / 4, (1 + np.arange(p.length) % 5) / 4
    vectors = {name: v for name, v, there in (("weight", weight, p.weight), ("bias", bias, p.bias)) if there}
    if p.weight:
        y = y * weight[:, None]
    if p.bias:
        y, allowed = y + bias[:, None], allowed + rounding(p)
    return Trial({"x": strided(x, p.x), **vectors}, y, np.broadcast_to(allowed, y.shape))


def _normalisation(function: str, size: Size, dtype: DType, vectors: bool = False) -> Normalisation:
    rows, length, inner = size[:3]
    return Normalisation(
        NORMALISATIONS[function].operation,
        *(rows, length, inner, dtype, dtype),
        Span.dense(length, inner),
        function=function,
        weight=vectors,
        bias=vectors,
        epsilon=EPSILON,
    )


OP = NormaliseOp
