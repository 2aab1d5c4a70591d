"""Base classes of the GEMM stages: the uniform, the grid over C, and the choices of their templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.dtypes import DType
from webmm.kernels.base import Binding, Params, Stored, ceil_div
from webmm.kernels.product import ProductKernel, aligned, by_fours, place
from webmm.kernels.sizes import Assumption
from webmm.kernels.traffic import Traffic
from webmm.problems.gemm import Gemm
from webmm.wgsl.epilogues import EpilogueParams, EpilogueSpecialisation, FunctionParams, in_uniform
from webmm.wgsl.params import U32, member


@dataclass(frozen=True)
class GemmLengths:
    """Sizes, strides and offsets in the uniform of every GEMM kernel, in elements."""

    m: U32 = member("rows of A and C")
    n: U32 = member("columns of B and C")
    k: U32 = member("columns of A, rows of B")
    lda: U32 = member("row stride of A as stored")
    ldb: U32 = member("row stride of B as stored")
    ldc: U32 = member("row stride of C")
    a_offset: U32 = member("first element of A in its buffer")
    b_offset: U32 = member("first element of B")
    c_offset: U32 = member("first element of C")
    a_batch_stride: U32 = member("stride between matrices of the batch")
    b_batch_stride: U32 = member("")
    c_batch_stride: U32 = member("")
    bias_offset: U32 = member("first element of the bias")


@dataclass(frozen=True)
class GemmParams(EpilogueParams, GemmLengths):
    """The uniform of every GEMM kernel: sizes, then the numbers of the epilogue."""

    @classmethod
    def of(cls, p: Gemm) -> GemmParams:
        """Return the uniform for the problem `p`."""
        a, b, c = p.a, p.b, p.c
        return cls(
            *(p.m, p.n, p.k),
            *(a.ld, b.ld, c.ld),
            *(a.offset, b.offset, c.offset),
            *(a.batch_stride, b.batch_stride, c.batch_stride),
            p.bias_offset,
            **p.numbers,
        )


@dataclass(frozen=True)
class FunctionGemmParams(FunctionParams, GemmParams):
    """The uniform with the members of a user's own function."""

    @classmethod
    def of(cls, p: Gemm) -> FunctionGemmParams:
        """Return the uniform for the problem `p`."""
        return cls(**vars(GemmParams.of(p)), **FunctionParams.members(p))


@dataclass(frozen=True)
class Specialisation(EpilogueSpecialisation, Stored):
    """The choices of a template besides the tile sizes; problems with equal choices share a shader."""

    trans_a: bool
    trans_b: bool
    vec_a: bool  # A, B, C are bound as vec4, if their contiguous lengths are multiples of 4
    vec_b: bool
    vec_c: bool
    edge_m: bool  # the last tile is partial along the rows of C, its columns, or k
    edge_n: bool
    edge_k: bool
    long_k: bool  # a loop over single k would take more than LOOP_LIMIT iterations

    @property
    def types(self) -> tuple[DType, ...]:
        """The distinct types that are stored."""
        return tuple(dict.fromkeys((self.dtype, self.out_dtype, *self.operands)))


@dataclass(frozen=True)
class GemmKernel(ProductKernel[Gemm]):
    """A stage of the ladder; subclasses add tunables and define the sizes of workgroups and tiles."""

    op = "gemm"
    params: ClassVar[type[Params]] = GemmParams
    a_vector_axis: ClassVar[str] = ""  # the axis along which the kernel reads A as vec4, if any: "m", "k" or "any"
    b_vector_axis: ClassVar[str] = ""  # likewise for B: "k", "n" or "any"; such a kernel also writes C as vec4
    vector: ClassVar[int] = 4  # elements that it reads at once
    binds: ClassVar[tuple[str, ...]] = ("a", "b", "c", "bias")  # what it reads and writes; see `bound()`
    writes: ClassVar[str] = "c"
    doubles: ClassVar[bool] = True  # whether it also computes in float64, on devices that do

    def uniform(self, of: Any) -> type[Params]:
        """Return the uniform's class for a problem, or for template choices."""
        return FunctionGemmParams if in_uniform(of.activation) else self.params

    def unsuited(self, problem: Gemm) -> str | None:
        """Return why this kernel cannot compute `problem` on any device, or None."""
        return f"does not compute {problem.dtype.name}" if problem.dtype.wide and not self.doubles else None

    @property
    def register_tile(self) -> tuple[int, int] | None:
        """Rows and columns of C per invocation, for stages that load single elements from storage, one k at a time."""
        return None

    def traffic(self, problem: Gemm) -> Traffic | None:
        """Count the loop of stages with a `register_tile`: per k, one load for each of its rows and columns."""
        if self.register_tile is None:
            return None
        rows, columns = self.register_tile
        return self._traffic(problem, fmas=rows * columns, vector_loads=0, scalar_loads=rows + columns)

    def _traffic(self, problem: Gemm, *, fmas: float, vector_loads: float, scalar_loads: float) -> Traffic:
        """Return the traffic for these FMAs and loads per invocation and step, with stores of single elements."""
        p, tiles, step = problem, self.grid.tiles(problem), self.inner_step
        sums = fmas // step  # per invocation
        return Traffic(
            workgroups=tiles * p.batch,
            invocations=self.invocations,
            steps=ceil_div(p.k, step),
            fmas=fmas,
            vector_loads=vector_loads,
            scalar_loads=scalar_loads,
            workgroup_bytes=self.workgroup_bytes,
            loaded=(4 * vector_loads + scalar_loads) * self.invocations * p.dtype.itemsize,
            read=(p.m * p.k + p.k * p.n) * p.batch * p.dtype.itemsize,
            written=p.m * p.n * p.batch * p.out_dtype.itemsize,
            waste=tiles * self.invocations * sums / (p.m * p.n),
            scalar_stores=sums,
        )

    def part(self, problem: Gemm, k: int) -> int:
        """Return the number of the partial sum to which inner element `k` belongs, 0 if there is only one."""
        del problem, k
        return 0

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the bindings named in `binds`, in that order."""
        types = {
            "a": spec.dtype.array(spec.vec_a),
            "b": spec.dtype.array(spec.vec_b),
            "c": spec.out_dtype.array(spec.vec_c, shared=True),
            "bias": (spec.dtype.sums if spec.bias == "matrix" else spec.dtype).array(False),
            **{f"y{i}": dtype.array(spec.vec_y) for i, dtype in enumerate(spec.operands)},
        }
        for number, name in enumerate(self.bound(spec), 1):
            written = name == self.writes
            if name in types:
                yield Binding(number, name, "storage" if written else "read-only-storage", types[name])
            else:
                access = "write" if written else "read"
                yield Binding(number, name, f"{access}-only", f"texture_storage_2d_array<rgba32float, {access}>")

    def bound(self, spec: Specialisation) -> list[str]:
        """Return the names of its bindings: `binds`, where the bias stands for all operands of the epilogue."""
        operands = [*(["bias"] if spec.bias else []), *(f"y{i}" for i in range(len(spec.operands)))]
        return [name for each in self.binds for name in (operands if each == "bias" else [each])]

    def choices(self, problem: Gemm) -> Specialisation:
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        p = problem
        return Specialisation(
            dtype=p.dtype,
            out_dtype=p.out_dtype,
            trans_a=p.a.transposed,
            trans_b=p.b.transposed,
            vec_a=False,
            vec_b=False,
            vec_c=False,
            edge_m=True,
            edge_n=True,
            edge_k=True,
            long_k=True,
            terms=p.terms,
            bias=p.bias,
            **p.specialised,
        )

    def assumptions(self, choices: Specialisation) -> Iterator[Assumption]:
        """Yield the sizes at which A, B, C and the operands can be accessed as vec4, and those of any product."""
        axes = {"a": (self.a_vector_axis, contiguous_a(choices)), "b": (self.b_vector_axis, contiguous_b(choices))}
        for x, (axis, along) in axes.items():
            if x in self.binds and axis in (along, "any"):
                yield Assumption(f"vec_{x}", True, aligned(x, along, self.vector, f"{x}_batch_stride"))
        if self.b_vector_axis and "c" in self.binds:
            read = len(choices.operands) if "bias" in self.binds else 0
            yield from by_fours(read, aligned("c", "n", 4, "c_batch_stride"))
        yield from super().assumptions(choices)

    def places(self, problem: Gemm) -> dict[str, tuple[str, str]]:
        """Return the places of elements of A, B, C and the bias, and their numbers."""
        p = problem
        return {
            "a": place("a", "m", "k", p.a.transposed, batched=True),
            "b": place("b", "k", "n", p.b.transposed, batched=True),
            "c": place("c", "m", "n", batched=True),
            **({"bias": BIAS_PLACES[p.bias]} if p.bias else {}),
            **p.operand_places,
        }


BIAS_PLACES = {  # of the bias of C[row, column], by kind, and the number of its elements
    "row": ("bias_offset + row", "bias_offset + m"),
    "column": ("bias_offset + column", "bias_offset + n"),
    "matrix": ("bias_offset + row * n + column", "bias_offset + m * n"),
}


def contiguous_a(choices: Specialisation) -> str:
    """Return the size along which A is contiguous."""
    return "m" if choices.trans_a else "k"


def contiguous_b(choices: Specialisation) -> str:
    """Return the size along which B is contiguous."""
    return "k" if choices.trans_b else "n"
