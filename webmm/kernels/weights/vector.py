"""Few rows: bound by the bandwidth of reading weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.product import Grid
from webmm.kernels.traffic import Traffic
from webmm.kernels.weights.base import WeightKernel, WeightSpecialisation
from webmm.problems.weights import WeightOnly


@dataclass(frozen=True)
class Vector(WeightKernel):
    """A workgroup computes a few columns over all of k, and adds the sums of its invocations."""

    name = "vector"
    follows = ""
    summary = "few rows: the invocations of a workgroup share the inner dimension"

    lanes: int = tunable(64, (8, 32, 64, 128), "invocations that share the inner dimension")
    tm: int = tunable(4, (1, 2, 4, 8), "rows of C per workgroup")
    tn: int = tunable(4, (4, 8), "columns of C per workgroup")

    unroll: int = tunable(1, (1, 2, 4), "words of a column that an invocation loads at once")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations along k."""
        return (self.lanes, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """The sums of each invocation."""
        return self.lanes * self.tm * self.tn * 4

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.tm, self.tn)

    @property
    def inner_step(self) -> int:
        """Inner elements per iteration with 8-bit weights; 4-bit weights have twice as many."""
        return 4 * self.lanes * self.unroll

    def traffic(self, problem: WeightOnly) -> Traffic:
        """Count an iteration: UNROLL words of each column, with the rows of A for their elements."""
        p, s, words = problem, self.specialise(problem), self.tn * self.unroll
        step, sums = 32 // p.bits * self.lanes * self.unroll, self.tm * self.tn
        of_a = self.tm * 32 // p.bits * self.unroll / 4
        result = p.m * p.n * p.out_dtype.itemsize
        return Traffic(
            workgroups=math.prod(self.dispatch(p)),
            invocations=self.lanes,
            steps=ceil_div(p.k, step),
            fmas=sums * 32 // p.bits * self.unroll,
            vector_loads=of_a if s.vec_a else 0,
            scalar_loads=words + 2 * self.tn + (0 if s.vec_a else 4 * of_a),
            registers=sums + words + int(4 * of_a),
            workgroup_bytes=self.workgroup_bytes,
            loaded=(self.tm * p.dtype.itemsize + self.tn * p.bits / 8) * step,
            read=p.bytes - result,
            written=result,
            waste=self.grid.tiles(p) * sums / (p.m * p.n),
            scalar_stores=sums / self.lanes,
            exchanged=sums / 4,
        )

    def iterations(self, problem: WeightOnly) -> int:
        """Return how many iterations an invocation's loops run: over k, and over the levels of the final sum."""
        return super().iterations(problem) + self.lanes.bit_length()

    def whole_k(self, choices: WeightSpecialisation) -> int:
        """Return the weights of a word, or of an iteration of several; no invocation starts beyond the end of k."""
        return choices.per_word * (1 if self.unroll == 1 else self.unroll * self.lanes)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4, and a power of two of invocations."""
        yield self.tn % 4 == 0, f"tn = {self.tn} must be a multiple of 4: fragments are vec4"
        yield self.lanes & (self.lanes - 1) == 0, f"lanes = {self.lanes} must be a power of 2, to add sums by halves"
        yield self.tm * self.tn // 4 <= self.lanes, f"lanes = {self.lanes} is too small to store {self.tm}×{self.tn}"
