"""Softmax and normalisations along an axis, on the bench. Errors are multiples of the largest result of a row."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Size
from webmm.cases.streaming import Streamed, StreamingOp, drawn, spread
from webmm.dtypes import F32, MATRIX_DTYPES, DType
from webmm.engine.device import Device
from webmm.kernels.base import Kernel
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.reduce.base import WAYS
from webmm.problems.base import Problem
from webmm.problems.normalise import NORMALISATIONS, Normalisation
from webmm.problems.reduce import Span
from webmm.verify import sum_bound

EPSILON = 1e-5
EXP_ERROR = 2.0**-19  # of a driver's exp, and of activations made of it


class NormaliseCase(Streamed[Normalisation]):
    """One array x[outer, length, inner], and what becomes of some of its rows."""

    scale = "·max|y|"

    def __init__(self, device: Device, problem: Normalisation) -> None:
        p = self.problem = problem
        self.x = drawn(p.flops, p.dtype).reshape(p.outer, p.length, p.inner)
        self.inputs = {"x": device.array(self.x)}
        self.checked = spread(p.results, p.length)
        self.reference = NORMALISATIONS[p.function].reference

    @property
    def bound(self) -> float:
        """Two sums follow each other, and an exponential or a root."""
        out = self.problem.out_dtype
        return 2 * sum_bound(self.problem.length) + EXP_ERROR + (out.eps if out != F32 else 0.0)

    def at_checked(self, got: NDArray[Any]) -> NDArray[np.float64]:
        """Return the checked rows."""
        i, j = self.checked // self.problem.inner, self.checked % self.problem.inner
        return got.reshape(self.x.shape)[i, :, j].astype(np.float64)

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        """What NumPy makes of these rows."""
        return self.reference(self.at_checked(self.x), self.problem.epsilon)

    @functools.cached_property
    def unit(self) -> NDArray[np.float64] | float:
        """The largest result of each row."""
        return np.asarray(np.abs(self.expected).max(axis=1, keepdims=True) + self.problem.out_dtype.tiny)

    def numpy(self) -> NDArray[Any]:
        """Normalise in float32."""
        y = self.reference(np.moveaxis(self.in_f32, 1, -1), self.problem.epsilon)  # type: ignore[arg-type]
        return np.moveaxis(y, -1, 1)


class NormaliseOp(StreamingOp[Normalisation]):
    """y = the softmax, or another normalisation, along an axis."""

    name = "normalise"
    variants = tuple(NORMALISATIONS)

    def along(self, size: Size, dtype: DType) -> Normalisation:
        """Return that of a dense array, without a weight."""
        return _normalisation(self.variant, size, dtype)

    def case(self, device: Device, problem: Normalisation) -> NormaliseCase:
        """Return `problem` with its array."""
        return NormaliseCase(device, problem)

    def examples(self) -> Iterator[tuple[str, Normalisation]]:
        """Yield each function and dtype, of rows that stay in registers and that do not, with and without vectors."""
        for name, dtype, vectors in itertools.product(NORMALISATIONS, MATRIX_DTYPES, (False, True)):
            for length in (2**20, 2**20 - 1, 4092, 4095):
                words = f"{name} {dtype.name} {length}{' scaled' if vectors else ''}"
                yield words, _normalisation(name, (64, length, 1), dtype, vectors)
        for dtype, (words, inner) in itertools.product(MATRIX_DTYPES, {"aligned": 4096, "ragged": 4095}.items()):
            yield f"softmax {dtype.name} columns {words}", _normalisation("softmax", (64, 1024, inner), dtype)

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield the examples with every way in which a workgroup's parts meet."""
        for words, problem in self.examples():
            kernels = [Rows(combine=way) for way in WAYS] if problem.inner == 1 else [Strips()]
            yield from ((words, kernel, problem) for kernel in kernels)


def _normalisation(function: str, size: Size, dtype: DType, vectors: bool = False) -> Normalisation:
    _, length, inner = size
    return Normalisation(
        NORMALISATIONS[function].operation,
        *size,
        dtype,
        dtype,
        Span.dense(length, inner),
        function=function,
        weight=vectors,
        bias=vectors,
        epsilon=EPSILON,
    )
