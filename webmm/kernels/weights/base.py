"""Base classes of the kernels of products with quantised weights: the uniform, and the template choices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.kernels.base import Binding, Params
from webmm.kernels.gemm.base import Specialisation, contiguous_a
from webmm.kernels.product import ProductKernel, aligned, by_fours, place
from webmm.kernels.sizes import Assumption, multiples
from webmm.problems.weights import WeightOnly
from webmm.wgsl.epilogues import FunctionParams, in_uniform
from webmm.wgsl.params import U32, member


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
class FunctionWeightParams(FunctionParams, WeightParams):
    """The uniform with the members of a user's own function."""

    @classmethod
    def of(cls, p: WeightOnly) -> FunctionWeightParams:
        """Return the uniform for the problem `p`."""
        return cls(**vars(WeightParams.of(p)), **FunctionParams.members(p))


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
    single_k = False
    params: ClassVar[type[Params]] = WeightParams
    a_vector_axis: ClassVar[str] = "k"  # the axis along which the kernel can read A as vec4: "k" or "any"
    b_vector_axis: ClassVar[str] = ""  # B is bound by words in every kernel
    vector: ClassVar[int] = 4  # elements of A that it reads at once

    def uniform(self, of: Any) -> type[Params]:
        """Return the uniform's class for a problem, or for template choices."""
        return FunctionWeightParams if in_uniform(of.activation) else self.params

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield A, the words of B, their scales and zero points, C, and the operands of the activation."""
        types = {
            "a": spec.dtype.array(spec.vec_a),
            "b": "array<u32>",
            "scales": "array<f32>",
            "zeros": "array<u32>",
            "c": spec.out_dtype.array(spec.vec_c, shared=True),
            **{f"y{i}": dtype.array(spec.vec_y) for i, dtype in enumerate(spec.operands)},
        }
        for number, (name, wgsl) in enumerate(types.items(), 1):
            yield Binding(number, name, "storage" if name == "c" else "read-only-storage", wgsl)

    def choices(self, problem: WeightOnly) -> WeightSpecialisation:
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        p = problem
        return WeightSpecialisation(
            dtype=p.dtype,
            out_dtype=p.out_dtype,
            trans_a=p.a.transposed,
            trans_b=True,
            vec_a=False,
            vec_b=False,
            vec_c=False,
            edge_m=True,
            edge_n=True,
            edge_k=True,
            long_k=False,
            bits=p.bits,
            block=p.block,
            **p.specialised,
        )

    def assumptions(self, choices: WeightSpecialisation) -> Iterator[Assumption]:
        """Yield the sizes at which A, C and the operands can be accessed as vec4, and those of any product."""
        if self.a_vector_axis == "any" or not choices.trans_a:
            yield Assumption("vec_a", True, aligned("a", contiguous_a(choices), self.vector))
        yield from by_fours(len(choices.operands), multiples(4, "n"))
        yield from super().assumptions(choices)

    def places(self, problem: WeightOnly) -> dict[str, tuple[str, str]]:
        """Return the places of elements of A, the words of W, its scales and zero points, and C, and their numbers."""
        p = problem
        block = f"column * (ldb / {p.block}) + row / {p.block}"
        return {
            "a": place("a", "m", "k", p.a.transposed),
            "b": (f"(column * ldb + row) / {32 // p.bits}", f"n * ldb / {32 // p.bits}"),
            "scales": (block, f"n * ldb / {p.block}"),
            "zeros": (block, f"n * ldb / {p.block}"),
            "c": place("c", "m", "n", offset=False),
            **p.operand_places,
        }
