"""Stage 11: the inner dimension is divided, so that products with few tiles fill the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import Binding, Capabilities, Kernel, Scratch, Texture, ceil_div, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.problems.gemm import Gemm

PARTIAL = "partial"
SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
SPLITS_DOC = "workgroups that share a tile of C, each with a part of k"


def partial_sums(problem: Gemm, splits: int) -> Scratch:
    """Return the buffer of the partial sums: (batch, splits, m, n) with rows of whole vec4."""
    row = 4 * ceil_div(problem.n, 4) * problem.dtype.sums.itemsize
    return Scratch(PARTIAL, row * problem.m * splits * problem.batch)


@dataclass(frozen=True)
class SumSplits(GemmKernel):
    """Add up the partial sums of each element of C, and finish it."""

    name = "sum_splits"
    summary = "the sum of partial sums"
    b_vector_axis = "n"

    splits: int = tunable(2, SPLITS, SPLITS_DOC)

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Four columns each, along n."""
        return (64, 1, 1)

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """An invocation per four columns of a row."""
        x = ceil_div(problem.n, 4 * self.invocations)
        rows = min(problem.m, 2**15)
        return x, rows, problem.batch

    def iterations(self, problem: Gemm) -> int:
        """Return how often the loop over rows runs."""
        return ceil_div(problem.m, self.dispatch(problem)[1])

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the partial sums, C and the bias."""
        yield Binding(1, PARTIAL, "read-only-storage", "array<vec4f>")
        rest = [x for x in super().bindings(spec) if x.name in ("c", "bias")]
        yield from (Binding(i, x.name, x.type, x.wgsl_type) for i, x in enumerate(rest, 2))

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the partial sums."""
        return (partial_sums(problem, self.splits),)


@dataclass(frozen=True)
class SplitK(RegisterTiled):
    """As `pipelined`; groups of invocations, and workgroups, each take a share of k for the same tile of C."""

    name = "split_k"
    follows = "persistent"
    summary = "k is divided among invocations and workgroups"

    slices: int = tunable(2, (1, 2, 4, 8), "groups of invocations in a workgroup, each with every SLICES-th step of k")
    splits: int = tunable(1, SPLITS, SPLITS_DOC)

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations; the template lays them out as (slices, wy, wx)."""
        return (self.sharers * self.slices, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Tiles for each slice, and a row of accumulators of all invocations but the first slice's."""
        return self.slices * super().workgroup_bytes + (self.slices - 1) * self.sharers * self.tn * 4

    @property
    def inner_step(self) -> int:
        """A tile for each slice."""
        return self.bk * self.slices

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Return the workgroup counts: z is the batch times the splits."""
        x, y, batch = self.grid.dispatch(problem)
        return x, y, batch * self.splits

    @property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """The partial sums are added up."""
        return (SumSplits(self.splits),) if self.splits > 1 else ()

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the partial sums."""
        return (partial_sums(problem, self.splits),) if self.splits > 1 else ()

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield A, B, and C with its bias or the partial sums."""
        if self.splits == 1:
            yield from super().bindings(spec)
            return
        yield from (x for x in super().bindings(spec) if x.name in ("a", "b"))
        yield Binding(3, PARTIAL, "storage", "array<vec4f>")

    def part(self, problem: Gemm, k: int) -> int:
        """Return which slice of which split takes inner step k."""
        step, slice_ = divmod(k // self.bk, self.slices)
        share = ceil_div(ceil_div(problem.k, self.inner_step), self.splits)
        return step // share * self.slices + slice_

    def check(self, problem: Gemm, device: Capabilities) -> str | None:
        """Return why this kernel cannot compute `problem` on `device`; a workgroup without any k is one reason."""
        steps = ceil_div(problem.k, self.inner_step)
        if (self.splits - 1) * ceil_div(steps, self.splits) >= steps:
            return f"needs {self.splits} parts of k, of {self.inner_step} each; k = {problem.k} has not as many"
        return super().check(problem, device)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """As all register-tiled stages; and k is divided, or else `pipelined` is the same."""
        yield from super().constraints()
        yield self.slices * self.splits > 1, "slices or splits must be above 1, or k is not divided"
