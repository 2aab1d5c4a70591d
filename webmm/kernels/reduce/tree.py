"""A workgroup per row, and three ways to combine the partial results of its invocations."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.reduce.base import CombiningKernel


@dataclass(frozen=True)
class Tree(CombiningKernel):
    """A workgroup of `lanes` invocations per row; a tree in workgroup memory combines their partial results."""

    name = "tree"
    follows = "vectorized"
    summary = "a workgroup per row, a tree in workgroup memory"
    vectorizes = "k"

    lanes: int = tunable(256, (32, 64, 128, 256, 512, 1024), "invocations per workgroup, which share a row")
    unroll: int = tunable(4, (1, 2, 3, 4, 6, 8), "vec4 that an invocation loads before it reduces them")

    @property
    def combine(self) -> str:
        """How the invocations combine their partial results."""
        return "tree"

    @property
    def step(self) -> int:
        """Elements per iteration."""
        return 4 * self.unroll * self.lanes


@dataclass(frozen=True)
class Subgroup(Tree):
    """Like `tree`, but subgroups combine in registers; workgroup memory holds one partial result per subgroup."""

    name = "subgroup"
    follows = "tree"
    summary = "subgroups combine in registers"

    @property
    def combine(self) -> str:
        """How the invocations combine their partial results."""
        return "subgroup"


@dataclass(frozen=True)
class Alone(Tree):
    """Like `subgroup`, with a single subgroup per workgroup: no barrier, no workgroup memory."""

    name = "alone"
    follows = "subgroup"
    summary = "a subgroup per row: for CPUs, and for short rows"

    lanes: int = tunable(8, (4, 8, 16, 32, 64), "invocations per workgroup, all in one subgroup")

    @property
    def combine(self) -> str:
        """How the invocations combine their partial results."""
        return "alone"
