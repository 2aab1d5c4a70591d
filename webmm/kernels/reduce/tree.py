"""Stages 4 to 6: a workgroup per row, and three ways to bring together what its invocations have."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.reduce.base import MeetingKernel


@dataclass(frozen=True)
class Tree(MeetingKernel):
    """A workgroup of `lanes` per row; their parts meet in workgroup memory, two by two."""

    name = "tree"
    follows = "vectorized"
    summary = "a workgroup per row, a tree in workgroup memory"
    vectorizes = "k"

    lanes: int = tunable(256, (32, 64, 128, 256, 512, 1024), "invocations per workgroup, which share a row")
    unroll: int = tunable(4, (1, 2, 4, 8), "vec4 that an invocation loads before it adds them up")

    @property
    def combine(self) -> str:
        """How the invocations' parts meet."""
        return "tree"

    @property
    def step(self) -> int:
        """Elements of an iteration."""
        return 4 * self.unroll * self.lanes


@dataclass(frozen=True)
class Subgroup(Tree):
    """As `tree`; the lanes of a subgroup add up among themselves, and only subgroups meet in workgroup memory."""

    name = "subgroup"
    follows = "tree"
    summary = "subgroups add up in registers"

    @property
    def combine(self) -> str:
        """How the invocations' parts meet."""
        return "subgroup"


@dataclass(frozen=True)
class Alone(Tree):
    """As `subgroup`; a workgroup is a single subgroup: no barrier, no workgroup memory."""

    name = "alone"
    follows = "subgroup"
    summary = "a subgroup per row: for CPUs, and for short rows"

    lanes: int = tunable(8, (4, 8, 16, 32, 64), "invocations per workgroup, all of one subgroup")

    @property
    def combine(self) -> str:
        """How the invocations' parts meet."""
        return "alone"
