"""Split k: the inner dimension is divided, so that products with few tiles of C occupy the whole GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from webmm.kernels.base import Binding, Capabilities, Kernel, Scratch, Texture, ceil_div, fold, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.product import Tiled
from webmm.kernels.traffic import Traffic
from webmm.problems.gemm import Gemm

PARTIAL = "partial"
SHARED = (2**20, 2**26)  # bytes of the smallest and of the largest buffer whose size is a power of two
SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
SPLITS_DOC = "workgroups per tile of C, each with a part of k"


def partial_sums(problem: Gemm, splits: int) -> Scratch:
    """Return the buffer of the partial sums: (batch, splits, m, n), with rows of whole vec4.

    Sizes up to SHARED[1] are rounded up to a power of two, so that products of many shapes share few buffers.
    """
    nbytes = partial_bytes(problem, splits)
    return Scratch(PARTIAL, nbytes if nbytes > SHARED[1] else max(SHARED[0], 1 << (nbytes - 1).bit_length()))


def partial_bytes(problem: Gemm, splits: int) -> int:
    """Return the bytes of all partial sums."""
    row = 4 * ceil_div(problem.n, 4) * problem.dtype.sums.itemsize
    return row * problem.m * splits * problem.batch


@dataclass(frozen=True)
class SumSplits(GemmKernel):
    """Add the partial sums of each element of C, and apply the epilogue."""

    name = "sum_splits"
    summary = "sums of partial sums"
    b_vector_axis = "n"

    splits: int = tunable(2, SPLITS, SPLITS_DOC)

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

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Workgroups over the vec4 of C, folded so that none exceeds 65,535; z is the batch."""
        count = ceil_div(problem.m * ceil_div(problem.n, 4), self.invocations // self.adders)
        return fold(count, problem.batch)

    def traffic(self, problem: Gemm) -> Traffic:
        """Count the loads and additions of a vec4 of C."""
        p, vec_c = problem, problem.by_fours[2]
        return Traffic(
            workgroups=math.prod(self.dispatch(p)),
            invocations=self.invocations,
            steps=1,
            fmas=4 * self.splits / self.adders,
            vector_loads=self.splits / self.adders,
            scalar_loads=0,
            workgroup_bytes=self.workgroup_bytes,
            loaded=16 * self.splits * self.invocations / self.adders,
            read=partial_bytes(p, self.splits),
            written=p.m * p.n * p.batch * p.out_dtype.itemsize,
            vector_stores=vec_c,
            scalar_stores=4 * (not vec_c),
            exchanged=1 - 1 / self.adders,
        )

    def iterations(self, problem: Gemm) -> int:
        """Return 0: it has no loop."""
        del problem
        return 0

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the partial sums, C and the bias."""
        yield Binding(1, PARTIAL, "read-only-storage", "array<vec4f>")
        rest = [x for x in super().bindings(spec) if x.name in ("c", "bias")]
        yield from (Binding(i, x.name, x.type, x.wgsl_type) for i, x in enumerate(rest, 2))

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the partial sums."""
        return (partial_sums(problem, self.splits),)


class Divided(Tiled[Gemm]):
    """A stage with the tunable `splits`: that many workgroups per tile of C, each with a part of k in whole steps."""

    splits: int

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z); z is the batch times the splits."""
        x, y, batch = self.grid.dispatch(problem)
        return x, y, batch * self.splits

    @cached_property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """The dispatch that adds the partial sums."""
        return (SumSplits(self.splits),) if self.splits > 1 else ()

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the partial sums."""
        return (partial_sums(problem, self.splits),) if self.splits > 1 else ()

    def divided(self, bindings: Iterator[Binding]) -> Iterator[Binding]:
        """Yield `bindings`, with the partial sums in place of C and its bias if k is divided."""
        yield from (x for x in bindings if self.splits == 1 or x.name in ("a", "b"))
        if self.splits > 1:
            yield Binding(3, PARTIAL, "storage", "array<vec4f>")

    def check(self, problem: Gemm, device: Capabilities) -> str | None:
        """Return why this kernel cannot compute `problem` on `device`; every split needs a step of k."""
        steps = ceil_div(problem.k, self.inner_step)
        if (self.splits - 1) * ceil_div(steps, self.splits) >= steps:
            return f"needs {self.splits} parts of k, at least {self.inner_step} each; k = {problem.k} is too small"
        return super().check(problem, device)


@dataclass(frozen=True)
class SplitK(Divided, RegisterTiled):
    """As `pipelined`; groups of invocations, and workgroups, each compute a part of k for the same tile of C."""

    name = "split_k"
    follows = "persistent"
    summary = "k is split among invocations and workgroups"

    slices: int = tunable(2, (1, 2, 4, 8), "groups of invocations per workgroup, each with every SLICES-th step of k")
    splits: int = tunable(1, SPLITS, SPLITS_DOC)

    @property
    def sharing(self) -> tuple[int, int]:
        """Groups of invocations per workgroup, and workgroups, that divide k for the same tile."""
        return self.slices, self.splits

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations; the template lays them out as (slices, wy, wx)."""
        return (self.sharers * self.slices, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Tiles for each slice, and one row of the sums of every slice but the first."""
        return self.slices * super().workgroup_bytes + (self.slices - 1) * self.sharers * self.tn * 4

    @property
    def inner_step(self) -> int:
        """A tile for each slice."""
        return self.bk * self.slices

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield A, B, and C with its bias or the partial sums."""
        return self.divided(super().bindings(spec))

    def part(self, problem: Gemm, k: int) -> int:
        """Return the number of the slice, counted over all splits, that computes inner element k."""
        step, slice_ = divmod(k // self.bk, self.slices)
        share = ceil_div(ceil_div(problem.k, self.inner_step), self.splits)
        return step // share * self.slices + slice_

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require what all register-tiled stages do, and that k is divided: otherwise this is `pipelined`."""
        yield from super().constraints()
        yield self.slices * self.splits > 1, "slices or splits must be above 1, so that k is divided"
