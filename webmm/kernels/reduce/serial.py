"""The baseline: one invocation for everything."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.reduce.base import ReduceKernel
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class Serial(ReduceKernel):
    """One invocation reduces all rows."""

    name = "serial"
    follows = ""
    summary = "one invocation for everything"

    @property
    def count_rule(self) -> str:
        """One workgroup."""
        return "1"

    def workgroups(self, problem: Reduction) -> int:
        """One."""
        del problem
        return 1

    def steps(self, problem: Reduction) -> int:
        """Return the number of elements."""
        return problem.flops

    def iterations(self, problem: Reduction) -> int:
        """Return the number of iterations of both loops."""
        return problem.results * (problem.length + 1)
