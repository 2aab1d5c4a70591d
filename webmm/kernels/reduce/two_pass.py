"""Several workgroups per long row or column; a second dispatch combines their partial results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from webmm.kernels.base import Kernel, Params, Scratch, Texture, ceil_div, fold, tunable
from webmm.kernels.reduce.base import WAYS, CombiningKernel, Specialisation, levels
from webmm.kernels.reduce.columns import WIDTHS, Columns
from webmm.kernels.reduce.tree import Tree
from webmm.kernels.reduce.work import PARTIALS, SECTOR, partial_bytes
from webmm.kernels.sizes import Assumption, folded
from webmm.kernels.traffic import Traffic
from webmm.problems.reduce import Reduction

SPLITS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class RowParts(Tree):
    """The first pass: a part of a row per workgroup."""

    name = "row_parts"
    summary = "parts of rows"
    writes = PARTIALS

    splits: int = tunable(32, SPLITS, "parts of a row")
    combine: str = tunable("tree", WAYS, "how the invocations of a workgroup combine their partial results")


@dataclass(frozen=True)
class ColumnParts(Columns):
    """The first pass: a part of a strip of columns per workgroup."""

    name = "column_parts"
    summary = "parts of columns"
    template = "reduce/columns.wgsl"
    writes = PARTIALS

    splits: int = tunable(16, SPLITS, "parts of a column")


@dataclass(frozen=True)
class SecondPass(CombiningKernel):
    """A workgroup per result, which combines its `splits` partial results."""

    template = "reduce/two_pass.wgsl"
    reads = PARTIALS

    def scratch(self, problem: Reduction) -> tuple[Texture | Scratch, ...]:
        """A partial result for each split and result."""
        return (Scratch(PARTIALS, self.splits * problem.results * partial_bytes(problem)),)

    def scratch_rule(self, problem: Reduction) -> dict[str, Any]:
        """The rule of their bytes."""
        return {PARTIALS: f"{self.splits * partial_bytes(problem)} * outer * inner"}

    def dispatch(self, problem: Reduction) -> tuple[int, int, int]:
        """A workgroup per result."""
        return fold(problem.results)

    def grid_rule(self, spec: Specialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`."""
        del spec
        return folded(self.count_rule)

    def choices(self, problem: Reduction) -> Specialisation:
        """Return the template choices for problems like `problem`: only the partial results' count matters."""
        steps = ceil_div(self.splits, self.lanes)
        count = levels(steps) if problem.rounded_sums else 1
        return replace(super().choices(problem), edge=False, edge_j=False, full=True, levels=count, other=None)

    def uniform(self, of: Any) -> type[Params]:
        """Return the uniform's class, without a second array, which is in the partial results."""
        del of
        return self.params

    def assumptions(self, choices: Specialisation) -> Iterator[Assumption]:
        """Yield nothing."""
        del choices
        yield from ()

    def traffic(self, problem: Reduction) -> Traffic:
        """Count the loads of partial results, which lie apart if there are several results."""
        p, ends, steps, size = problem, self.combination, self.steps(problem), partial_bytes(problem)
        return Traffic(
            workgroups=p.results,
            invocations=self.invocations,
            steps=steps + 1,
            fmas=self.arithmetic(p) * steps / (steps + 1),
            vector_loads=steps / (steps + 1),
            scalar_loads=0,
            barriers=ends.barriers / (steps + 1),
            workgroup_bytes=self.workgroup_bytes_for(p),
            loaded=(size if p.results == 1 else SECTOR) * self.invocations * steps / (steps + 1),
            read=self.splits * p.results * size,
            written=self.written(p),
            scalar_stores=1,
            exchanged=ends.exchanged,
            shuffles=ends.shuffles / (steps + 1),
        )

    def steps(self, problem: Reduction) -> int:
        """Partial results per invocation."""
        del problem
        return ceil_div(self.splits, self.lanes)


@dataclass(frozen=True)
class TwoPass(SecondPass):
    """Each row in `splits` parts, with a workgroup each."""

    name = "two_pass"
    follows = "tree"
    summary = "many workgroups per row, for few long ones"

    lanes: int = tunable(256, (4, 8, 32, 64, 128, 256, 512, 1024), "invocations per workgroup")
    unroll: int = tunable(4, (1, 2, 4, 8), "vec4 that an invocation loads before it reduces them")
    splits: int = tunable(32, SPLITS, "workgroups per row")
    combine: str = tunable("tree", WAYS, "how the invocations of a workgroup combine their partial results")

    @property
    def before(self) -> tuple[Kernel[Reduction], ...]:
        """The parts of the rows."""
        return (RowParts(self.lanes, self.unroll, self.splits, self.combine),)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """As for `tree`."""
        yield from self.before[0].constraints()


@dataclass(frozen=True)
class ColumnsTwoPass(SecondPass):
    """Each strip of columns in `splits` parts, with a workgroup each."""

    name = "columns_two_pass"
    follows = "columns"
    summary = "many workgroups per column, for few long ones"

    wx: int = tunable(16, WIDTHS, "invocations of a workgroup along j, with four columns each", most=64)
    wy: int = tunable(16, (1, 2, 4, 8, 16, 32, 64, 128, 256), "invocations of a workgroup along k")
    unroll: int = tunable(2, (1, 2, 4, 8), "vec4 that an invocation loads before it reduces them")
    splits: int = tunable(16, SPLITS, "workgroups per column")

    @property
    def before(self) -> tuple[Kernel[Reduction], ...]:
        """The parts of the columns."""
        return (ColumnParts(self.wx, self.wy, self.unroll, self.splits),)

    @property
    def lanes(self) -> int:
        """Invocations of a workgroup of the second pass: one if the first pass has no tree either."""
        return 1 if self.wy == 1 else min(256, max(32, self.splits))

    @property
    def combine(self) -> str:
        """How its invocations combine their partial results."""
        return "tree"

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """As for `columns`."""
        yield from self.before[0].constraints()
