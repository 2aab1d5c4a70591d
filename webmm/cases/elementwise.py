"""Test cases of elementwise functions. Errors are multiples of |x|."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases import expression
from webmm.cases.base import Exhibit, Size, Trial, ends
from webmm.cases.products import reduced, representable
from webmm.cases.steps.rows import ElementwiseSubject
from webmm.cases.streaming import SHOWN_SIZES, Streamed, StreamingOp, drawn
from webmm.dtypes import F32, MATRIX_DTYPES, DType, dtype_of
from webmm.engine.device import Device
from webmm.kernels.base import Kernel
from webmm.kernels.elementwise.fused import Fused
from webmm.kernels.elementwise.map import Map
from webmm.problems.base import Problem
from webmm.problems.elementwise import Elementwise
from webmm.problems.expression import Expression
from webmm.wgsl.epilogues import ACTIVATIONS, activation_of

CHECKED = 2**16  # the number of results to check, evenly spaced


def rounding(dtype: DType) -> float:
    """Return the largest error of a result: the error of a driver's built-in functions, and the rounding to `dtype`."""
    return dtype.exp_error + (dtype.eps if dtype != F32 else 0.0)


def scale_of(p: Elementwise, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the unit of errors of y: |x|, or |x| + |y| + 1 for a user-defined function."""
    return np.asarray(np.abs(x) + (0.0 if p.activation in ACTIVATIONS else 1.0 + np.abs(y)))


def activated(activation: str, row: Sequence[float]) -> list[float]:
    """Return the activation of numbers, in float64; JavaScript has its own."""
    values: list[float] = activation_of(activation).reference(np.array(row)).tolist()
    return values


class ElementwiseCase(Streamed[Elementwise]):
    """An array, and the expected results of some of its elements."""

    scale = "·|x|"

    def __init__(self, device: Device, problem: Elementwise) -> None:
        self.problem = problem
        self.x = drawn(problem.size, problem.dtype)
        self.inputs = {"x": device.array(self.x)}
        self.checked = np.unique(np.linspace(0, problem.size - 1, CHECKED).astype(int))
        self.reference = activation_of(problem.activation).reference

    @property
    def bound(self) -> float:
        """The bound as a multiple of |x|."""
        return rounding(self.problem.dtype)

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        """NumPy's results for the checked elements."""
        return self.reference(self.x[self.checked].astype(np.float64))

    @functools.cached_property
    def unit(self) -> NDArray[np.float64] | float:
        """The unit of errors for the checked elements."""
        dtype = self.problem.dtype
        x = self.x[self.checked].astype(np.float64)
        return scale_of(self.problem, x, self.expected) + dtype.tiny / dtype.eps

    def numpy(self) -> NDArray[Any]:
        """Compute in float32; since NumPy has no erf, GELU is replaced by its tanh approximation."""
        name = self.problem.activation
        return activation_of("gelu_tanh" if name == "gelu" else name).reference(self.in_f32)


class ElementwiseOp(StreamingOp[Elementwise]):
    """y = GELU(x), or another activation; expressions are tested here as well, but not timed."""

    name = "elementwise"
    axes = 1
    tried = (((1, 4096, 1), "nn"), ((1, 4095, 1), "nn"))
    variants = ("gelu", "gelu_tanh", *(name for name in ACTIVATIONS if not name.startswith("gelu")))

    def along(self, size: Size, dtype: DType) -> Elementwise:
        """Return the activation of m·n·k elements."""
        m, n, k = size[:3]
        return Elementwise(self.variant, m * n * k, dtype)

    def described(self, size: int, activation: str = "", dtype: str = "float32") -> Elementwise:  # type: ignore[override]
        """Return the activation of an array, for `webmm/shaders`."""
        return Elementwise(activation or self.variant, size, dtype_of(dtype))

    def reference(self, problem: Elementwise, row: Sequence[float]) -> Iterable[tuple[float, float]]:
        """Return the activation of each element x, with |x| as the unit; see `scale_of()`."""
        y = activated(problem.activation, row)
        least, own = problem.dtype.tiny / problem.dtype.eps, problem.activation not in ACTIVATIONS
        return [(value, abs(x) + (1.0 + abs(value) if own else 0.0) + least) for x, value in zip(row, y, strict=True)]

    def bound(self, problem: Elementwise) -> float:
        """Return the error as a multiple of |x|."""
        return rounding(problem.dtype)

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """The only stage, with its usual function."""
        return (Exhibit("GELU", SHOWN_SIZES),)

    def case(self, device: Device, problem: Elementwise) -> ElementwiseCase:
        """Return `problem` with a random array."""
        return ElementwiseCase(device, problem)

    def element(self, problem: Elementwise, place: int) -> tuple[int, ...]:
        """Return the number of the element."""
        return (place,)

    def steps(self, kernel: Any, problem: Elementwise | Expression) -> ElementwiseSubject:
        """Return NumPy's values for the steps of a kernel."""
        return ElementwiseSubject(self, kernel, problem)

    def stand_ins(self, kernel: Map | Fused, problem: Elementwise | Expression) -> Iterator[Any]:
        """Yield a problem of one workgroup's elements plus a remainder."""
        if isinstance(problem, Expression):
            assert isinstance(kernel, Fused), "the only kernel of expressions"
            yield from expression.stand_ins(kernel, problem)
            return
        assert isinstance(kernel, Map), "the only kernel of activations"
        p = problem
        size = reduced(p.size, 4 * kernel.unroll * kernel.size, 1)
        yield replace(p, size=size, x_offset=p.x_offset % 4, y_offset=p.y_offset % 4)

    def trial(self, problem: Elementwise | Expression) -> Trial:
        """Return x with the quarters from -4 to 4."""
        if isinstance(problem, Expression):
            return expression.trial(problem)
        p = problem
        x = np.arange(p.size) % 33 / 4 - 4
        buffer = np.concatenate([np.full(p.x_offset, np.nan), x])
        y = representable(activation_of(p.activation).reference(x), p.dtype)
        return Trial({"x": buffer}, y, rounding(p.dtype) * (scale_of(p, x, y) + p.dtype.tiny))

    def extremes(self, problem: Elementwise | Expression) -> Trial | None:
        """Return the ends of the range; None for a user-defined function, whose reference may leave them open."""
        p = problem
        if isinstance(p, Expression):
            return expression.extremes(p)
        if p.activation not in ACTIVATIONS:
            return None
        x = np.resize(ends(p.dtype), p.size).astype(np.float64)
        with np.errstate(all="ignore"):
            y = representable(activation_of(p.activation).reference(x), p.dtype)
            allowed = rounding(p.dtype) * np.abs(x) + p.dtype.tiny / p.dtype.eps  # of a subnormal number, or 0 for it
        buffer = np.concatenate([np.full(p.x_offset, np.nan), x])
        return Trial({"x": buffer}, y, np.where(np.isfinite(x), allowed, 0.0))

    def examples(self) -> Iterator[tuple[str, Elementwise]]:
        """Yield each activation and dtype, with sizes divisible by 4 and not."""
        for activation, dtype, size in itertools.product(ACTIVATIONS, MATRIX_DTYPES, (1024, 1023)):
            yield f"{activation} {dtype.name} {size}", Elementwise(activation, size, dtype)

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield the examples and the expressions."""
        yield from ((words, Map(), problem) for words, problem in self.examples())
        yield from ((words, Fused(), problem) for words, problem in expression.examples())


OP = ElementwiseOp
