"""Products looked into: both factors and the sum of each inner step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.debug.reference import Floats, Origins, Reference, by_part
from webmm.debug.subject import Subject
from webmm.dtypes import F32
from webmm.engine.device import Device
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.weights.vector import Vector
from webmm.problems.scheme import reference as quantized_reference
from webmm.verify import bound

PRODUCT = {
    "A": {"LOADED_A": "A loaded", "SHARED_A": "A shared"},
    "B": {"LOADED_B": "B loaded", "SHARED_B": "B shared"},
    "sum": {"ACC": "sum"},
}


class OfProduct(Subject):
    """C[row, col] = Σ A[row, k]·B[k, col]."""

    a: NDArray[Any]  # (m, k), as it is multiplied
    b: NDArray[Any]  # (k, n)
    exact_b = 0.0  # by how much of itself an element of B may be off
    beyond_b = 0.0  # what stands beyond the end of B

    @property
    def length(self) -> int:
        """The inner size."""
        return int(self.problem.k)

    @property
    def shape(self) -> tuple[int, int]:
        """That of C."""
        return self.problem.m, self.problem.n

    def part(self, k: int) -> int:
        """Return which of the partial sums of an element takes inner step `k`."""
        del k
        return 0

    def total(self, row: int, col: int, products: Floats) -> tuple[float, float]:
        """Return C[row, col], and by how much it may be off."""
        size = float(np.abs(products).sum())
        out = self.problem.out_dtype
        return float(products.sum()), bound(self.problem) * (size + out.tiny / out.eps)

    def reference(self, row: int, col: int) -> Reference:
        """Return both factors and the sum of each step."""
        a, b = self.padded(self.a[row]), self.padded(self.b[:, col], self.beyond_b)
        products = a * np.nan_to_num(b)
        parts = np.array([self.part(k) for k in range(self.steps)])
        sums = by_part(parts, products, np.cumsum)
        slack = by_part(parts, np.abs(products), lambda x: np.arange(2, len(x) + 2) * F32.eps * np.cumsum(x))
        total, allowed = self.total(row, col, products[: self.length])
        return Reference(
            *(f"C[{row}, {col}]", self.length, PRODUCT),
            {"A": a, "B": b, "sum": sums},
            {"A": np.zeros(self.steps), "B": self.exact_b * np.abs(b), "sum": slack + F32.eps * np.abs(sums)},
            parts,
            *(total, allowed, lambda result: float(result.reshape(self.shape)[row, col])),
            every=frozenset("AB"),
            places={"A": f"A[{row}, {{k}}]", "B": f"B[{{k}}, {col}]"},
            origin=Origins(A=self.a, B=self.b),
        )


class OfGemm(OfProduct):
    """Products of floats, of operands drawn from a normal distribution."""

    op = "gemm"

    def drawn(self, device: Device) -> Any:
        """Return this."""
        p, rng = self.problem, np.random.default_rng(0)
        self.a, self.b = (rng.standard_normal(shape).astype(p.dtype.numpy) for shape in ((p.m, p.k), (p.k, p.n)))
        stored = {"a": (self.a, p.a), "b": (self.b, p.b)}
        self.inputs = {name: device.array(x.T if at.transposed else x) for name, (x, at) in stored.items()}
        return self

    def part(self, k: int) -> int:
        """Return what the kernel says."""
        return int(self.kernel.part(self.problem, k))


class OfWeights(OfProduct):
    """Products with quantised weights, which are B as they stand for."""

    op = "weights"
    exact_b = F32.eps
    beyond_b = np.nan  # what pads a block; A is zero there

    def drawn(self, device: Device) -> Any:
        """Return the op's case, whose operands are A and B."""
        case = super().drawn(device)
        self.a, self.b = case.checker.a, case.checker.b
        return case

    def part(self, k: int) -> int:
        """Return which invocation takes step `k` where they share them: a word each."""
        return k // (32 // self.problem.bits) % self.kernel.lanes if isinstance(self.kernel, Vector) else 0


class OfIntegers(OfProduct):
    """Products of 8-bit integers; `packed` multiplies them as they are, and brings in zero points at the end."""

    op = "quantized"

    def drawn(self, device: Device) -> Any:
        """Return the op's case, of whose operands A and B are what the kernel multiplies."""
        case, p, spec = super().drawn(device), self.problem, self.kernel.specialise(self.problem)
        raw = isinstance(self.kernel, Packed)
        off_a = 128 * spec.flip_a if raw else case.scheme.zero_a.reshape(-1, 1)
        off_b = 128 * spec.flip_b if raw else case.scheme.zero_b.reshape(1, -1)
        self.a, self.b = case.a.astype(np.int64) - off_a, case.b.astype(np.int64) - off_b
        self.expected = quantized_reference(case.a, case.b, case.scheme, p.out_dtype)
        return case

    def total(self, row: int, col: int, products: Floats) -> tuple[float, float]:
        """Return the element bit for bit."""
        return float(self.expected[row, col]), 0.0
