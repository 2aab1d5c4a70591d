"""The subject of ops that define none."""

from __future__ import annotations

import numpy as np

from webmm.cases.steps.reference import Reference
from webmm.cases.steps.subject import Subject


class Whole(Subject):
    """An op without steps of its own: its template's values are recorded, but NumPy's values are unknown."""

    @property
    def length(self) -> int:
        """The largest of the problem's sizes, as an upper bound."""
        return int(max(self.problem.sizes))

    @property
    def shape(self) -> tuple[int, int]:
        """An upper bound: the number of elements of the result, both ways."""
        count = next(extent.end for extent in self.problem.buffers() if extent.written)
        return count, count

    def watched(self, row: int, col: int) -> tuple[int, int]:
        """Return the row alone for an op of rows, whose steps are those of a row."""
        return row, col if self.op.indices > 1 else 0

    def reference(self, row: int, col: int) -> Reference:
        """Return a reference for the largest error of the whole result, checked as in a benchmark."""
        parts = np.zeros(self.steps, np.intp)
        return Reference(
            *("the largest error of the result", 0, {}, {}, {}, parts),
            *(0.0, float(self.case.bound), lambda result: float(self.case.error(result))),
        )
