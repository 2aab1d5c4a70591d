"""k divided among workgroups: each stores partial sums of its tile, and a second dispatch adds them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from webmm.dtypes import DType
from webmm.kernels.base import Capabilities, Scratch, Texture, ceil_div, fold, tunable
from webmm.kernels.product import ProductKernel
from webmm.kernels.register_tiles import RegisterTiles
from webmm.kernels.sizes import Assumption, Condition, folded
from webmm.kernels.traffic import Traffic
from webmm.problems.product import Product, partial_bytes

PARTIAL = "partial"
SHARED = (2**20, 2**26)  # bytes of the smallest and of the largest buffer whose size is a power of two
SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
MOST_SPLITS = 320  # that the choice makes
SPLITS_DOC = "workgroups per tile of C, each with a part of k"

M = TypeVar("M", bound=Product)


def partial_sums(problem: Product, splits: int) -> Scratch:
    """Return the buffer of the partial sums: (batch, splits, m, n), with rows of whole vec4.

    Sizes up to SHARED[1] are rounded up to a power of two, so that products of many shapes share few buffers.
    """
    nbytes = partial_bytes(problem, splits)
    return Scratch(PARTIAL, nbytes if nbytes > SHARED[1] else max(SHARED[0], 1 << (nbytes - 1).bit_length()))


def partial_type(dtype: DType) -> str:
    """Return the WGSL type of their binding, for products of elements of `dtype`."""
    return f"array<{dtype.sums.vec4}>"


@dataclass(frozen=True)
class AddsSplits(ProductKernel[M]):
    """Add the partial sums of each element of C, and finish it: the second dispatch."""

    name = "sum_splits"
    summary = "sums of partial sums"
    single_k = False

    splits: int = tunable(2, SPLITS, SPLITS_DOC, most=MOST_SPLITS)

    @cached_property
    def adders(self) -> int:
        """Invocations that share the partial sums of the same four columns."""
        return next(adders for most, adders in ((8, 1), (32, 4), (self.splits, 16)) if self.splits <= most)

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations; the template lays them out as (adders, vec4 of C)."""
        return (64 if self.adders == 1 else 128, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """A vec4 per invocation, if several share an element."""
        return 16 * self.invocations if self.adders > 1 else 0

    def dispatch(self, problem: M) -> tuple[int, int, int]:
        """Workgroups over the vec4 of C, folded so that none exceeds 65,535; z is the batch."""
        count = ceil_div(problem.m * ceil_div(problem.n, 4), self.invocations // self.adders)
        return fold(count, problem.batch)

    def grid_rule(self, spec: Any) -> dict[str, Any] | None:
        """Return the rule of `dispatch`."""
        del spec
        return folded(f"ceil(m * ceil(n / 4) / {self.invocations // self.adders})", "batch")

    def assumptions(self, choices: Any) -> Iterator[Assumption]:
        """Yield what it assumes of C; it does not read A and B."""
        yield from (each for each in super().assumptions(choices) if each.choice[-2:] not in ("_a", "_b"))

    def traffic(self, problem: M) -> Traffic:
        """Count the loads and additions of a vec4 of C."""
        p: Any = problem
        vec_c = p.vec_c
        return Traffic(
            workgroups=math.prod(self.dispatch(problem)),
            invocations=self.invocations,
            steps=1,
            fmas=4 * self.splits / self.adders,
            vector_loads=self.splits / self.adders,
            scalar_loads=0,
            workgroup_bytes=self.workgroup_bytes,
            loaded=16 * self.splits * self.invocations / self.adders,
            read=partial_bytes(problem, self.splits),
            written=p.m * p.n * p.batch * p.out_dtype.itemsize,
            vector_stores=vec_c,
            scalar_stores=4 * (not vec_c),
            exchanged=1 - 1 / self.adders,
        )

    def iterations(self, problem: M) -> int:
        """Return 0: it has no loop."""
        del problem
        return 0

    def scratch(self, problem: M) -> tuple[Texture | Scratch, ...]:
        """Return the partial sums."""
        return (partial_sums(problem, self.splits),)


class Divided(ProductKernel[M]):
    """A kernel with the tunable `splits`, the number of parts of k: the first dispatch.

    Parts have equal numbers of steps or one more. With splits = 1, it finishes C itself.
    """

    splits: int

    @property
    def least_k(self) -> int:
        """A step for each part."""
        return self.inner_step * self.splits

    def dispatch(self, problem: M) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z); z is the number of splits."""
        x, y, batch = self.grid.dispatch(problem)
        return x, y, batch * self.splits

    def grid_rule(self, spec: Any) -> dict[str, Any] | None:
        """Return the rule of `dispatch`; z is the number of splits of all matrices."""
        rule = self.grid.rule()
        return rule if self.splits == 1 else {**rule, **folded(rule["count"], f"batch * {self.splits}")}

    def assumptions(self, choices: Any) -> Iterator[Assumption]:
        """Yield those of any product; partial sums always have rows of whole vec4."""
        finished = () if self.splits == 1 else ("vec_c", "vec_y")
        yield from (each for each in super().assumptions(choices) if each.choice not in finished)

    def needs(self) -> Iterator[Condition]:
        """Yield that every part needs a step of k."""
        if self.splits > 1:
            yield Condition("k", at_least=self.inner_step * (self.splits - 1) + 1)

    def scratch(self, problem: M) -> tuple[Texture | Scratch, ...]:
        """Return the partial sums, if k is divided."""
        return (partial_sums(problem, self.splits),) if self.splits > 1 else ()

    def scratch_rule(self, problem: M) -> dict[str, Any]:
        """Return the rule of the bytes of the partial sums."""
        vec4 = 4 * problem.dtype.sums.itemsize
        return {PARTIAL: f"{vec4 * self.splits} * ceil(n / 4) * m * batch"} if self.splits > 1 else {}

    def part(self, problem: M, k: int) -> int:
        """Return the number of the part that has inner element `k`."""
        share, longer = divmod(ceil_div(problem.k, self.inner_step), self.splits)
        step = k // self.inner_step
        return step // (share + 1) if step < longer * (share + 1) else (step - longer) // share

    def check(self, problem: M, device: Capabilities) -> str | None:
        """Return why this kernel cannot compute `problem` on `device`; every part needs a step of k."""
        if ceil_div(problem.k, self.inner_step) < self.splits:
            return f"needs {self.splits} parts of k, at least {self.inner_step} each; k = {problem.k} is too small"
        return super().check(problem, device)


@dataclass(frozen=True)
class DividedTiles(RegisterTiles[M], Divided[M]):
    """Register tiles whose k workgroups may divide."""

    splits: int = tunable(1, (1, 4, 16, 64, 256), SPLITS_DOC, most=MOST_SPLITS)

    @property
    def sharing(self) -> tuple[int, int]:
        """Groups of invocations per workgroup, and workgroups, that divide k for the same tile."""
        return 1, self.splits
