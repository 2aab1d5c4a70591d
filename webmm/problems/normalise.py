"""Normalisations: a row in proportion to what it reduces to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from webmm.dtypes import F64
from webmm.problems.base import Extent, check_floats
from webmm.problems.reduce import Floats, Reduction


@dataclass(frozen=True)
class NormalisationFunction:
    """A row in proportion to what it adds up to: its meaning in NumPy, and the operation that it needs first."""

    name: str
    operation: str
    reference: Callable[[Floats, float], Floats]  # of rows and epsilon


def _softmax(x: Floats, epsilon: float) -> Floats:
    del epsilon
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _layer_norm(x: Floats, epsilon: float) -> Floats:
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + x.dtype.type(epsilon))
    return np.asarray((x - x.mean(axis=-1, keepdims=True)) / spread)


def _rms_norm(x: Floats, epsilon: float) -> Floats:
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(epsilon)))


NORMALISATIONS = {
    function.name: function
    for function in (
        NormalisationFunction("softmax", "logsumexp", _softmax),
        NormalisationFunction("layer_norm", "sum", _layer_norm),
        NormalisationFunction("rms_norm", "sum", _rms_norm),
    )
}


@dataclass(frozen=True)
class Normalisation(Reduction):
    """y[i, k, j] ← x[i, k, j] put in proportion to what x[i, :, j] adds up to; y is dense.

    `function` is softmax, layer_norm or rms_norm, with the operation that it needs first: logsumexp, or else sum.
    `weight` and `bias` say whether there are vectors of `length` elements by which results are scaled and shifted;
    `epsilon` is added to the mean square.
    """

    function: str = "softmax"
    weight: bool = False
    bias: bool = False
    epsilon: float = 0.0

    op: ClassVar[str] = "normalise"

    def check_dtypes(self) -> None:
        """Raise ProblemError for element types that are not those of floats, or of which only one is float64."""
        if self.dtype != F64 or self.out_dtype != F64:
            check_floats("normalisations", self.dtype, self.out_dtype)

    def buffers(self) -> tuple[Extent, ...]:
        """Return x, y, and the weight and bias if there are any."""
        x, y = super().buffers()
        vectors = (("weight", self.weight), ("bias", self.bias))
        return (
            x,
            replace(y, end=self.y_offset + self.flops),
            *(Extent(name, self.dtype, self.length) for name, there in vectors if there),
        )

    def within(self, firsts: tuple[int, ...]) -> Normalisation:
        """Return the problem with the offset into x and y less the given number of elements."""
        x, y = firsts[:2]
        return replace(self, x=replace(self.x, offset=self.x.offset - x), y_offset=self.y_offset - y)

    @property
    def variant(self) -> str:
        """The function."""
        return self.function

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: each element read once and written once."""
        vectors = (self.weight + self.bias) * self.length * self.dtype.itemsize
        return self.flops * (self.dtype.itemsize + self.out_dtype.itemsize) + vectors

    def __str__(self) -> str:
        return f"{self.function} of {self.results}x{self.length}"
