"""An expression of array elements, computed in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.dtypes import DType
from webmm.kernels.base import Binding, Kernel, Params, ceil_div, fold, tunable
from webmm.kernels.sizes import Assumption, Condition, folded, multiples
from webmm.problems.expression import MAX_OPERANDS, Expression, Strided
from webmm.wgsl.library import files_of
from webmm.wgsl.params import U32, Vec4U, member


@dataclass(frozen=True)
class FusedParams:
    """The uniform: lengths and strides along four axes, the last one innermost."""

    lengths: Vec4U = member("of y")
    y_strides: Vec4U = member("strides of y along each axis, in elements")
    x0_strides: Vec4U = member("strides of x0, 0 along broadcast axes")
    x1_strides: Vec4U = member("of x1")
    x2_strides: Vec4U = member("of x2")
    x3_strides: Vec4U = member("of x3")
    numbers: Vec4U = member("bits of s0, s1, …")
    size: U32 = member("elements of y")
    y_offset: U32 = member("first element of y in its buffer")
    x0_offset: U32 = member("of x0")
    x1_offset: U32 = member("of x1")
    x2_offset: U32 = member("of x2")
    x3_offset: U32 = member("of x3")
    taken_stride: U32 = member("stride of the axis of x0, or of y, along which x1 selects")
    taken_length: U32 = member("length of that axis")
    zero: U32 = member("0, which compilers do not know")

    @classmethod
    def of(cls, p: Expression) -> FusedParams:
        """Return the uniform for the problem `p`."""
        none = Strided(p.y.dtype, (0, 0, 0, 0))
        x0, x1, x2, x3 = (*p.operands, *(none for _ in range(MAX_OPERANDS - len(p.operands))))
        s0, s1, s2, s3 = (*p.numbers, *(0 for _ in range(4 - len(p.numbers))))
        return cls(
            *(p.lengths, p.y.strides, x0.strides, x1.strides, x2.strides, x3.strides, (s0, s1, s2, s3)),
            *(p.size, p.y.offset, x0.offset, x1.offset, x2.offset, x3.offset, p.taken, p.taken_length, 0),
        )


@dataclass(frozen=True)
class FusedSpecialisation:
    """The choices of its template."""

    wgsl: str
    kind: str
    operands: tuple[DType, ...]
    out_dtype: DType
    numbers: tuple[str, ...]  # the kind of each number
    vec: bool
    single: tuple[int, ...]  # operands of one element
    taken: bool
    put: bool

    @property
    def types(self) -> tuple[DType, ...]:
        """All element types that are stored, each once."""
        return tuple(dict.fromkeys((*self.operands, self.out_dtype)))

    @property
    def functions(self) -> list[str]:
        """The files of shaders/elementwise that have the functions that it calls."""
        return files_of(self.wgsl)

    @property
    def arguments(self) -> str:
        """The parameters of the function that computes an element."""
        kinds = {"int32": "i32", "bool": "bool"}
        return ", ".join(f"x{i}: {kinds.get(dtype.name, 'f32')}" for i, dtype in enumerate(self.operands))

    def passed(self, component: str) -> str:
        """Return the arguments passed for them, such as one component of a vec4."""
        return ", ".join(f"v{i}{component}" for i, _ in enumerate(self.operands))


@dataclass(frozen=True)
class Fused(Kernel[Expression]):
    """A vec4 per invocation if the arrays allow it, otherwise four single elements."""

    name = "fused"
    summary = "an expression of elements"
    op = "elementwise"
    params: ClassVar[type[Params]] = FusedParams

    size: int = tunable(256, (8, 32, 64, 128, 256), "invocations per workgroup")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations."""
        return (self.size, 1, 1)

    def bindings(self, spec: FusedSpecialisation) -> Iterator[Binding]:
        """Yield x0, x1, … and y."""
        for i, dtype in enumerate(spec.operands):
            yield Binding(i + 1, f"x{i}", "read-only-storage", dtype.array(spec.vec))
        yield Binding(len(spec.operands) + 1, "y", "storage", spec.out_dtype.array(spec.vec, shared=True))

    def dispatch(self, problem: Expression) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z)."""
        return fold(ceil_div(problem.size, 4 * self.size))

    def iterations(self, problem: Expression) -> int:
        """Return how many iterations the loop over an invocation's elements runs."""
        return 4

    def grid_rule(self, spec: FusedSpecialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`."""
        del spec
        return folded(f"ceil(size / {4 * self.size})")

    def choices(self, problem: Expression) -> FusedSpecialisation:
        """Return the template choices for problems like `problem` that assume nothing of lengths and strides."""
        p = problem
        return FusedSpecialisation(
            wgsl=p.wgsl,
            kind=p.kind,
            operands=tuple(x.dtype for x in p.operands),
            out_dtype=p.y.dtype,
            numbers=tuple(p.number_kind for _ in p.numbers),
            vec=False,
            single=tuple(i for i, x in enumerate(p.operands) if not any(x.strides)),
            taken=p.taken > 0,
            put=p.put,
        )

    def assumptions(self, choices: FusedSpecialisation) -> Iterator[Assumption]:
        """Yield when all arrays can be accessed as vec4: if they are dense along the last axis, or single elements."""
        if not choices.taken:
            operands = [f"x{i}" for i, _ in enumerate(choices.operands)]
            single = [operands[i] for i in choices.single]
            dense = [x for x in (*operands, "y") if x not in single]
            yield Assumption(
                "vec",
                True,
                (
                    *(Condition(f"lengths.{axis}", equals=1) for axis in "xyz"),
                    *(Condition(f"{x}_strides.w", equals=1) for x in dense),
                    *(Condition(f"{x}_strides.{axis}", equals=0) for x in single for axis in "xyzw"),
                    *multiples(4, "size", *(f"{x}_offset" for x in dense)),
                ),
            )

    def places(self, problem: Expression) -> dict[str, tuple[str, str]]:
        """Return the places of elements of x0, x1, … and y, and their numbers."""
        names = [*(f"x{i}" for i, _ in enumerate(problem.operands)), "y"]
        found = {x: (f"{x}_offset + dot(index, {x}_strides)", f"{x}_offset + 1 + {reach(x)}") for x in names}
        if problem.taken:
            moved = "y" if problem.put else "x0"
            found[moved] = (
                f"{found[moved][0]} + x1[…] * taken_stride",
                f"{found[moved][1]} + (taken_length - 1) * taken_stride",
            )
        return found


def reach(x: str) -> str:
    """Return the distance from the first to the last element of `x`, as a formula."""
    return " + ".join(f"(lengths.{axis} - 1) * {x}_strides.{axis}" for axis in "xyzw")
