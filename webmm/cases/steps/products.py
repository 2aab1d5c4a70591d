"""Debug subjects of matrix products: both factors and the sum at each inner step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.steps.reference import Floats, Origins, Reference, by_part
from webmm.cases.steps.subject import Subject
from webmm.dtypes import F32
from webmm.engine.device import Device
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.splits import Divided
from webmm.kernels.weights.vector import Vector
from webmm.measure.verify import bound
from webmm.problems.scheme import reference as quantized_reference

PRODUCT = {
    "A": {"LOADED_A": "A loaded", "SHARED_A": "A shared"},
    "B": {"LOADED_B": "B loaded", "SHARED_B": "B shared"},
    "sum": {"ACC": "sum"},
}


class ProductSubject(Subject):
    """C[row, col] = Σ A[row, k]·B[k, col]."""

    a: NDArray[Any]  # (m, k), as multiplied
    b: NDArray[Any]  # (k, n)
    error_b = 0.0  # relative error allowed in an element of B
    beyond_b = 0.0  # expected value beyond the end of B

    @property
    def length(self) -> int:
        """The inner size."""
        return int(self.problem.k)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of C."""
        return self.problem.m, self.problem.n

    def part(self, k: int) -> int:
        """Return the number of the partial sum that includes inner step `k`."""
        del k
        return 0

    def total(self, row: int, col: int, products: Floats) -> tuple[float, float]:
        """Return C[row, col] and its allowed error."""
        size = float(np.abs(products).sum())
        out = self.problem.out_dtype
        return float(products.sum()), bound(self.problem) * (size + out.tiny / out.eps)

    def reference(self, row: int, col: int) -> Reference:
        """Return both factors and the sum at each step."""
        a, b = self.padded(self.a[row]), self.padded(self.b[:, col], self.beyond_b)
        products = a * np.nan_to_num(b)
        parts = np.array([self.part(k) for k in range(self.steps)])
        sums = by_part(parts, products, np.cumsum)
        slack = by_part(parts, np.abs(products), lambda x: np.arange(2, len(x) + 2) * F32.eps * np.cumsum(x))
        total, allowed = self.total(row, col, products[: self.length])
        return Reference(
            *(f"C[{row}, {col}]", self.length, PRODUCT),
            {"A": a, "B": b, "sum": sums},
            {"A": np.zeros(self.steps), "B": self.error_b * np.abs(b), "sum": slack + F32.eps * np.abs(sums)},
            parts,
            *(total, allowed, lambda result: float(result.reshape(self.shape)[row, col])),
            every=frozenset("AB"),
            places={"A": f"A[{row}, {{k}}]", "B": f"B[{{k}}, {col}]"},
            origin=Origins(A=self.a, B=self.b),
        )


class GemmSubject(ProductSubject):
    """Floating-point products of normally distributed operands."""

    def drawn(self, device: Device) -> Any:
        """Create the operands, and return this subject as their holder."""
        p, rng = self.problem, np.random.default_rng(0)
        self.a, self.b = (rng.standard_normal(shape).astype(p.dtype.numpy) for shape in ((p.m, p.k), (p.k, p.n)))
        stored = {"a": (self.a, p.a), "b": (self.b, p.b)}
        self.inputs = {name: device.array(x.T if at.transposed else x) for name, (x, at) in stored.items()}
        return self

    def part(self, k: int) -> int:
        """Return the kernel's answer."""
        return int(self.kernel.part(self.problem, k))


class WeightsSubject(ProductSubject):
    """Products with quantised weights; B holds the dequantised weights."""

    error_b = F32.eps
    beyond_b = np.nan  # the padding of a block is unknown; A is zero there

    def drawn(self, device: Device) -> Any:
        """Return the op's case, and use its operands as A and B."""
        case = super().drawn(device)
        self.a, self.b = case.checker.a, case.checker.b
        return case

    def part(self, k: int) -> int:
        """Return the part of k with step `k`: of a workgroup, or of an invocation of `vector`, a word at a time."""
        if isinstance(self.kernel, Vector):
            return int(k // (32 // self.problem.bits) % self.kernel.lanes)
        return self.kernel.part(self.problem, k) if isinstance(self.kernel, Divided) else 0


class IntegerSubject(ProductSubject):
    """Products of 8-bit integers; `packed` multiplies the raw integers, and applies the zero points at the end."""

    def drawn(self, device: Device) -> Any:
        """Return the op's case; A and B are its operands as the kernel multiplies them."""
        case, p, spec = super().drawn(device), self.problem, self.kernel.specialise(self.problem)
        raw = isinstance(self.kernel, Packed)
        off_a = 128 * spec.flip_a if raw else case.scheme.zero_a.reshape(-1, 1)
        off_b = 128 * spec.flip_b if raw else case.scheme.zero_b.reshape(1, -1)
        self.a, self.b = case.a.astype(np.int64) - off_a, case.b.astype(np.int64) - off_b
        self.expected = quantized_reference(case.a, case.b, case.scheme, p.out_dtype)
        return case

    def part(self, k: int) -> int:
        """Return the part of k with step `k`, if workgroups divide it."""
        return self.kernel.part(self.problem, k) if isinstance(self.kernel, Divided) else 0

    def total(self, row: int, col: int, products: Floats) -> tuple[float, float]:
        """Return the exact element; no error is allowed."""
        return float(self.expected[row, col]), 0.0
