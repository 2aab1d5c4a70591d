"""Stage 8: register tiles over workgroup tiles."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.register_tiles import RegisterTiles
from webmm.kernels.traffic import Traffic
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class RegisterTiled(RegisterTiles[Gemm], GemmKernel):
    """What the register-tiled stages of the ladder share."""

    a_vector_axis = "any"
    b_vector_axis = "any"

    order: str = tunable("serpentine", ("serpentine", "rows"), "in which order the FMAs of one inner element stand")

    @property
    def sharing(self) -> tuple[int, int]:
        """Groups of invocations in a workgroup, and workgroups, that share the k of a tile."""
        return 1, 1

    @property
    def buffers(self) -> int:
        """Tiles in flight in workgroup memory."""
        return 1

    @property
    def workgroup_bytes(self) -> int:
        """A (bk, bm) tile of A and a (bk, bn) tile of B per buffer, in f32; rows that no vec4 fits are one longer."""
        return self.buffers * (self.bm + 4 + self.bn + 4) * self.bk * 4

    def traffic(self, problem: Gemm) -> Traffic:
        """Count the loop: tiles from storage to registers to workgroup memory, and fragments from there.

        Slices meet in the end; parts of k leave partial sums, which are all whole vec4.
        """
        p, fragments = problem, self.tm * self.tn // 4
        vec_a, vec_b, vec_c = p.by_fours
        vectors = self.a_loads * vec_a + self.b_loads * vec_b
        scalars = 4 * (self.a_loads * (not vec_a) + self.b_loads * (not vec_b))
        slices, splits = self.sharing
        tiles_m, tiles_n, step = ceil_div(p.m, self.bm), ceil_div(p.n, self.bn), self.bk * slices
        vec_c = vec_c or splits > 1
        staged = self.wy <= self.bk  # what is stored one by one is stored line by line then
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
            meetings=self.tm * self.tn / 4 * (1 - 1 / slices),
        )

    def _store_cost(self, vec: bool, direct: bool, loads: int) -> float:
        """Return for how long the banks of workgroup memory are busy with what an invocation stores per step.

        A vec4 takes them four times; four elements that lie a row apart as often as lanes meet in a bank.
        """
        if not vec:
            return 4 * loads * (1 if direct else 2)
        return 4 * loads if direct else self.bk * loads


@dataclass(frozen=True)
class Blocked(RegisterTiled):
    """Fetch a tile, wait, multiply it, wait."""

    name = "blocked"
    follows = "vectorized"
    summary = "register tiles over workgroup tiles"
