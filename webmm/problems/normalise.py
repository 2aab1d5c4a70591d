"""Normalisations: softmax, layer norm and RMS norm."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from webmm.dtypes import DType
from webmm.problems.base import Extent, check_floats
from webmm.problems.reduce import Floats, Reduction, check_wide


@dataclass(frozen=True)
class NormalisationFunction:
    """A normalisation: its NumPy reference, and the reduction that it starts with."""

    name: str
    operation: str
    reference: Callable[[Floats, float], Floats]  # (rows, epsilon) → rows


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


def check_normalised(function: str, dtype: DType, features: Set[str], device: str) -> None:
    """Check that a device with these features, called `device`, can normalise arrays of `dtype`.

    Raises ProblemError for a dtype that is not a float, UnsupportedError for float64 without the feature shader-f64.
    """
    if not dtype.wide:
        check_floats("normalisations", dtype)
    else:
        check_wide(function, dtype, features, device)


@dataclass(frozen=True)
class Normalisation(Reduction):
    """y[i, :, j] ← the normalised x[i, :, j]; y is dense.

    `function` is softmax, layer_norm or rms_norm; `operation` is logsumexp for softmax, else sum. `weight` and `bias`
    state whether the results are scaled and shifted by vectors of `length` elements; `epsilon` is added to the mean
    square.
    """

    function: str = "softmax"
    weight: bool = False
    bias: bool = False
    epsilon: float = 0.0

    op: ClassVar[str] = "normalise"

    def check_dtypes(self) -> None:
        """Raise ProblemError for element types that are not floats, or if only one of x and y is float64."""
        if not (self.dtype.wide and self.out_dtype == self.dtype):
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
        """Return the problem with its offsets into x and y reduced by the given numbers of elements."""
        x, y = firsts[:2]
        return replace(self, x=self.x.moved(x), y_offset=self.y_offset - y)

    def element_of(self, name: str) -> str:
        """Return the name of an element of a buffer."""
        return f"{name}[i, k, j]" if name in ("x", "y") else f"{name}[k]"

    @property
    def places(self) -> dict[str, tuple[str, str]]:
        """The places of elements of y, weight and bias, and their numbers."""
        y = ("y_offset + (i * length + k) * inner + j", "y_offset + outer * length * inner")
        return {"y": y, "weight": ("k", "length"), "bias": ("k", "length")}

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
