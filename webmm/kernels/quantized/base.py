"""Base classes of the kernels of quantised products: the uniform, and the choices of their templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.dtypes import BYTES, I8, DType
from webmm.kernels.base import Binding, Params
from webmm.kernels.product import ProductKernel, aligned, place
from webmm.kernels.sizes import Assumption, multiples
from webmm.problems.quantized import Quantized
from webmm.wgsl import params
from webmm.wgsl.params import U32, Vec2I, member

PACKED = 4  # bytes in a word
WIDE = 16  # bytes in a vec4 of words
MIDDLE = 128  # subtracted from u8 to multiply it as i8


@dataclass(frozen=True)
class QuantizedParams:
    """The uniform of products of 8-bit integers; sizes are in elements, which are bytes."""

    m: U32 = member("rows of A and C")
    n: U32 = member("columns of B and C")
    k: U32 = member("columns of A, rows of B")
    lda: U32 = member("row stride of A as stored")
    ldb: U32 = member("row stride of B as stored")
    a_offset: U32 = member("first element of A in its buffer")
    b_offset: U32 = member("first element of B")
    zero_a: params.I32 = member("zero point of A, if it is the same for all rows")
    zero_b: params.I32 = member("zero point of B, if it is the same for all columns")
    zero_c: params.I32 = member("zero point of C")
    multiplier: Vec2I = member("mantissa and shift, if they are the same for all elements")

    @classmethod
    def of(cls, p: Quantized) -> QuantizedParams:
        """Return the uniform for the problem `p`."""
        zeros = (p.zero_a or 0, p.zero_b or 0, p.zero_c)
        return cls(p.m, p.n, p.k, p.a.ld, p.b.ld, p.a.offset, p.b.offset, *zeros, p.multiplier)


@dataclass(frozen=True)
class Specialisation:
    """The choices of a template besides the tile sizes; problems with equal choices share a shader."""

    signed_a: bool
    signed_b: bool
    signed: bool  # bytes are multiplied as i8, not as u8
    flip_a: bool  # A is u8 and multiplied as i8: 128 is subtracted from it and its zero points
    flip_b: bool  # likewise for B
    trans_a: bool
    trans_b: bool
    align_a: int  # 16, 4 or 1: the bytes of which A's offset and row stride are multiples
    align_b: int
    edge_m: bool  # the last tile is partial along the rows of C, its columns, or k
    edge_n: bool
    edge_k: bool
    long_k: bool  # a loop over single k would take more than LOOP_LIMIT iterations
    zero_a: str  # "" for none, "all" for one in the uniform, "each" for one per row
    zero_b: str
    out_dtype: DType
    vec_c: bool  # four consecutive elements of C are stored at once
    scaled_rows: bool
    scaled_columns: bool
    by_row: bool
    by_column: bool
    bias: bool

    @property
    def types(self) -> tuple[DType, ...]:
        """No types that need an extension or functions for unpacking: the templates unpack bytes themselves."""
        return ()

    @property
    def requantised(self) -> bool:
        """Whether C is of 8 bits."""
        return self.out_dtype in BYTES

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest integer of C."""
        return (-128, 127) if self.out_dtype == I8 else (0, 255)


@dataclass(frozen=True)
class QuantizedKernel(ProductKernel[Quantized]):
    """A way to multiply 8-bit integers; subclasses add tunables and define the sizes of workgroups and tiles."""

    op = "quantized"
    params: ClassVar[type[Params]] = QuantizedParams
    packs: ClassVar[bool] = False  # whether words of four bytes are multiplied, and therefore all as i8 or all as u8

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield A, B, C, and the terms by row and by column."""
        c = spec.out_dtype.wgsl
        if spec.requantised and not spec.vec_c:
            c = f"atomic<{c}>"
        elif spec.vec_c and not spec.requantised:
            c = f"vec4<{c}>"
        types = {
            "a": "vec4<u32>" if spec.align_a == WIDE else "u32",
            "b": "vec4<u32>" if spec.align_b == WIDE else "u32",
            "c": c,
            **({"row_terms": "vec4<i32>"} if spec.by_row else {}),
            **({"column_terms": "vec4<i32>"} if spec.by_column else {}),
        }
        for number, (name, element) in enumerate(types.items(), 1):
            yield Binding(number, name, "storage" if name == "c" else "read-only-storage", f"array<{element}>")

    def signed(self, problem: Quantized) -> bool:
        """Tell whether elements are multiplied as i8; an operand of u8 is then converted."""
        return I8 in (problem.a_dtype, problem.b_dtype)

    def choices(self, problem: Quantized) -> Specialisation:
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        p = problem
        signed_a, signed_b = p.a_dtype == I8, p.b_dtype == I8
        signed = self.signed(p)
        flip_a, flip_b = (self.packs and signed and not is_i8 for is_i8 in (signed_a, signed_b))
        return Specialisation(
            signed_a=signed_a,
            signed_b=signed_b,
            signed=signed,
            flip_a=flip_a,
            flip_b=flip_b,
            trans_a=p.a.transposed,
            trans_b=p.b.transposed,
            align_a=1,
            align_b=1,
            edge_m=True,
            edge_n=True,
            edge_k=True,
            long_k=True,
            zero_a=_zero(p.zero_a, MIDDLE * flip_a),
            zero_b=_zero(p.zero_b, MIDDLE * flip_b),
            out_dtype=p.out_dtype,
            vec_c=False,
            scaled_rows=p.scaled_rows,
            scaled_columns=p.scaled_columns,
            by_row=p.by_row,
            by_column=p.by_column,
            bias=p.bias,
        )

    def assumptions(self, choices: Specialisation) -> Iterator[Assumption]:
        """Yield the sizes at which loads of A and B read 4 or 16 bytes, stores of C write four elements, and so on."""
        a, b = "m" if choices.trans_a else "k", "k" if choices.trans_b else "n"
        for x, contiguous in (("a", a), ("b", b)):
            widths = (PACKED, WIDE) if contiguous == "k" else (PACKED,)  # across k, blocks of 4 × 4 are transposed
            for width in widths if self.packs else ():
                yield Assumption(f"align_{x}", width, aligned(x, contiguous, width))
        yield Assumption("vec_c", True, multiples(PACKED, "n"))
        yield from super().assumptions(choices)

    def places(self, problem: Quantized) -> dict[str, tuple[str, str]]:
        """Return the places of elements of A, B, C and the terms by row and column, and their numbers."""
        p = problem
        return {
            "a": place("a", "m", "k", p.a.transposed),
            "b": place("b", "k", "n", p.b.transposed),
            "c": place("c", "m", "n", ld="n", offset=False),
            **({"row_terms": ("row * 4 + term", "4 * m")} if p.by_row else {}),
            **({"column_terms": ("column * 4 + term", "4 * n")} if p.by_column else {}),
        }


def _zero(zero: int | None, none: int) -> str:
    """Return "each" for a zero point per row or column, "" if it is `none`, otherwise "all"."""
    return "each" if zero is None else "" if zero == none else "all"
