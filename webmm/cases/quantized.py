"""Test cases of quantised 8-bit products, whose results must be bit for bit those of the reference."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.arguments.quantized import integer_range
from webmm.cases.base import Case, Exhibit, Op, Size, Trial
from webmm.cases.exact import ExactCase, Input, Ladder
from webmm.cases.exact import Integers as Drawn
from webmm.cases.gemm import GemmOp
from webmm.cases.products import dense, laid_out, small_sizes
from webmm.cases.steps.products import IntegerSubject
from webmm.choose.quantized import CPU
from webmm.dtypes import BYTES, F32, I8, I32, U8, DType, dtype_of
from webmm.engine.device import Device
from webmm.errors import ProblemError
from webmm.kernels.quantized.base import PACKED, WIDE, QuantizedKernel
from webmm.kernels.quantized.matrix_unit import MatrixUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.measure.roofline import Roofline
from webmm.measure.verify import FULL_CHECK, SAMPLED, Wrong, wrong_elements
from webmm.problems.product import LAYOUTS, Operand, transposes
from webmm.problems.quantized import Quantized, describe
from webmm.problems.scheme import Scheme, reference

SIDES = {"gpu": ((128,), (512,), (1024,), (2048,)), "cpu": ((61,), (128,), (256,))}  # on the page
ZEROS = {I8: 0, U8: 117, I32: 0, F32: 0}


class Integers(Case[Quantized]):
    """Random matrices over the whole range of their dtypes."""

    def __init__(self, device: Device, problem: Quantized) -> None:
        p = self.problem = problem
        rng = np.random.default_rng(0)
        self.a, self.b = (
            rng.integers(*integer_range(dtype), shape, np.int16, endpoint=True).astype(dtype.numpy)
            for dtype, shape in ((p.a_dtype, (p.m, p.k)), (p.b_dtype, (p.k, p.n)))
        )
        self.scheme = scheme_of(p.n, p.k, p.a_dtype, p.b_dtype, p.out_dtype)
        _, terms = describe(p.m, p.n, p.k, (p.a_dtype, p.a), (p.b_dtype, p.b), self.scheme, p.out_dtype)
        stored = (x.T if at.transposed else x for x, at in ((self.a, p.a), (self.b, p.b)))
        names = (extent.name for extent in p.buffers() if not extent.written)
        self.inputs = {name: device.array(x) for name, x in zip(names, (*stored, *terms), strict=True)}

    @property
    def bound(self) -> float:
        """0, since the reference defines the only rounding."""
        return 0.0

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error of an element; for a large product only evenly spaced rows are checked."""
        found, expected, _ = self._compared(got)
        return float(np.abs(found - expected).max())

    def wrong(self, got: NDArray[Any]) -> Wrong | None:
        """Return the elements that differ, among the rows that are checked."""
        found, expected, rows = self._compared(got)
        elements = wrong_elements(found, expected, found != expected)
        if elements is None:
            return None
        row, column = divmod(elements.first, self.problem.n)
        return replace(elements, first=int(rows[row]) * self.problem.n + column)

    def _compared(self, got: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
        """Return rows of a result, their expected values, and their numbers."""
        p = self.problem
        whole = p.m * p.n * p.k <= FULL_CHECK
        rows = np.arange(p.m) if whole else np.unique(np.linspace(0, p.m - 1, SAMPLED).astype(int))
        expected = reference(self.a[rows], self.b, self.scheme, p.out_dtype).astype(np.float64)
        return got.reshape(p.m, p.n)[rows].astype(np.float64), expected, rows

    @functools.cached_property
    def _in_f32(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.a.astype(np.float32), self.b.astype(np.float32)

    def numpy(self) -> NDArray[Any]:
        """Multiply in float32, in which NumPy is fast, without requantisation."""
        a, b = self._in_f32
        product: NDArray[Any] = a @ b
        return product

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return 0, since the float32 product is not comparable bit for bit."""
        del got
        return 0.0


def scheme_of(n: int, k: int, a: DType, b: DType, out: DType) -> Scheme:
    """Return a typical scheme of a layer: zero points for unsigned dtypes, and a scale for each column of B."""
    for name, dtype in {"a": a, "b": b}.items():
        if dtype not in BYTES:
            raise ProblemError(f"{name} is {dtype.name}; quantised operands must be uint8 or int8: webmm.quantize(x)")
    spread = 74.0  # standard deviation of uniformly distributed 8-bit integers
    scale_c = float(np.float32(spread * k**0.5)) if out in BYTES else None
    scales = np.linspace(0.5, 1.5, n, dtype=np.float32) if n > 1 else np.ones((), np.float32)
    one, (zero_a, zero_b) = np.ones((), np.float32), np.array([[ZEROS[a]], [ZEROS[b]]], np.int32)
    return Scheme(one, zero_a.reshape(()), scales, zero_b.reshape(()), scale_c, ZEROS[out] if scale_c else 0, None)


def _scheme_like(p: Quantized) -> Scheme:
    """Return a scheme of the same kind as that of `p`, with its zero points, under which every term affects C."""
    rng = np.random.default_rng(1)
    spread_a, spread_b = (
        np.linspace(0.5, 1.0, length, dtype=np.float32) if scaled else np.ones((), np.float32)
        for scaled, length in ((p.scaled_rows, p.m), (p.scaled_columns, p.n))
    )
    zero_a, zero_b = (
        np.array(ZEROS[dtype] + rng.integers(-2, 3, length) if zero is None else zero, np.int32)
        for zero, dtype, length in ((p.zero_a, p.a_dtype, p.m), (p.zero_b, p.b_dtype, p.n))
    )
    bias = rng.integers(-1000, 1001, p.n, np.int32) if p.bias else None
    return Scheme(spread_a, zero_a, spread_b, zero_b, _step(p) if p.out_dtype in BYTES else None, p.zero_c, bias)


def _step(p: Quantized) -> float:
    """Return the scale of C for which most sums of uniformly distributed integers are in its range."""
    variance = (256**2 - 1) / 12  # of uniformly distributed 8-bit integers
    means = [
        sum(integer_range(dtype)) / 2 - (ZEROS[dtype] if zero is None else zero)
        for dtype, zero in ((p.a_dtype, p.zero_a), (p.b_dtype, p.zero_b))
    ]
    mean = math.prod(means)
    deviation = math.sqrt(p.k * (math.prod(variance + x**2 for x in means) - mean**2))
    return (p.k * abs(mean) + 2 * deviation) / 128


class QuantizedOp(Op[Quantized]):
    """C = A·B of 8-bit integers, requantised to the same type."""

    name = "quantized"
    unit = "GOP/s"
    dtypes = (U8, I8)
    tried = (((64, 64, 64), "nn"), ((65, 67, 63), "nn"), ((200, 200, 200), "nt"), ((3, 5, 70_000), "nn"))

    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return the default sizes of float matrix products, for comparison."""
        return GemmOp().default_sizes(ceiling, budget)

    def problem(self, size: Size, dtype: str, layout: str = "nn") -> Quantized:
        """Return the dense product of a size; a t in `layout` stands for a transposed A or B."""
        kind = dtype_of(dtype)
        return self._problem(size, kind, kind, kind, **transposes(layout))

    def _problem(
        self, size: Size, a: DType, b: DType, out: DType, transpose_a: bool = False, transpose_b: bool = False
    ) -> Quantized:
        m, n, k = size[:3]
        left = Operand(m if transpose_a else k, transposed=transpose_a)
        right = Operand(k if transpose_b else n, transposed=transpose_b)
        return describe(m, n, k, (a, left), (b, right), scheme_of(n, k, a, b, out), out)[0]

    def described(
        self,
        m: int,
        n: int,
        k: int,
        dtype: str = "uint8",
        b_dtype: str | None = None,
        out_dtype: str = "int32",
        transpose_a: bool = False,
        transpose_b: bool = False,
        zero_a: int | None = 0,
        zero_b: int | None = 0,
        zero_c: int = 0,
        multiplier: tuple[int, int] = (0, 0),
        scaled_rows: bool = False,
        scaled_columns: bool = False,
        bias: bool = False,
    ) -> Quantized:
        """Return the product of dense matrices with the fields of `Quantized`, for `webmm/shaders`."""
        a = Operand(m if transpose_a else k, m * k, transposed=transpose_a)
        b = Operand(k if transpose_b else n, k * n, transposed=transpose_b)
        return Quantized(
            *(m, n, k, dtype_of(dtype), dtype_of(b_dtype or dtype), dtype_of(out_dtype), a, b),
            zero_a=zero_a,
            zero_b=zero_b,
            zero_c=zero_c,
            multiplier=multiplier,
            scaled_rows=scaled_rows,
            scaled_columns=scaled_columns,
            bias=bias,
        )

    @property
    def ladders(self) -> tuple[Ladder, ...]:
        """All stages, with the same dtype for both operands and the result."""
        return LADDERS

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """Nothing: all stages are in `ladders`."""
        return ()

    def case(self, device: Device, problem: Quantized) -> Integers:
        """Return `problem` with random matrices."""
        return Integers(device, problem)

    def steps(self, kernel: Any, problem: Quantized) -> IntegerSubject:
        """Return NumPy's values for the steps of a kernel."""
        return IntegerSubject(self, kernel, problem)

    def stand_ins(self, kernel: QuantizedKernel, problem: Quantized) -> Iterator[Quantized]:
        """Yield small products with the same zero points of A and B, whose sums cover the range of C."""
        p = problem
        for m, n, k in small_sizes(kernel, p, WIDE):
            a = dense(p.a, (m, k), (p.m, p.k), (PACKED, WIDE))
            b = dense(p.b, (k, n), (p.k, p.n), (PACKED, WIDE))
            middle = sum(integer_range(p.out_dtype)) // 2 if p.out_dtype in BYTES else 0
            small = replace(p, m=m, n=n, k=k, a=a, b=b, zero_c=middle)
            yield describe(m, n, k, (p.a_dtype, a), (p.b_dtype, b), _scheme_like(small), p.out_dtype)[0]

    def trial(self, problem: Quantized) -> Trial:
        """Return matrices over the whole range of their dtypes; no error is allowed."""
        p, rng = problem, np.random.default_rng(0)
        a, b = (
            rng.integers(*integer_range(dtype), shape, np.int16, endpoint=True)
            for dtype, shape in ((p.a_dtype, (p.m, p.k)), (p.b_dtype, (p.k, p.n)))
        )
        scheme = _scheme_like(p)
        described, terms = describe(p.m, p.n, p.k, (p.a_dtype, p.a), (p.b_dtype, p.b), scheme, p.out_dtype)
        assert described == p, "a problem from stand_ins(), or one with a scale per column"
        ends = {extent.name: extent.end for extent in p.buffers() if not extent.written}
        matrices = laid_out(a, p.a, ends["a"]), laid_out(b, p.b, ends["b"])
        buffers = dict(zip(ends, (*matrices, *(x.ravel() for x in terms)), strict=True))
        return Trial(buffers, reference(a, b, scheme, p.out_dtype).astype(np.float64), 0.0)

    def examples(self) -> Iterator[tuple[str, Quantized]]:
        """Yield dtypes and layouts for shapes of every alignment, then results with values per row and column."""
        shapes = {"aligned": (512, 512, 512), "by words": (508, 516, 500), "ragged": (509, 511, 513)}
        for (a, b), layout, (words, shape) in itertools.product(((U8, U8), (U8, I8)), LAYOUTS, shapes.items()):
            yield f"{a.name} {b.name} {layout} {words}", self._problem(shape, a, b, a, **transposes(layout))
        for out, words in itertools.product((I8, U8, I32, F32), ("aligned", "ragged")):
            plain = self._problem(shapes[words], I8, U8, out)
            each = replace(plain, zero_a=None, zero_b=None, scaled_rows=True, scaled_columns=True, bias=True)
            for problem, differs in ((plain, "scales by column"), (each, "all by row and column")):
                yield f"int8 uint8 to {out.name} {words}, {differs}", problem


def multiplied(size: tuple[int, ...], dtype: DType) -> ExactCase:
    """Return a product of matrices of 8-bit integers, with a zero point and a scale for each matrix."""
    (n,) = size
    scheme = scheme_of(1, n, dtype, dtype, dtype)
    problem, _ = describe(n, n, n, (dtype, Operand(n)), (dtype, Operand(n)), scheme, dtype)
    inputs = tuple(Input(name, dtype, n * n, seed, *integer_range(dtype)) for seed, name in enumerate("ab", 1))

    def compute(a: Drawn, b: Drawn) -> NDArray[Any]:
        a_q, b_q = (x.reshape(n, n).astype(dtype.numpy) for x in (a, b))
        return reference(a_q, b_q, scheme, dtype)

    return ExactCase(problem, inputs, compute)


_KERNELS = {
    kind: (Unpacked(), replace(packed, dot="emulated"), packed, MatrixUnit())
    for kind, packed in (("gpu", Packed()), ("cpu", CPU))
}
LADDERS = (Ladder("Matrix product, 8-bit integers", _KERNELS, multiplied, SIDES, (U8, I8)),)
OP = QuantizedOp
