"""Register tiles over workgroup tiles."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.register_tiles import RegisterTiles
from webmm.kernels.traffic import Traffic
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class RegisterTiled(RegisterTiles[Gemm], GemmKernel):
    """Base class of the register-tiled stages of the ladder."""

    a_vector_axis = "any"
    b_vector_axis = "any"

    order: str = tunable("serpentine", ("serpentine", "rows"), "order of the FMAs of one inner element")

    @property
    def sharing(self) -> tuple[int, int]:
        """Groups of invocations per workgroup, and workgroups, that divide k for the same tile."""
        return 1, 1

    @property
    def buffers(self) -> int:
        """Copies of the tiles in workgroup memory."""
        return 1

    @property
    def workgroup_bytes(self) -> int:
        """A (bk, bm) tile of A and a (bk, bn) tile of B per buffer, in f32, with rows padded by a vec4."""
        return self.buffers * (self.bm + 4 + self.bn + 4) * self.bk * 4

    def traffic(self, problem: Gemm) -> Traffic:
        """Count the loop: tiles from storage to registers to workgroup memory, and fragments from there.

        The sums of slices are added through workgroup memory; splits write partial sums as whole vec4.
        """
        p, fragments = problem, self.tm * self.tn // 4
        vec_a, vec_b, vec_c = p.by_fours
        vectors = self.a_loads * vec_a + self.b_loads * vec_b
        scalars = 4 * (self.a_loads * (not vec_a) + self.b_loads * (not vec_b))
        slices, splits = self.sharing
        tiles_m, tiles_n, step = ceil_div(p.m, self.bm), ceil_div(p.n, self.bn), self.bk * slices
        vec_c = vec_c or splits > 1
        staged = self.wy <= self.bk  # then single elements are stored line by line
        width, itemsize = (4 * ceil_div(p.n, 4) * splits, 4) if splits > 1 else (p.n, p.out_dtype.itemsize)
        a_cost = self._store_cost(vec_a, p.a.transposed, self.a_loads)
        return Traffic(
            workgroups=tiles_m * tiles_n * p.batch * splits,
            invocations=self.sharers * slices,
            steps=ceil_div(ceil_div(p.k, step), splits),
            fmas=self.bk * self.tm * self.tn,
            vector_loads=vectors,
            scalar_loads=scalars,
            workgroup_loads=self.bk * (self.tm + self.tn) / 4,
            workgroup_stores=a_cost + self._store_cost(vec_b, not p.b.transposed, self.b_loads),
            barriers=2,
            registers=4 * fragments + self.tm + self.tn + 4 * vectors + scalars,
            workgroup_bytes=self.workgroup_bytes,
            loaded=(self.bm + self.bn) * step * p.dtype.itemsize,
            read=(p.m * p.k + p.k * p.n) * p.batch * p.dtype.itemsize,
            written=p.m * width * p.batch * itemsize,
            waste=tiles_m * self.bm / p.m * tiles_n * self.bn / p.n,
            vector_stores=fragments if vec_c else 0,
            scalar_stores=0 if vec_c else fragments if staged else 4 * fragments,
            exchanged=self.tm * self.tn / 4 * (1 - 1 / slices),
        )

    def _store_cost(self, vec: bool, direct: bool, loads: int) -> float:
        """Return the cost of an invocation's stores to workgroup memory per step, in bank cycles.

        A vec4 takes four; four elements that are a row apart take one per conflicting invocation.
        """
        if not vec:
            return 4 * loads * (1 if direct else 2)
        return 4 * loads if direct else self.bk * loads


@dataclass(frozen=True)
class Blocked(RegisterTiled):
    """In each step: load a tile, wait, multiply it, wait."""

    name = "blocked"
    follows = "vectorized"
    summary = "register tiles over workgroup tiles"
