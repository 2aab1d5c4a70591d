"""Test cases of float matrix products: default sizes, random operands, and NumPy in float64 as the reference."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases import gemm_ladders
from webmm.cases.base import Case, Exhibit, Op, Size, Trial, split_size
from webmm.cases.exact import Ladder
from webmm.cases.finish import Finish
from webmm.cases.products import (
    APPROXIMATION,
    add_cancellations,
    allowed_errors,
    buffers_of,
    dense,
    operand_values,
    quarters,
    representable,
    small_function,
    small_sizes,
)
from webmm.cases.steps.products import GemmSubject
from webmm.dtypes import F32, MATRIX_DTYPES, WIDE, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError
from webmm.kernels.base import LOOP_LIMIT, Kernel
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.matrix_unit_high import MatrixUnitHigh
from webmm.kernels.gemm.slices import Slices, Software
from webmm.kernels.gemm.slices_unit import SlicesUnit
from webmm.measure.roofline import Roofline
from webmm.measure.verify import SAMPLED, Checker, Wrong, bound, unwritten, wrong_elements
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes
from webmm.wgsl.epilogues import ACTIVATIONS, BIASES, TRIALS, in_uniform

DEFAULT_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
SIZES_SHOWN = 4
SHAPES = {"aligned": (512, 512, 512), "ragged": (509, 511, 513), "long K": (509, 511, LOOP_LIMIT + 1)}  # of examples
STEEPEST = 1.2  # the largest slope of a built-in activation


class Operands(Case[Gemm]):
    """Dense matrices, drawn uniformly from [-0.5, 0.5)."""

    scale = "·|A||B|"

    def __init__(self, device: Device, problem: Gemm) -> None:
        self.problem = problem
        rng = np.random.default_rng(0)
        dtype, batch = problem.dtype.numpy, (problem.batch,) if problem.batch > 1 else ()
        real = problem.dtype.sums.numpy
        a = (rng.random((*batch, problem.m, problem.k), real) - 0.5).astype(dtype)  # type: ignore[arg-type]
        b = (rng.random((*batch, problem.k, problem.n), real) - 0.5).astype(dtype)  # type: ignore[arg-type]
        self.checker = Checker(problem, a, b)
        operands = (("a", a, problem.a), ("b", b, problem.b))
        self.inputs = {
            name: device.array(x.swapaxes(-1, -2) if stored.transposed else x) for name, x, stored in operands
        }

    @property
    def bound(self) -> float:
        """The bound as a multiple of |A|·|B|."""
        return bound(self.problem)

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error as a multiple of |A|·|B|."""
        return self.checker.error(self._as_matrices(got))

    def wrong(self, got: NDArray[Any]) -> Wrong | None:
        """Return the wrong elements."""
        return self.checker.wrong(self._as_matrices(got), self.bound)

    def _as_matrices(self, got: NDArray[Any]) -> NDArray[Any]:
        return got.reshape(*self.checker.a.shape[:-1], self.problem.n)

    @functools.cached_property
    def _in_sums(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        real = self.problem.dtype.sums.numpy
        a, b = (x.astype(real) for x in (self.checker.a, self.checker.b))
        return a, b, np.empty((*a.shape[:-1], self.problem.n), real)

    def numpy(self) -> NDArray[Any]:
        """Multiply in float32, in which NumPy is fast, or in float64 for a float64 problem."""
        a, b, out = self._in_sums
        return np.matmul(a, b, out=out)

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of `numpy()`."""
        a, b, _ = self._in_sums
        p = self.problem
        return Checker(gemm(p.m, p.n, p.k, batch=p.batch, dtype=p.dtype.sums), a, b).error(got)


class Finished(Operands):
    """A product with a bias or an activation; only some evenly spaced rows of C are checked."""

    scale = "·(|A||B| + |bias|)"

    def __init__(self, device: Device, problem: Gemm) -> None:
        super().__init__(device, problem)
        p = problem
        length = {"row": p.m, "column": p.n}.get(p.bias, 0)
        self.bias = (np.random.default_rng(1).random(length, np.float32) - np.float32(0.5)).astype(p.dtype.numpy)
        if p.bias:
            self.inputs["bias"] = device.array(self.bias)

    @property
    def bound(self) -> float:
        """The bound as a multiple of |A|·|B| + |bias|."""
        p = self.problem
        return STEEPEST * bound(p) + (
            (p.dtype.exp_error if p.dtype.wide else APPROXIMATION) if p.activation else 2 * p.dtype.sums.eps
        )

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error as a multiple of |A|·|B| + |bias|; inf if any element was not written (NaN)."""
        if np.isnan(got).any():
            return math.inf
        found, expected, unit, _ = self._compared(got)
        return float((np.abs(found - expected) / unit).max())

    def wrong(self, got: NDArray[Any]) -> Wrong | None:
        """Return the wrong elements among the rows that are checked, or else all that were not written."""
        found, expected, unit, rows = self._compared(got)
        elements = wrong_elements(found, expected, ~(np.abs(found - expected) <= self.bound * unit))
        if elements is None:
            return unwritten(got)
        batch, row, column = np.unravel_index(elements.first, (self.problem.batch, *found.shape[-2:]))
        return replace(elements, first=int((batch * self.problem.m + rows[row]) * self.problem.n + column))

    def _compared(self, got: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[np.intp]]:
        """Return some rows of a result, their expected values, the unit of their errors, and their numbers."""
        p = self.problem
        rows = np.unique(np.linspace(0, p.m - 1, SAMPLED).astype(int))
        a, b = (x.astype(np.float64) for x in (self.checker.a[..., rows, :], self.checker.b))
        bias = self.bias.astype(np.float64)
        bias = bias[rows, None] if p.bias == "row" else bias if p.bias else np.zeros(1)
        found = self._as_matrices(got)[..., rows, :].astype(np.float64)
        unit = np.abs(a) @ np.abs(b) + np.abs(bias) + p.out_dtype.tiny / p.out_dtype.eps
        return found, p.reference(a @ b, bias=bias), unit, rows

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of `numpy()`, which computes the product without the epilogue."""
        return Operands.error(self, got)


class GemmOp(Op[Gemm]):
    """C = A·B."""

    name = "gemm"
    shape = "N nor MxNxK (a batch: 64x64x64@8)"
    operator = "A @ B"
    plotted = True
    variants = ("", "high")  # the precision, "" for the default
    tried = (  # aligned, with ragged edges, vectors, transposed, and a K beyond the limit of loop iterations
        ((64, 64, 64), "nn"),
        ((65, 67, 63), "nn"),
        ((1, 256, 256), "nn"),
        ((256, 1, 256), "nn"),
        ((200, 200, 200), "nt"),
        ((3, 5, 100_000), "nn"),
    )

    def knows(self, variant: str) -> bool:
        """Return whether `variant` is valid; see `Finish`."""
        return Finish.parse(variant) is not None

    def finished(self, dtype: str, **asked: str | None) -> GemmOp:
        """Return the op with a precision and an epilogue; raises ConfigError if its variant has them already."""
        given = {name: value for name, value in asked.items() if value}
        if given and self.variant:
            raise ConfigError(
                f"--op gemm:{self.variant} says it all: leave out --{next(iter(given)).replace('_', '-')}"
            )
        if "out_dtype" in given and dtype_of(given["out_dtype"]) == dtype_of(dtype):
            del given["out_dtype"]
        return type(self)(str(Finish(**given)))

    def traced(self, problem: Gemm) -> bool:
        """Return whether there is no epilogue, which `webmm debug` does not show."""
        return super().traced(problem) and not (problem.bias or problem.activation)

    def variant_of(self, problem: Gemm) -> str:
        """Return the precision and epilogue; records for the choice of kernels contain only the precision."""
        return str(Finish.of(problem))

    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return the four largest default cubes that take at most 0.1 s at the peak rate."""
        del budget
        fitting = [n for n in DEFAULT_SIZES if 2 * n**3 <= 0.1 * ceiling.gflops * 1e9]
        return [(n, n, n) for n in fitting[-SIZES_SHOWN:] or [DEFAULT_SIZES[0]]]

    def parse(self, text: str) -> Size:
        """Return (m, n, k), or (m, n, k, batch) for 64x512x512@8; raises ProblemError for an invalid size."""
        matrix, at, batch = text.partition("@")
        size, count = super().parse(matrix), split_size(batch)
        if at and len(count) != 1:
            raise self.invalid_size(text)
        return (*size[:3], count[0]) if count else size

    def problem(self, size: Size, dtype: str, layout: str = "nn") -> Gemm:
        """Return the product of a batch of dense matrices; a t in `layout` stands for a transposed A or B."""
        m, n, k, *batch = size
        finish = Finish.parse(self.variant) or Finish()
        plain = gemm(
            *(m, n, k),
            dtype=dtype,
            out_dtype=finish.out_dtype or None,
            batch=batch[0] if batch else 1,
            precision=finish.precision,
            **transposes(layout),
        )
        return replace(plain, bias=finish.bias, activation=finish.activation)

    def dense(self, sizes: tuple[int, int, int, int], dtype: str, layout: str) -> Gemm:
        """Return the product of a batch of dense matrices."""
        return self.problem(sizes, dtype, layout)

    def described(
        self,
        m: int,
        n: int,
        k: int,
        batch: int = 1,
        dtype: str = "float32",
        out_dtype: str | None = None,
        transpose_a: bool = False,
        transpose_b: bool = False,
        bias: str = "",
        activation: str = "",
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> Gemm:
        """Return the product of dense matrices, for `webmm/shaders`."""
        plain = gemm(
            *(m, n, k),
            dtype=dtype,
            out_dtype=out_dtype,
            batch=batch,
            transpose_a=transpose_a,
            transpose_b=transpose_b,
        )
        return replace(plain, bias=bias, activation=activation, alpha=alpha, beta=beta)

    @property
    def ladders(self) -> tuple[Ladder, ...]:
        """Thin matrices, and float64 emulated with integers."""
        return gemm_ladders.LADDERS

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """The stage for precision "high": the others have ladders of their own."""
        sizes: tuple[Size, ...] = ((64, 64, 1024), (512, 512, 8192), (128, 128, 32768))
        return (
            Exhibit("Matrix product, precision “high”", {"gpu": sizes, "cpu": sizes}, "high", ("matrix_unit_high",)),
        )

    def case(self, device: Device, problem: Gemm) -> Operands:
        """Return `problem` with random matrices."""
        return Finished(device, problem) if problem.bias or problem.activation else Operands(device, problem)

    def steps(self, kernel: Any, problem: Gemm) -> GemmSubject:
        """Return NumPy's values for the steps of a kernel."""
        return GemmSubject(self, kernel, problem)

    def stand_ins(self, kernel: GemmKernel, problem: Gemm) -> Iterator[Gemm]:
        """Yield small products with the same epilogue."""
        p = problem
        for m, n, k in small_sizes(kernel, p):
            yield dataclasses.replace(
                p,
                m=m,
                n=n,
                k=k,
                batch=1,
                a=dense(p.a, (m, k), (p.m, p.k)),
                b=dense(p.b, (k, n), (p.k, p.n)),
                c=dense(p.c, (m, n), (p.m, p.n)),
                bias_offset=0,
                **small_function(p, m, n),
                **p.trial,
            )

    def trial(self, problem: Gemm) -> Trial:
        """Return matrices of quarters, so that a single missing term is detected, even among 100,000."""
        p, rng = problem, np.random.default_rng(0)
        bias_shape = {"column": (p.n,), "row": (p.m, 1)}.get(p.bias, (p.m, p.n))
        a, b, c, bias = (quarters(rng, shape) for shape in ((p.m, p.k), (p.k, p.n), (p.m, p.n), bias_shape))
        if p.precision == "high" and p.dtype == F32:
            add_cancellations(a, b)
        if in_uniform(p.activation):
            a[1::2] *= -1  # an expression may take negative numbers otherwise
        more, added = operand_values(p, rng), bias if p.bias else 0.0
        finished = functools.partial(p.reference, c=c, bias=added, operands=list(more.values()))
        values = {"a": a, "b": b, "bias": bias, **({"c": c} if p.beta else {}), **more}
        return Trial(
            buffers_of(p, values, {"a": p.a, "b": p.b, "c": p.c}),
            representable(finished(a @ b), p.out_dtype),
            allowed_errors(p, a @ b, finished),
        )

    def examples(self) -> Iterator[tuple[str, Gemm]]:
        """Yield each dtype and layout, aligned, ragged and with a long K, and some with every epilogue."""
        for dtype, (a, b), (words, shape) in itertools.product(
            MATRIX_DTYPES, itertools.product("nt", repeat=2), SHAPES.items()
        ):
            problem = gemm(*shape, dtype=dtype, transpose_a=a == "t", transpose_b=b == "t")
            yield f"{dtype.name} {a}{b} {words}", problem
            if a + b == "nn" and words != "long K":
                yield from _epilogues(f"{dtype.name} {words}", problem)

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield each stage on the examples, then precision "high" with one phase and with two, then float64,
        including the kernels that emulate it.
        """
        yield from super().shaders()
        for (words, problem), phases in itertools.product(self.examples(), (1, 2)):
            high, split = MatrixUnitHigh(phases=phases), replace(problem, precision="high")
            if high.unsuited(split) is None:
                yield f"{words}, precision high", high, split
        kernels = (*(stage() for stage in self.stages), Software(), Slices(), SlicesUnit())
        for kernel, dtype in itertools.product(kernels, WIDE):
            for a, b, shape in (*(("n", "n", s) for s in SHAPES.values()), ("t", "t", SHAPES["ragged"])):
                problem = gemm(*shape, dtype=dtype, transpose_a=a == "t", transpose_b=b == "t")
                if kernel.unsuited(problem) is None:
                    yield f"{dtype.name} {a}{b} {shape}", kernel, problem
                    for finish, finished in _epilogues(f"{dtype.name} {shape}", problem):
                        yield finish, kernel, finished


def _epilogues(words: str, problem: Gemm) -> Iterator[tuple[str, Gemm]]:
    """Yield `problem` with each kind of bias and each activation, and with all numbers of the epilogue."""
    for bias, activation in itertools.zip_longest(BIASES, ACTIVATIONS, fillvalue=""):
        finished = replace(problem, **TRIALS, bias=bias, activation=activation)
        yield f"{words} {', '.join(TRIALS)}, bias {bias or 'none'}, {activation or 'no activation'}", finished


OP = GemmOp
