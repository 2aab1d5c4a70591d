"""Base classes of the kernels of products with quantised weights: the uniform, and the template choices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Params
from webmm.kernels.gemm.base import Specialisation
from webmm.kernels.product import ProductKernel
from webmm.params import U32, member
from webmm.problems.weights import WeightOnly


@dataclass(frozen=True)
class WeightParams:
    """The uniform of products with quantised weights; sizes are in elements."""

    m: U32 = member("rows of A and C")
    n: U32 = member("columns of B and C")
    k: U32 = member("columns of A, rows of B")
    lda: U32 = member("row stride of A as stored")
    ldb: U32 = member("weights stored per column of B, in whole blocks")
    ldc: U32 = member("row stride of C")
    a_offset: U32 = member("first element of A in its buffer")

    @classmethod
    def of(cls, p: WeightOnly) -> WeightParams:
        """Return the uniform for the problem `p`."""
        return cls(p.m, p.n, p.k, p.a.ld, p.blocks * p.block, p.n, p.a.offset)


@dataclass(frozen=True)
class WeightSpecialisation(Specialisation):
    """The choices of a product of floats, and the packing of the weights."""

    bits: int = 8
    block: int = 32

    @property
    def per_word(self) -> int:
        """Weights in a word."""
        return 32 // self.bits


@dataclass(frozen=True)
class WeightKernel(ProductKernel[WeightOnly]):
    """A way to multiply by quantised weights; subclasses add tunables and define the sizes of tiles."""

    op = "weights"
    params: ClassVar[type[Params]] = WeightParams
    a_vector_axis: ClassVar[str] = "k"  # the axis along which the kernel can read A as vec4: "k" or "any"
    b_vector_axis: ClassVar[str] = ""  # B is bound by words in every kernel

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield A, the words of B, their scales and zero points, and C."""
        types = {
            "a": spec.dtype.array(spec.vec_a),
            "b": "array<u32>",
            "scales": "array<f32>",
            "zeros": "array<u32>",
            "c": spec.out_dtype.array(spec.vec_c, shared=True),
        }
        for number, (name, wgsl) in enumerate(types.items(), 1):
            yield Binding(number, name, "storage" if name == "c" else "read-only-storage", wgsl)

    def specialise(self, problem: WeightOnly) -> WeightSpecialisation:
        """Return the template choices for `problem`."""
        p, grid = problem, self.grid
        return WeightSpecialisation(
            dtype=p.dtype,
            out_dtype=p.out_dtype,
            trans_a=p.a.transposed,
            trans_b=True,
            vec_a=(self.a_vector_axis == "any" or not p.a.transposed) and p.a.vectorizable(p.m, p.k),
            vec_b=False,
            vec_c=p.n % 4 == 0,
            edge_m=p.m % grid.tile_m != 0,
            edge_n=p.n % grid.tile_n != 0,
            edge_k=p.k % self.inner_step != 0,
            long_k=False,
            bits=p.bits,
            block=p.block,
        )
