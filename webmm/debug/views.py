"""What is looked at, op by op."""

from __future__ import annotations

from typing import Any

import numpy as np

from webmm.debug.products import OfGemm, OfIntegers, OfWeights
from webmm.debug.reference import Reference
from webmm.debug.rows import OfElement, OfNormalisation, OfReduction
from webmm.debug.subject import Subject
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem


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


def subject_of(kernel: Kernel[Any], problem: Problem) -> Subject:
    """Return what is looked at for a problem; raises ProblemError where that is too much."""
    return SUBJECTS.get(problem.op, OfOther)(kernel, problem)
