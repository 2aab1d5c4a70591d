"""Products of 8-bit integers on the bench: bit for bit as the reference has them, or wrong."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Case, Op, Size
from webmm.cases.gemm import GemmOp
from webmm.dtypes import BYTES, F32, I8, I32, U8, DType, dtype_of
from webmm.engine.device import Device
from webmm.problems.product import LAYOUTS, Operand, transposes
from webmm.problems.quantized import Quantized, describe
from webmm.problems.scheme import Scheme, limits, reference
from webmm.roofline import Roofline
from webmm.verify import FULL_CHECK, SAMPLED


class Integers(Case[Quantized]):
    """One problem's matrices, of all integers that their types have."""

    def __init__(self, device: Device, problem: Quantized) -> None:
        p = self.problem = problem
        rng = np.random.default_rng(0)
        self.a, self.b = (
            rng.integers(*limits(dtype), shape, np.int16, endpoint=True).astype(dtype.numpy)
            for dtype, shape in ((p.a_dtype, (p.m, p.k)), (p.b_dtype, (p.k, p.n)))
        )
        self.scheme = scheme_of(p.n, p.k, p.a_dtype, p.b_dtype, p.out_dtype)
        _, terms = describe(p.m, p.n, p.k, (p.a_dtype, p.a), (p.b_dtype, p.b), self.scheme, p.out_dtype)
        stored = (x.T if at.transposed else x for x, at in ((self.a, p.a), (self.b, p.b)))
        names = (extent.name for extent in p.buffers() if not extent.written)
        self.inputs = {name: device.array(x) for name, x in zip(names, (*stored, *terms), strict=True)}

    @property
    def bound(self) -> float:
        """Nothing is rounded but once, and that is part of the meaning."""
        return 0.0

    def error(self, got: NDArray[Any]) -> float:
        """Return by how much the worst element is off: of all, or of spread rows of a large product."""
        p = self.problem
        whole = p.m * p.n * p.k <= FULL_CHECK
        rows = np.arange(p.m) if whole else np.unique(np.linspace(0, p.m - 1, SAMPLED).astype(int))
        expected = reference(self.a[rows], self.b, self.scheme, p.out_dtype)
        return float(np.abs(got.reshape(p.m, p.n)[rows].astype(np.float64) - expected).max())

    @functools.cached_property
    def _in_f32(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.a.astype(np.float32), self.b.astype(np.float32)

    def numpy(self) -> NDArray[Any]:
        """Multiply in float32, which is what NumPy is fast at, and nothing more."""
        a, b = self._in_f32
        product: NDArray[Any] = a @ b
        return product

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return 0: floats are not asked for the same bits."""
        del got
        return 0.0


def scheme_of(n: int, k: int, a: DType, b: DType, out: DType) -> Scheme:
    """Return what a layer may have: zero points where the types are unsigned, and a scale for each column of B."""
    zeros = {I8: 0, U8: 117, I32: 0, F32: 0}
    spread = 74.0  # of the integers of a type, all as likely
    scale_c = float(np.float32(spread * k**0.5)) if out in BYTES else None
    scales = np.linspace(0.5, 1.5, n, dtype=np.float32) if n > 1 else np.ones((), np.float32)
    one, (zero_a, zero_b) = np.ones((), np.float32), np.array([[zeros[a]], [zeros[b]]], np.int32)
    return Scheme(one, zero_a.reshape(()), scales, zero_b.reshape(()), scale_c, zeros[out] if scale_c else 0, None)


class QuantizedOp(Op[Quantized]):
    """C = A·B of 8-bit integers, requantised to the same type."""

    name = "quantized"
    unit = "GOP/s"
    dtypes = (U8, I8)

    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return those of products of floats, to stand beside them."""
        return GemmOp().default_sizes(ceiling, budget)

    def problem(self, size: Size, dtype: str, layout: str = "nn") -> Quantized:
        """Return the dense product of that size; t in `layout` says that A or B is transposed."""
        kind = dtype_of(dtype)
        return self._problem(size, kind, kind, kind, **transposes(layout))

    def _problem(
        self, size: Size, a: DType, b: DType, out: DType, transpose_a: bool = False, transpose_b: bool = False
    ) -> Quantized:
        m, n, k = size
        left = Operand(m if transpose_a else k, transposed=transpose_a)
        right = Operand(k if transpose_b else n, transposed=transpose_b)
        return describe(m, n, k, (a, left), (b, right), scheme_of(n, k, a, b, out), out)[0]

    def case(self, device: Device, problem: Quantized) -> Integers:
        """Return `problem` with its matrices."""
        return Integers(device, problem)

    def examples(self) -> Iterator[tuple[str, Quantized]]:
        """Yield types × layouts on shapes of every alignment, then outputs × what may differ by row and column."""
        shapes = {"aligned": (512, 512, 512), "by words": (508, 516, 500), "ragged": (509, 511, 513)}
        for (a, b), layout, (words, shape) in itertools.product(((U8, U8), (U8, I8)), LAYOUTS, shapes.items()):
            yield f"{a.name} {b.name} {layout} {words}", self._problem(shape, a, b, a, **transposes(layout))
        for out, words in itertools.product((I8, U8, I32, F32), ("aligned", "ragged")):
            plain = self._problem(shapes[words], I8, U8, out)
            each = replace(plain, zero_a=None, zero_b=None, scaled_rows=True, scaled_columns=True, bias=True)
            for problem, differs in ((plain, "scales by column"), (each, "all by row and column")):
                yield f"int8 uint8 to {out.name} {words}, {differs}", problem
