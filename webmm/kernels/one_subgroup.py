"""Kernels whose workgroup is a single subgroup, whose lanes exchange values without a barrier."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import Kernel, P, tunable


@dataclass(frozen=True)
class OneSubgroup(Kernel[P]):
    """A kernel of `lanes` invocations; their values are those that CPU adapters have."""

    lanes: int = tunable(8, (4, 8), "lanes of a workgroup, which is one subgroup", most=16)

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """One subgroup."""
        return (self.lanes, 1, 1)

    @property
    def subgroup(self) -> int:
        """Lanes that a subgroup must have at least."""
        return self.lanes
