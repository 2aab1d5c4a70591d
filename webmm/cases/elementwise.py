"""Functions of single elements on the bench. Errors are multiples of |x|."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases import expression
from webmm.cases.base import Size, Trial
from webmm.cases.normalise import EXP_ERROR
from webmm.cases.products import reduced, representable
from webmm.cases.streaming import Streamed, StreamingOp, drawn
from webmm.dtypes import F32, MATRIX_DTYPES, DType
from webmm.engine.device import Device
from webmm.epilogues import ACTIVATIONS, activation_of
from webmm.kernels.base import Kernel
from webmm.kernels.elementwise.fused import Fused
from webmm.kernels.elementwise.map import Map
from webmm.problems.base import Problem
from webmm.problems.elementwise import Elementwise
from webmm.problems.expression import Expression

LOOKED_AT = 2**16  # results that are checked, spread over all


def rounding(dtype: DType) -> float:
    """Return how far off a result may be: by what a driver's function is, and by what it is stored as."""
    return EXP_ERROR + (dtype.eps if dtype != F32 else 0.0)


def scale_of(p: Elementwise, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """Return what errors of y are multiples of: |x|; of a function of one's own what it may add, too."""
    return np.asarray(np.abs(x) + (0.0 if p.activation in ACTIVATIONS else 1.0 + np.abs(y)))


class ElementwiseCase(Streamed[Elementwise]):
    """One array, and what becomes of some of its elements."""

    scale = "·|x|"

    def __init__(self, device: Device, problem: Elementwise) -> None:
        self.problem = problem
        self.x = drawn(problem.size, problem.dtype)
        self.inputs = {"x": device.array(self.x)}
        self.checked = np.unique(np.linspace(0, problem.size - 1, LOOKED_AT).astype(int))
        self.reference = activation_of(problem.activation).reference

    @property
    def bound(self) -> float:
        """As a multiple of |x|."""
        return rounding(self.problem.dtype)

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        """What NumPy makes of these elements."""
        return self.reference(self.x[self.checked].astype(np.float64))

    @functools.cached_property
    def unit(self) -> NDArray[np.float64] | float:
        """The elements."""
        dtype = self.problem.dtype
        x = self.x[self.checked].astype(np.float64)
        return scale_of(self.problem, x, self.expected) + dtype.tiny / dtype.eps

    def numpy(self) -> NDArray[Any]:
        """Compute in float32; NumPy has no error function, so that its GELU is the approximation by tanh."""
        name = self.problem.activation
        return activation_of("gelu_tanh" if name == "gelu" else name).reference(self.in_f32)


class ElementwiseOp(StreamingOp[Elementwise]):
    """y = the GELU, or another activation, of each element; expressions are tried here as well, but not timed."""

    name = "elementwise"
    tried = (((1, 4096, 1), "nn"), ((1, 4095, 1), "nn"))
    variants = ("gelu", "gelu_tanh", *(name for name in ACTIVATIONS if not name.startswith("gelu")))

    def along(self, size: Size, dtype: DType) -> Elementwise:
        """Return the activation of as many elements."""
        m, n, k = size[:3]
        return Elementwise(self.variant, m * n * k, dtype)

    def case(self, device: Device, problem: Elementwise) -> ElementwiseCase:
        """Return `problem` with its array."""
        return ElementwiseCase(device, problem)

    def stand_ins(self, kernel: Map | Fused, problem: Elementwise | Expression) -> Iterator[Any]:
        """Yield the elements of a workgroup and what hangs over."""
        if isinstance(problem, Expression):
            assert isinstance(kernel, Fused), "no other computes expressions"
            yield from expression.stand_ins(kernel, problem)
            return
        assert isinstance(kernel, Map), "no other computes activations"
        p = problem
        size = reduced(p.size, 4 * kernel.unroll * kernel.size, 1)
        yield replace(p, size=size, x_offset=p.x_offset % 4, y_offset=p.y_offset % 4)

    def trial(self, problem: Elementwise | Expression) -> Trial:
        """Return quarters from -4 to 4."""
        if isinstance(problem, Expression):
            return expression.trial(problem)
        p = problem
        x = np.arange(p.size) % 33 / 4 - 4
        buffer = np.concatenate([np.full(p.x_offset, np.nan), x])
        y = representable(activation_of(p.activation).reference(x), p.dtype)
        return Trial({"x": buffer}, y, rounding(p.dtype) * (scale_of(p, x, y) + p.dtype.tiny))

    def examples(self) -> Iterator[tuple[str, Elementwise]]:
        """Yield each activation and dtype, of whole vec4 and of some more."""
        for activation, dtype, size in itertools.product(ACTIVATIONS, MATRIX_DTYPES, (1024, 1023)):
            yield f"{activation} {dtype.name} {size}", Elementwise(activation, size, dtype)

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield the examples, and expressions."""
        yield from ((words, Map(), problem) for words, problem in self.examples())
        yield from ((words, Fused(), problem) for words, problem in expression.examples())


OP = ElementwiseOp
