"""A matrix times one or a few vectors: each element of the matrix is read once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webmm.kernels.base import ceil_div, fold, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation, contiguous_a, contiguous_b
from webmm.kernels.product import aligned
from webmm.kernels.sizes import Assumption, folded, multiples
from webmm.kernels.traffic import Traffic
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class GemvSpecialisation(Specialisation):
    """The choices of every stage, and of the wide operand, from which C has axis i; axis j is from the other one."""

    wide: str = "b"  # "a": C has more rows than columns
    along_k: bool = False  # the wide operand is contiguous along k, not along i
    short_along_k: bool = True  # the other operand is read as vec4 along k, not along j
    edge_i: bool = False
    edge_j: bool = False


@dataclass(frozen=True)
class Gemv(GemmKernel):
    """LANES invocations read along the wide operand's contiguous axis, GROUPS of them along its other axis."""

    name = "gemv"
    follows = "split_k"
    summary = "matrix times a few vectors: bound by memory"
    single_k = False

    lanes: int = tunable(
        32, (4, 8, 16, 32, 64, 128), "adjacent invocations along the contiguous axis of the wide operand"
    )
    groups: int = tunable(8, (1, 2, 4, 8, 16, 32, 64, 128), "groups of LANES invocations along the other axis")
    ti: int = tunable(1, (1, 2, 4), "values of i per invocation, or vec4 of them if the wide operand runs along i")
    tj: int = tunable(1, (1, 2, 4, 8), "values of j per workgroup")
    unroll: int = tunable(2, (1, 2, 4), "steps along k whose loads are issued at once")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations; the template lays them out as (groups, lanes)."""
        return (self.lanes * self.groups, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """The sums of each invocation, which may be vec4."""
        return self.invocations * self.ti * self.tj * 16

    def tile_i(self, along_k: bool) -> int:
        """Return the values of i per workgroup."""
        return (self.groups if along_k else 4 * self.lanes) * self.ti

    def step_k(self, along_k: bool) -> int:
        """Return the inner elements per iteration of the loop over k."""
        return 4 * self.unroll * (self.lanes if along_k else self.groups)

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z), folded so that none exceeds 65,535."""
        wide, along_k = _wide(problem)
        i, j = (problem.m, problem.n) if wide == "a" else (problem.n, problem.m)
        count = ceil_div(i, self.tile_i(along_k)) * ceil_div(j, self.tj)
        return fold(count, problem.batch)

    def grid_rule(self, spec: GemvSpecialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`, which depends on the wide operand."""
        i, j = ("m", "n") if spec.wide == "a" else ("n", "m")
        return folded(f"ceil({i} / {self.tile_i(spec.along_k)}) * ceil({j} / {self.tj})", "batch")

    def iterations(self, problem: Gemm) -> int:
        """Return how many iterations the loop over k runs."""
        return ceil_div(problem.k, self.step_k(_wide(problem)[1]))

    def traffic(self, problem: Gemm) -> Traffic:
        """Count an iteration: UNROLL steps of four k, each for TI of the wide operand and TJ of the short one."""
        p, s = problem, self.specialise(problem)
        vec_w, vec_v = (s.vec_a, s.vec_b) if s.wide == "a" else (s.vec_b, s.vec_a)
        wide = self.unroll * self.ti * (1 if s.along_k else 4)
        short = self.unroll * self.tj
        sums = self.ti * self.tj * (1 if s.along_k else 4)
        step = self.step_k(s.along_k)
        return Traffic(
            workgroups=math.prod(self.dispatch(p)),
            invocations=self.invocations,
            steps=ceil_div(p.k, step),
            fmas=4 * self.unroll * sums,
            vector_loads=wide * vec_w + short * vec_v,
            scalar_loads=4 * (wide * (not vec_w) + short * (not vec_v)),
            registers=sums + 4 * (wide + short),
            workgroup_bytes=self.workgroup_bytes,
            loaded=(self.tile_i(s.along_k) + self.tj) * step * p.dtype.itemsize,
            read=(p.m * p.k + p.k * p.n) * p.batch * p.dtype.itemsize,
            written=p.m * p.n * p.batch * p.out_dtype.itemsize,
            scalar_stores=sums / (self.lanes if s.along_k else self.groups),
            exchanged=sums / 4,
        )

    def part(self, problem: Gemm, k: int) -> int:
        """Return the lane or group, among those that share an element of C, that computes inner element k."""
        s = self.specialise(problem)
        step = k if s.along_k and not s.short_along_k else k // 4
        return step % (self.lanes if s.along_k else self.groups)

    def choices(self, problem: Gemm) -> GemvSpecialisation:
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        wide, along_k = _wide(problem)
        short_along_k = self.tj % 4 != 0 or (problem.b.transposed if wide == "a" else not problem.a.transposed)
        return GemvSpecialisation(
            **vars(super().choices(problem)),
            wide=wide,
            along_k=along_k,
            short_along_k=short_along_k,
            edge_i=True,
            edge_j=True,
        )

    def assumptions(self, choices: GemvSpecialisation) -> Iterator[Assumption]:  # type: ignore[override]
        """Yield the sizes at which A and B can be loaded as vec4, and those at which no workgroup has a partial tile.

        An operand is loaded as vec4 along the axis along which it is contiguous, unless that of the wide operand is k
        and that of the short one is not: then invocations load k apart, see the template.
        """
        s = choices
        interleaved = s.along_k and not s.short_along_k
        vec_a = not interleaved if s.wide == "a" else s.short_along_k != s.trans_a
        vec_b = not interleaved if s.wide == "b" else s.short_along_k == s.trans_b
        for x, fits, along in (("a", vec_a, contiguous_a(s)), ("b", vec_b, contiguous_b(s))):
            if fits:
                yield Assumption(f"vec_{x}", True, aligned(x, along, 4, f"{x}_batch_stride"))
        i, j = ("m", "n") if s.wide == "a" else ("n", "m")
        yield Assumption("edge_i", False, multiples(self.tile_i(s.along_k), i))
        yield Assumption("edge_j", False, multiples(self.tj, j))
        yield from super().assumptions(s)

    def whole_k(self, choices: GemvSpecialisation) -> int:
        """Return the inner elements per iteration of the loop over k."""
        return self.step_k(choices.along_k)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require nothing: the number of sums need not be a multiple of the invocations that add them."""
        yield from ()


def _wide(problem: Gemm) -> tuple[str, bool]:
    """Return which operand is the wide one, and whether it is contiguous along k."""
    if problem.m > problem.n:
        return "a", not problem.a.transposed
    return "b", problem.b.transposed
