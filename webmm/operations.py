"""What may become of a row of elements: one row per operation or normalisation, with its meaning in NumPy.

Elements are taken as float32, whatever the storage. How a shader accumulates each stands in shaders/common/reduce.wgsl.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import I32, DType
from webmm.errors import ProblemError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Operation:
    """An operation: its meaning in NumPy along the last axis, and what shaders need to know of it."""

    name: str
    reference: Callable[[Floats], NDArray[Any]]
    outside: float  # what stands for an element beyond the end of a row: it changes nothing
    empty: float | None = None  # of a row without elements; None where NumPy raises, too
    sums: bool = False  # its rounding error depends on the order of the elements
    index: bool = False  # its result is a position, not an element

    def out_dtype(self, dtype: DType) -> DType:
        """Return the type of the result: the elements', or int32 for a position."""
        return I32 if self.index else dtype


def logsumexp(x: Floats) -> Floats:
    """Return log Σ exp(x) along the last axis, without overflow."""
    with np.errstate(all="ignore"):
        top = np.max(x, axis=-1, keepdims=True)
        shift = np.where(np.isfinite(top), top, 0)
        return np.asarray(np.log(np.sum(np.exp(x - shift), axis=-1)) + shift[..., 0])


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("sum", lambda x: np.sum(x, axis=-1), 0.0, 0.0, sums=True),
        Operation("mean", lambda x: np.mean(x, axis=-1), 0.0, math.nan, sums=True),
        Operation("max", lambda x: np.max(x, axis=-1), -math.inf),
        Operation("min", lambda x: np.min(x, axis=-1), math.inf),
        Operation("argmax", lambda x: np.argmax(x, axis=-1), -math.inf, index=True),
        Operation("logsumexp", logsumexp, -math.inf, -math.inf, sums=True),
    )
}


def operation_of(name: str) -> Operation:
    """Return the operation called `name`; raises ProblemError for an unknown one."""
    if name not in OPERATIONS:
        raise ProblemError(f"unknown reduction {name!r}; choose from {', '.join(OPERATIONS)}")
    return OPERATIONS[name]


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
