"""The debug subject of each op."""

from __future__ import annotations

from typing import Any

import numpy as np

from webmm.debug.products import GemmSubject, IntegerSubject, WeightsSubject
from webmm.debug.reference import Reference
from webmm.debug.rows import ElementwiseSubject, NormalisationSubject, ReductionSubject
from webmm.debug.subject import Subject
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem


class PluginSubject(Subject):
    """An op from outside the package: its template's values are recorded, but NumPy's values are unknown."""

    @property
    def length(self) -> int:
        """The largest of the problem's sizes, as an upper bound."""
        return int(max(self.problem.sizes))

    @property
    def shape(self) -> tuple[int, int]:
        """An upper bound: the number of elements of the result, both ways."""
        count = next(extent.end for extent in self.problem.buffers() if extent.written)
        return count, count

    def reference(self, row: int, col: int) -> Reference:
        """Return a reference for the largest error of the whole result, checked as in a benchmark."""
        parts = np.zeros(self.steps, np.intp)
        return Reference(
            *("the largest error of the result", 0, {}, {}, {}, parts),
            *(0.0, float(self.case.bound), lambda result: float(self.case.error(result))),
        )


SUBJECTS: dict[str, type[Subject]] = {
    cls.op: cls
    for cls in (GemmSubject, WeightsSubject, IntegerSubject, ReductionSubject, NormalisationSubject, ElementwiseSubject)
}


def subject_of(kernel: Kernel[Any], problem: Problem) -> Subject:
    """Return the debug subject of a problem; raises ProblemError if it has too many steps."""
    return SUBJECTS.get(problem.op, PluginSubject)(kernel, problem)
