"""What a debug shader looks at, op by op: operands, and what NumPy has where it records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from webmm.cases import OPS
from webmm.cases.elementwise import rounding as elementwise_rounding
from webmm.cases.elementwise import scale_of
from webmm.cases.normalise import EXP_ERROR
from webmm.cases.normalise import rounding as normalise_rounding
from webmm.debug.reference import Floats, Origins, Reference, by_part
from webmm.dtypes import F32
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.epilogues import activation_of
from webmm.errors import ProblemError
from webmm.kernels.base import Kernel
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.weights.vector import Vector
from webmm.problems.base import Problem
from webmm.problems.normalise import NORMALISATIONS
from webmm.problems.reduce import operation_of
from webmm.problems.scheme import reference as quantized_reference
from webmm.verify import bound, sum_bound

PRODUCT = {
    "A": {"LOADED_A": "A loaded", "SHARED_A": "A shared"},
    "B": {"LOADED_B": "B loaded", "SHARED_B": "B shared"},
    "sum": {"ACC": "sum"},
}
LEAST_SPARE = 64  # steps beyond the end for which there is room: what the last tile or vec4 hangs over


class Subject(ABC):
    """A problem with operands, whose kernel is looked into: `length` inner steps, and room for `steps` to record."""

    op: ClassVar[str] = ""  # whose problems these are

    def __init__(self, device: Device, kernel: Any, problem: Any) -> None:
        self.kernel, self.problem = kernel, problem  # of the op
        self.case = self.drawn(device)
        self.inputs: dict[str, Array] = self.case.inputs
        self.steps = self.length + 2 * self.reach + LEAST_SPARE

    def drawn(self, device: Device) -> Any:
        """Return something that has `inputs`: the op's case."""
        return OPS[self.problem.op].case(device, self.problem)

    @property
    @abstractmethod
    def length(self) -> int:
        """The inner steps of an element."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """How many rows and columns of elements there are."""

    @property
    def reach(self) -> int:
        """Steps that an iteration takes, at most."""
        first = self.kernel.dispatches[0]
        return int(getattr(first, "inner_step", 0) or getattr(first, "step", 1))

    def watched(self, row: int, col: int) -> tuple[int, int]:
        """Return what templates call the element."""
        return row, col

    def check(self, row: int, col: int) -> None:
        """Raise ProblemError where there is no such element."""
        rows, columns = self.shape
        if not (0 <= row < rows and 0 <= col < columns):
            name = "C" if self.op in ("gemm", "weights", "quantized") else "the result"
            raise ProblemError(
                f"{name} is {rows}x{columns}: it has no element ({row}, {col}); rows and columns count from 0"
            )

    @abstractmethod
    def reference(self, row: int, col: int) -> Reference:
        """Return what NumPy has for the element."""

    def padded(self, values: NDArray[Any], beyond: float = 0.0) -> Floats:
        """Return `values` of each inner step with `beyond` for those that follow."""
        return np.concatenate([values.astype(np.float64), np.full(self.steps - self.length, beyond)])


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


class OfReduction(Subject):
    """One number for each row x[i, :, j], numbered i·inner + j."""

    op = "reduce"

    @property
    def length(self) -> int:
        """That of a row."""
        return int(self.problem.length)

    @property
    def shape(self) -> tuple[int, int]:
        """A number for each row."""
        return self.problem.results, 1

    @property
    def reach(self) -> int:
        """What all workgroups that share a row take in a step."""
        first = self.kernel.dispatches[0]
        return int(first.step * first.splits)

    def row(self, row: int) -> Floats:
        """Return the elements of a row."""
        p = self.problem
        elements: Floats = self.case.x[row // p.inner, :, row % p.inner].astype(np.float64)
        return elements

    def parts(self) -> NDArray[np.intp]:
        """Return which invocation takes each step: rows are shared by vec4 or by elements, columns by single k."""
        first, k = self.kernel.dispatches[0], np.arange(self.steps)
        step, splits = first.step, first.splits
        chunk = (self.length - 1) // (step * splits) * step + step
        if lanes := getattr(first, "wy", 0):
            lane = k % lanes
        else:
            lanes = getattr(first, "lanes", 1)
            lane = (k // 4 if first.specialise(self.problem).vec else k) % lanes
        return np.asarray(k // chunk * lanes + lane)

    def accumulated(self, x: Floats) -> tuple[Floats, Floats]:
        """Return what each part has of a row so far, and by how much that may be off."""
        name, parts = self.problem.operation, self.parts()[: self.length]
        if name == "argmax":
            order = by_part(parts, x, lambda own: np.arange(len(own))[_first_of_running_maximum(own)])
            found = np.empty_like(x)
            for part in np.unique(parts):
                own = np.flatnonzero(parts == part)
                found[own] = own[order[own].astype(int)]
            return found, np.zeros(self.length)
        running = {"max": np.maximum.accumulate, "min": np.minimum.accumulate, "logsumexp": np.logaddexp.accumulate}
        values = by_part(parts, x, running.get(name, np.cumsum))
        counts = by_part(parts, np.ones(self.length), np.cumsum)
        if name == "logsumexp":
            return values, (EXP_ERROR + counts * F32.eps) * (8 + np.abs(values))
        slack = counts * F32.eps * by_part(parts, np.abs(x), np.cumsum)
        scale = self.length if name == "mean" else 1
        return values / scale, slack / scale * (name in ("sum", "mean"))

    def reference(self, row: int, col: int) -> Reference:
        """Return the elements of the row, and what each part of it has added up."""
        del col
        x, operation = self.row(row), operation_of(self.problem.operation)
        sums, slack = self.accumulated(x)
        total = float(operation.reference(x))
        size = np.abs(x).sum() / (self.length if operation.name == "mean" else 1)
        size = 8 + np.abs(x).max() if operation.name == "logsumexp" else size
        return Reference(
            *(f"y[{row}]", self.length, {"x": {"LOADED": "x"}, "sum": {"ACC": operation.name}}),
            {"x": self.padded(x, operation.outside), "sum": self.filled(sums)},
            {"x": np.zeros(self.steps), "sum": self.filled(slack)},
            self.parts(),
            *(total, sum_bound(self.length, self.problem.out_dtype) * float(size) * operation.sums),
            lambda result: float(result.reshape(-1)[row]),
            every=frozenset("x"),
            places={"x": f"x[{row}, {{k}}]"},
            origin=Origins(x=np.moveaxis(self.case.x, 1, -1).reshape(-1, self.length)),
        )

    def filled(self, values: Floats) -> Floats:
        """Return values with those of the steps that follow: what a part had last, NaN where it had nothing."""
        parts, result = self.parts(), self.padded(values, np.nan)
        for k in range(self.length, self.steps):
            own = np.flatnonzero(parts[: self.length] == parts[k])
            result[k] = values[own[-1]] if own.size else np.nan
        return result


def _first_of_running_maximum(x: Floats) -> NDArray[np.intp]:
    """Return where the maximum of x up to each element is for the first time."""
    new = np.r_[True, x[1:] > np.maximum.accumulate(x)[:-1]]
    return np.maximum.accumulate(np.where(new, np.arange(len(x)), 0))


class OfNormalisation(OfReduction):
    """Each row in proportion to what it adds up to: element `col` of row number `row`."""

    op = "normalise"

    @property
    def shape(self) -> tuple[int, int]:
        """That of the rows."""
        return self.problem.results, self.problem.length

    @property
    def reach(self) -> int:
        """What a workgroup takes in a step."""
        return int(self.kernel.step)

    def watched(self, row: int, col: int) -> tuple[int, int]:
        """Return the row: all of it is shown."""
        del col
        return row, 0

    def reference(self, row: int, col: int) -> Reference:
        """Return the elements, what parts have added up, the squares where there are any, and the results."""
        p, x = self.problem, self.row(row)
        y = NORMALISATIONS[p.function].reference(x[None], p.epsilon)[0]
        sums, slack = self.accumulated(x)
        centre = x.mean() if p.function == "layer_norm" else 0.0
        squared, off = (x - centre) ** 2, self.length * F32.eps * (np.abs(x) + np.abs(x).max()) ** 2
        squares = by_part(self.parts()[: self.length], squared, np.cumsum)
        squares_off = by_part(self.parts()[: self.length], 2 * off, np.cumsum)
        allowed = normalise_rounding(p) * float(np.abs(y).max())

        def stored(result: NDArray[Any]) -> float:
            return float(result.reshape(p.outer, p.length, p.inner)[row // p.inner, col, row % p.inner])

        outside = operation_of(p.operation).outside
        return Reference(
            *(f"y[{row}, {col}]", self.length),
            {
                "x": {"LOADED": "x"},
                "sum": {"ACC": p.operation},
                "square": {"SQUARED": "squared"},
                "squares": {"SQUARES": "sum of them"},
                "y": {"RESULT": "y"},
            },
            {
                "x": self.padded(x, outside),
                "sum": self.filled(sums),
                "square": self.padded(squared),
                "squares": self.filled(squares),
                "y": self.padded(y, np.nan),
            },
            {
                "x": np.zeros(self.steps),
                "sum": self.filled(slack),
                "square": self.padded(off),
                "squares": self.filled(squares_off),
                "y": np.full(self.steps, allowed),
            },
            self.parts(),
            total=float(y[col]),
            allowed=allowed + float(p.out_dtype.tiny),
            stored=stored,
            every=frozenset({"x", "square", "y"}),
            places={"x": f"x[{row}, {{k}}]"},
            origin=Origins(x=np.moveaxis(self.case.x, 1, -1).reshape(-1, self.length)),
        )


class OfElement(Subject):
    """A function of each element x[row]."""

    op = "elementwise"

    @property
    def length(self) -> int:
        """One step."""
        return 1

    @property
    def shape(self) -> tuple[int, int]:
        """The elements."""
        return self.problem.size, 1

    def reference(self, row: int, col: int) -> Reference:
        """Return the element and what becomes of it."""
        del col
        x = self.case.x[row : row + 1].astype(np.float64)
        y = activation_of(self.problem.activation).reference(x)
        allowed = elementwise_rounding(self.problem.dtype) * float(scale_of(self.problem, x, y)[0])
        return Reference(
            *(f"y[{row}]", 1, {"x": {"LOADED": "x"}, "y": {"RESULT": "y"}}),
            {"x": self.padded(x), "y": self.padded(y)},
            {"x": np.zeros(self.steps), "y": np.full(self.steps, allowed)},
            np.zeros(self.steps, np.intp),
            total=float(y[0]),
            allowed=allowed + float(self.problem.dtype.tiny),
            stored=lambda result: float(result.reshape(-1)[row]),
            every=frozenset("xy"),
            places={"x": f"x[{row}]"},
            origin=Origins(x=self.case.x),
        )


class OfOther(Subject):
    """An op from outside the package: what its template records, of which nobody here knows what NumPy has."""

    @property
    def length(self) -> int:
        """The longest of its sizes, for want of a better word of it."""
        return int(max(self.problem.sizes))

    @property
    def shape(self) -> tuple[int, int]:
        """Any element that there may be."""
        count = next(extent.end for extent in self.problem.buffers() if extent.written)
        return count, count

    def reference(self, row: int, col: int) -> Reference:
        """Return the error of the whole result, which is judged as in a bench."""
        parts = np.zeros(self.steps, np.intp)
        return Reference(
            *("the largest error of the result", 0, {}, {}, {}, parts),
            *(0.0, float(self.case.bound), lambda result: float(self.case.error(result))),
        )


SUBJECTS: dict[str, type[Subject]] = {
    cls.op: cls for cls in (OfGemm, OfWeights, OfIntegers, OfReduction, OfNormalisation, OfElement)
}


def subject_of(device: Device, kernel: Kernel[Any], problem: Problem) -> Subject:
    """Return what is looked at for a problem, with its operands on the device."""
    return SUBJECTS.get(problem.op, OfOther)(device, kernel, problem)
