"""A matrix times one or a few vectors: each element of the matrix is read once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webmm.kernels.base import MAX_WORKGROUPS, ceil_div, fold, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation
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

    def grid_rule(self) -> dict[str, Any]:
        """Return the rule of `dispatch` in words, which depends on the wide operand."""
        tile = (
            f"{self.tile_i(along_k=True)} if the wide operand is contiguous along k, else {self.tile_i(along_k=False)}"
        )
        words = (
            f"i, j = the larger and the smaller of m, n; count = ceil(i / tile) * ceil(j / {self.tj}), tile = {tile}"
        )
        return {"rule": f"{words}; y = ceil(count / {MAX_WORKGROUPS}); dispatch (ceil(count / y), y, batch)"}

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

    def specialise(self, problem: Gemm) -> GemvSpecialisation:
        """Return the template choices that fit `problem`."""
        wide, along_k = _wide(problem)
        i, j = (problem.m, problem.n) if wide == "a" else (problem.n, problem.m)
        fits_a, fits_b = problem.a.vectorizable(problem.m, problem.k), problem.b.vectorizable(problem.k, problem.n)
        common = super().specialise(problem)
        short_along_k = self.tj % 4 != 0 or (problem.b.transposed if wide == "a" else not problem.a.transposed)
        interleaved = along_k and not short_along_k  # see the template
        changes = {
            "vec_a": fits_a and (not interleaved if wide == "a" else short_along_k != problem.a.transposed),
            "vec_b": fits_b and (not interleaved if wide == "b" else short_along_k == problem.b.transposed),
            "edge_k": problem.k % self.step_k(along_k) != 0,
        }
        fields = {field.name: getattr(common, field.name) for field in dataclasses.fields(common)}
        edges = {"edge_i": i % self.tile_i(along_k) != 0, "edge_j": j % self.tj != 0}
        return GemvSpecialisation(
            **{**fields, **changes, **edges}, wide=wide, along_k=along_k, short_along_k=short_along_k
        )

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require nothing: the number of sums need not be a multiple of the invocations that add them."""
        yield from ()


def _wide(problem: Gemm) -> tuple[str, bool]:
    """Return which operand is the wide one, and whether it is contiguous along k."""
    if problem.m > problem.n:
        return "a", not problem.a.transposed
    return "b", problem.b.transposed
