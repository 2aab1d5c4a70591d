"""Debug subjects of reductions, normalisations and element-wise ops: elements, running values and results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.declared import running as running_of
from webmm.cases.steps.reference import Floats, Origins, Reference, by_part
from webmm.cases.steps.subject import Subject
from webmm.dtypes import F32, I32
from webmm.problems.declared import declaration_of
from webmm.problems.normalise import NORMALISATIONS
from webmm.problems.reduce import operation_of

RUNNING = {  # cumulative functions of the operations that are not sums
    **{"max": np.maximum.accumulate, "min": np.minimum.accumulate},
    **{"prod": np.multiply.accumulate, "logsumexp": np.logaddexp.accumulate},
}


class ReductionSubject(Subject):
    """A reduction: one number for each row x[i, :, j], whose index is i·inner + j."""

    @property
    def length(self) -> int:
        """The length of a row."""
        return int(self.problem.length)

    @property
    def shape(self) -> tuple[int, int]:
        """One number per row."""
        return self.problem.results, 1

    @property
    def reach(self) -> int:
        """Elements read per iteration by all workgroups that share a row."""
        first = self.kernel.dispatches[0]
        return int(first.step * first.splits)

    def row(self, row: int) -> Floats:
        """Return the elements of a row."""
        p = self.problem
        elements: Floats = self.case.x[row // p.inner, :, row % p.inner].astype(np.float64)
        return elements

    def parts(self) -> NDArray[np.intp]:
        """Return the invocation of each step: invocations share a row by vec4 or element, and a column by element."""
        first, k = self.kernel.dispatches[0], np.arange(self.steps)
        step, splits = first.step, first.splits
        chunk = (self.length - 1) // (step * splits) * step + step
        if lanes := getattr(first, "wy", 0):
            lane = k % lanes
        else:
            lanes = getattr(first, "lanes", 1)
            lane = (k // 4 if first.specialise(self.problem).vec else k) % lanes
        return np.asarray(k // chunk * lanes + lane)

    def accumulated(self, x: Floats, *y: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return the running value of each part, and its allowed error; `y` is a row of a second array."""
        name, parts = self.problem.operation, self.parts()[: self.length]
        if name in ("argmax", "argmin"):
            keys = x if name == "argmax" else -x
            order = by_part(parts, keys, lambda values: np.arange(len(values))[_first_of_running_maximum(values)])
            found = np.empty_like(x)
            for part in np.unique(parts):
                steps = np.flatnonzero(parts == part)
                found[steps] = steps[order[steps].astype(int)]
            return found, np.zeros(self.length)
        operation = operation_of(name)
        if operation.declared:
            given = [each.astype(np.int32) if self.problem.dtype == I32 else each for each in (x, *y)]
            terms, places = declaration_of(operation).terms(given[0]), np.arange(self.length, dtype=np.float64)
            values = by_part(
                parts, places, lambda at: running_of(terms, self.length, *(each[at.astype(int)] for each in given))
            )
            counts = by_part(parts, np.ones(self.length), np.cumsum)
            return values, (F32.exp_error + counts * F32.eps) * (1 + np.abs(values))
        if self.problem.dtype == I32:
            running = RUNNING.get(name, np.cumsum)
            values = by_part(parts, x, lambda values: running(values.astype(np.int64)).astype(np.int32))
            return values, F32.eps * np.abs(values)
        values = by_part(parts, x, RUNNING.get(name, np.cumsum))
        counts = by_part(parts, np.ones(self.length), np.cumsum)
        if name == "logsumexp":
            return values, (F32.exp_error + counts * F32.eps) * (8 + np.abs(values))
        if name == "prod":
            return values, counts * F32.eps * np.abs(values)
        slack = counts * F32.eps * by_part(parts, np.abs(x), np.cumsum)
        scale = self.length if name == "mean" else 1
        return values / scale, slack / scale * (name in ("sum", "mean"))

    def reference(self, row: int, col: int) -> Reference:
        """Return the elements of the row, and the running value of each part."""
        del col
        x, operation = self.row(row), operation_of(self.problem.operation)
        i, j = divmod(row, self.problem.inner)
        y = [each[i, :, j].astype(np.float64) for each in self.case.arrays[1:]]
        sums, slack = self.accumulated(x, *y)
        elements = self.padded(x, operation.beyond(self.problem.dtype))
        integers = self.problem.dtype == I32  # the shader records them as floats
        total = float(operation.exact(x.astype(self.case.x.dtype), *(each.astype(self.case.x.dtype) for each in y)))
        size = np.abs(x).sum() / (self.length if operation.name == "mean" else 1)
        size = 8 + np.abs(x).max() if operation.name == "logsumexp" else size
        size = abs(total) if operation.name == "prod" else size
        size = float(self.case.unit[self.case.checked == row][0]) if operation.declared else size
        return Reference(
            *(f"y[{row}]", self.length, {"x": {"LOADED": "x"}, "sum": {"ACC": operation.name}}),
            {"x": elements, "sum": self.filled(sums)},
            {"x": F32.eps * np.abs(elements) if integers else np.zeros(self.steps), "sum": self.filled(slack)},
            self.parts(),
            *(total, self.op.bound(self.problem) * float(size)),
            lambda result: float(result.reshape(-1)[row]),
            every=frozenset("x"),
            places={"x": f"x[{row}, {{k}}]"},
            origin=Origins(x=np.moveaxis(self.case.x, 1, -1).reshape(-1, self.length)),
        )

    def filled(self, values: Floats) -> Floats:
        """Return `values`, continued beyond the end with each part's last value, or NaN if the part had no step."""
        parts, result = self.parts(), self.padded(values, np.nan)
        for k in range(self.length, self.steps):
            steps = np.flatnonzero(parts[: self.length] == parts[k])
            result[k] = values[steps[-1]] if steps.size else np.nan
        return result


def _first_of_running_maximum(x: Floats) -> NDArray[np.intp]:
    """Return, for each element, the first index of the maximum of x up to that element."""
    new = np.r_[True, x[1:] > np.maximum.accumulate(x)[:-1]]
    return np.maximum.accumulate(np.where(new, np.arange(len(x)), 0))


class NormalisationSubject(ReductionSubject):
    """A normalisation of rows: element `col` of row `row`."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and their length."""
        return self.problem.results, self.problem.length

    @property
    def reach(self) -> int:
        """Elements read per iteration by a workgroup."""
        return int(self.kernel.step)

    def watched(self, row: int, col: int) -> tuple[int, int]:
        """Return the row: the whole row is recorded."""
        del col
        return row, 0

    def reference(self, row: int, col: int) -> Reference:
        """Return the elements, running sums, squares (if the function has them), and results."""
        p, x = self.problem, self.row(row)
        y = NORMALISATIONS[p.function].reference(x[None], p.epsilon)[0]
        sums, slack = self.accumulated(x)
        centre = x.mean() if p.function == "layer_norm" else 0.0
        squared, off = (x - centre) ** 2, self.length * F32.eps * (np.abs(x) + np.abs(x).max()) ** 2
        squares = by_part(self.parts()[: self.length], squared, np.cumsum)
        squares_off = by_part(self.parts()[: self.length], 2 * off, np.cumsum)
        allowed = self.op.bound(p) * float(np.abs(y).max())

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


class ElementwiseSubject(Subject):
    """A function of each element x[row]."""

    @property
    def length(self) -> int:
        """A single step."""
        return 1

    @property
    def shape(self) -> tuple[int, int]:
        """All elements, as one column."""
        return self.problem.size, 1

    def reference(self, row: int, col: int) -> Reference:
        """Return the element and its result."""
        del col
        x = self.case.x[row : row + 1].astype(np.float64)
        ((value, unit),) = self.op.reference(self.problem, x.tolist())
        y, allowed = np.array([value]), self.op.bound(self.problem) * unit
        return Reference(
            *(f"y[{row}]", 1, {"x": {"LOADED": "x"}, "y": {"RESULT": "y"}}),
            {"x": self.padded(x), "y": self.padded(y)},
            {"x": np.zeros(self.steps), "y": np.full(self.steps, allowed)},
            np.zeros(self.steps, np.intp),
            total=value,
            allowed=allowed + float(self.problem.dtype.tiny),
            stored=lambda result: float(result.reshape(-1)[row]),
            every=frozenset("xy"),
            places={"x": f"x[{row}]"},
            origin=Origins(x=self.case.x),
        )
