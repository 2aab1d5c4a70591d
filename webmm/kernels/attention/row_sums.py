"""The largest scores and the sums of weights, with which results for pieces of the keys are combined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.dtypes import F32
from webmm.kernels.attention.base import AttentionChoices, AttentionKernel, others
from webmm.kernels.base import Binding, tunable


@dataclass(frozen=True)
class RowSums(AttentionKernel):
    """Writes two columns of float32 for each query instead of its result; v is not read.

    Milakov and Gimelshein, Online normalizer calculation for softmax (2018).
    """

    name = "row_sums"
    summary = "largest scores and sums of weights, for pieces of the keys"

    size: int = tunable(32, (8, 32, 64, 128), "queries of a workgroup, one per invocation")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations."""
        return (self.size, 1, 1)

    @property
    def tile_q(self) -> int:
        """One per invocation."""
        return self.size

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield those of any stage but v."""
        types = {"q": spec.dtype.array(spec.vec_q), "k": spec.dtype.array(spec.vec_k), "o": F32.array(False)}
        yield from self.numbered(types | others(spec))
