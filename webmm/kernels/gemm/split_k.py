"""Split k: the inner dimension is divided, so that products with few tiles of C occupy the whole GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from webmm.kernels.base import Binding, Kernel, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.splits import (
    MOST_SPLITS,
    PARTIAL,
    SPLITS,
    SPLITS_DOC,
    AddsSplits,
    Divided,
    partial_type,
)
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class SumSplits(AddsSplits[Gemm], GemmKernel):
    """Add the partial sums of each element of C, and apply the epilogue."""

    b_vector_axis = "n"

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the partial sums, C and the bias."""
        yield Binding(1, PARTIAL, "read-only-storage", partial_type(spec.dtype))
        rest = [x for x in super().bindings(spec) if x.name not in ("a", "b")]
        yield from (Binding(i, x.name, x.type, x.wgsl_type) for i, x in enumerate(rest, 2))


@dataclass(frozen=True)
class SplitK(Divided[Gemm], RegisterTiled):
    """As `pipelined`; groups of invocations, and workgroups, each compute a part of k for the same tile of C."""

    name = "split_k"
    follows = "pipelined"
    summary = "k is split among invocations and workgroups"

    slices: int = tunable(2, (1, 2, 4, 8), "groups of invocations per workgroup, each with every SLICES-th step of k")
    splits: int = tunable(1, SPLITS, SPLITS_DOC, most=MOST_SPLITS)

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

    @cached_property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """The dispatch that adds the partial sums."""
        return (SumSplits(self.splits),) if self.splits > 1 else ()

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield A, B, and C with its bias or the partial sums."""
        if self.splits == 1:
            yield from super().bindings(spec)
            return
        yield from (x for x in super().bindings(spec) if x.name in ("a", "b"))
        yield Binding(3, PARTIAL, "storage", partial_type(spec.dtype))

    def part(self, problem: Gemm, k: int) -> int:
        """Return the number of the slice, counted over all splits, that computes inner element k."""
        return super().part(problem, k) * self.slices + k // self.bk % self.slices

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require what all register-tiled stages do, and that k is divided: otherwise this is `pipelined`."""
        yield from super().constraints()
        yield self.slices * self.splits > 1, "slices or splits must be above 1, so that k is divided"
