"""What the kernels of quantised products share: the uniform, and the choices of their templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm import params
from webmm.dtypes import BYTES, I8, DType
from webmm.kernels.base import LOOP_LIMIT, Binding, Params
from webmm.kernels.product import ProductKernel
from webmm.params import U32, Vec2I, member
from webmm.problems.product import Operand
from webmm.problems.quantized import Quantized

PACKED = 4  # bytes in a word
WIDE = 16  # and in a vec4 of words
MIDDLE = 128  # what u8 is moved by where it is multiplied as i8


@dataclass(frozen=True)
class QuantizedParams:
    """The uniform of products of 8-bit integers; lengths are in elements, that is in bytes."""

    m: U32 = member("rows of A and C")
    n: U32 = member("columns of B and C")
    k: U32 = member("columns of A, rows of B")
    lda: U32 = member("distance between stored rows of A")
    ldb: U32 = member("distance between stored rows of B")
    a_offset: U32 = member("first element of A in its buffer")
    b_offset: U32 = member("first element of B")
    zero_a: params.I32 = member("zero point of A, where it has one for all")
    zero_b: params.I32 = member("zero point of B, likewise")
    zero_c: params.I32 = member("zero point of C")
    multiplier: Vec2I = member("mantissa and shift, where they are the same for all")

    @classmethod
    def of(cls, p: Quantized) -> QuantizedParams:
        """Return the uniform for the problem `p`."""
        zeros = (p.zero_a or 0, p.zero_b or 0, p.zero_c)
        return cls(p.m, p.n, p.k, p.a.ld, p.b.ld, p.a.offset, p.b.offset, *zeros, p.multiplier)


@dataclass(frozen=True)
class Specialisation:
    """The choices that a template takes besides the tile sizes; problems that share them share a shader."""

    signed_a: bool
    signed_b: bool
    signed: bool  # bytes are multiplied as i8, not as u8
    flip_a: bool  # A is u8 and taken as i8: it and its zero points are moved by 128
    flip_b: bool  # likewise
    trans_a: bool
    trans_b: bool
    align_a: int  # 16, 4 or 1: what the stored rows of A are multiples of, in bytes
    align_b: int
    edge_m: bool  # the last tile hangs over the end of C's rows, its columns, or the inner dimension
    edge_n: bool
    edge_k: bool
    long_k: bool  # a loop over single k would take more than LOOP_LIMIT iterations
    zero_a: str  # "" for none, "all" for one in the uniform, "each" for one per row
    zero_b: str
    out_dtype: DType
    vec_c: bool  # four neighbours of C are stored at once
    scaled_rows: bool
    scaled_columns: bool
    by_row: bool
    by_column: bool
    bias: bool

    @property
    def types(self) -> tuple[DType, ...]:
        """None that needs an extension, or functions that unpack it: bytes are taken apart by the templates."""
        return ()

    @property
    def requantised(self) -> bool:
        """Whether C is of 8 bits."""
        return self.out_dtype in BYTES

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer of C."""
        return (-128, 127) if self.out_dtype == I8 else (0, 255)


@dataclass(frozen=True)
class QuantizedKernel(ProductKernel[Quantized]):
    """A way to multiply 8-bit integers. Subclasses add tunable fields and say how large workgroups and tiles are."""

    op = "quantized"
    params: ClassVar[type[Params]] = QuantizedParams
    packs: ClassVar[bool] = False  # whether bytes are multiplied by words, and so all as i8 or all as u8

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield A, B, C, and what differs by row and by column."""
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
        """Tell whether products are those of i8: an operand of u8 then becomes one of i8."""
        return I8 in (problem.a_dtype, problem.b_dtype)

    def specialise(self, problem: Quantized) -> Specialisation:
        """Return the template choices that fit `problem`."""
        p, grid = problem, self.grid
        signed_a, signed_b = p.a_dtype == I8, p.b_dtype == I8
        signed = self.signed(p)
        flip_a, flip_b = (self.packs and signed and not alone for alone in (signed_a, signed_b))
        return Specialisation(
            signed_a=signed_a,
            signed_b=signed_b,
            signed=signed,
            flip_a=flip_a,
            flip_b=flip_b,
            trans_a=p.a.transposed,
            trans_b=p.b.transposed,
            align_a=self._alignment(p.a, p.m, p.k, along_k=not p.a.transposed),
            align_b=self._alignment(p.b, p.k, p.n, along_k=p.b.transposed),
            edge_m=p.m % grid.tile_m != 0,
            edge_n=p.n % grid.tile_n != 0,
            edge_k=p.k % self.inner_step != 0,
            long_k=self.inner_step == 1 and p.k > LOOP_LIMIT,
            zero_a=_zero(p.zero_a, MIDDLE * flip_a),
            zero_b=_zero(p.zero_b, MIDDLE * flip_b),
            out_dtype=p.out_dtype,
            vec_c=p.n % PACKED == 0,
            scaled_rows=p.scaled_rows,
            scaled_columns=p.scaled_columns,
            by_row=p.by_row,
            by_column=p.by_column,
            bias=p.bias,
        )

    def _alignment(self, operand: Operand, rows: int, columns: int, along_k: bool) -> int:
        """Return the bytes that are read at once: 16 or 4 where all of them belong together, else 1."""
        if not self.packs:
            return 1
        sizes = (WIDE, PACKED) if along_k else (PACKED,)  # what runs across k is transposed by 4 × 4
        return next((size for size in sizes if operand.aligned(rows, columns, size)), 1)


def _zero(zero: int | None, none: int) -> str:
    return "each" if zero is None else "" if zero == none else "all"
