"""What is built on reductions, on the bench: softmax and normalisations along an axis, and activations by themselves.

Errors of a normalisation are multiples of the largest result of its row, those of an activation of |x|.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.device import Device
from webmm.dtypes import F32, MATRIX_DTYPES, DType
from webmm.epilogues import ACTIVATIONS
from webmm.kernels.base import Kernel
from webmm.kernels.reduce.base import WAYS
from webmm.kernels.reduce.rows import Map, Rows, Strips
from webmm.operations import NORMALISATIONS
from webmm.ops.base import Size
from webmm.ops.streaming import Streamed, StreamingOp, drawn, spread
from webmm.problem import Problem
from webmm.reduction import Elementwise, Normalisation, Span
from webmm.verify import sum_bound

EPSILON = 1e-5
EXP_ERROR = 2.0**-19  # of a driver's exp, and of activations made of it
LOOKED_AT = 2**16  # results of an activation that are checked, spread over all


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


class ElementwiseCase(Streamed[Elementwise]):
    """One array, and what becomes of some of its elements."""

    scale = "·|x|"

    def __init__(self, device: Device, problem: Elementwise) -> None:
        self.problem = problem
        self.x = drawn(problem.size, problem.dtype)
        self.inputs = {"x": device.array(self.x)}
        self.checked = np.unique(np.linspace(0, problem.size - 1, LOOKED_AT).astype(int))
        self.reference = ACTIVATIONS[problem.activation].reference

    @property
    def bound(self) -> float:
        """Of the function, and of what it is stored as."""
        dtype = self.problem.dtype
        return EXP_ERROR + (dtype.eps if dtype != F32 else 0.0)

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        """What NumPy makes of these elements."""
        return self.reference(self.x[self.checked].astype(np.float64))

    @functools.cached_property
    def unit(self) -> NDArray[np.float64] | float:
        """The elements."""
        dtype = self.problem.dtype
        return np.asarray(np.abs(self.x[self.checked].astype(np.float64)) + dtype.tiny / dtype.eps)

    def numpy(self) -> NDArray[Any]:
        """Compute in float32; NumPy has no error function, so that its GELU is the approximation by tanh."""
        name = self.problem.activation
        return ACTIVATIONS["gelu_tanh" if name == "gelu" else name].reference(self.in_f32)


class ElementwiseOp(StreamingOp[Elementwise]):
    """y = the GELU, or another activation, of each element."""

    name = "elementwise"
    variants = ("gelu", "gelu_tanh", *(name for name in ACTIVATIONS if not name.startswith("gelu")))

    def along(self, size: Size, dtype: DType) -> Elementwise:
        """Return the activation of as many elements."""
        m, n, k = size
        return Elementwise(self.variant, m * n * k, dtype)

    def case(self, device: Device, problem: Elementwise) -> ElementwiseCase:
        """Return `problem` with its array."""
        return ElementwiseCase(device, problem)

    def examples(self) -> Iterator[tuple[str, Elementwise]]:
        """Yield each activation and dtype, of whole vec4 and of some more."""
        for activation, dtype, size in itertools.product(ACTIVATIONS, MATRIX_DTYPES, (1024, 1023)):
            yield f"{activation} {dtype.name} {size}", Elementwise(activation, size, dtype)

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield the examples."""
        yield from ((words, Map(), problem) for words, problem in self.examples())
