"""Built on reductions: normalisations, which reduce a row and go over it again with what came out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Kernel, Params, ceil_div, tunable
from webmm.kernels.gemm.base import array_of
from webmm.kernels.reduce.base import WAYS, MeetingKernel, ReduceParams, Specialisation, fold
from webmm.params import F32, U32, member
from webmm.reduction import Elementwise, Normalisation


@dataclass(frozen=True)
class RowsParams(ReduceParams):
    """The uniform: that of a reduction, and one more."""

    epsilon: F32 = member("added to the mean square")

    @classmethod
    def of(cls, p: Normalisation) -> RowsParams:  # type: ignore[override]
        """Return the uniform for the problem `p`."""
        return cls(**dataclasses.asdict(ReduceParams.of(p)), epsilon=p.epsilon)


@dataclass(frozen=True)
class RowsSpecialisation(Specialisation):
    """The choices of a reduction's template, and which function follows."""

    function: str
    weight: bool
    bias: bool
    held: bool  # one step covers a row, whose elements stay in registers


@dataclass(frozen=True)
class Rows(MeetingKernel):
    """A workgroup per row: it reduces the row, and goes over it again; what one step covers it keeps in registers."""

    name = "rows"
    summary = "a workgroup per row"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams
    vectorizes = "k"

    lanes: int = tunable(256, (1, 4, 8, 32, 64, 128, 256, 512, 1024), "invocations per workgroup, which share a row")
    unroll: int = tunable(4, (1, 2, 4, 8, 16), "vec4 that an invocation loads before it adds them up")
    combine: str = tunable("tree", WAYS, "how the invocations of a workgroup bring their parts together")

    @property
    def step(self) -> int:
        """Elements of an iteration."""
        return 4 * self.unroll * self.lanes

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x, y, and the vectors that there are."""
        assert isinstance(spec, RowsSpecialisation)
        array = array_of(spec.dtype, spec.vec)
        yield Binding(1, "x", "read-only-storage", array)
        yield Binding(2, "y", "storage", array_of(spec.out_dtype, spec.vec, written=True))
        there = [name for name in ("weight", "bias") if getattr(spec, name)]
        yield from (Binding(number, name, "read-only-storage", array) for number, name in enumerate(there, 3))

    def specialise(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices that fit `problem`; y can only be written by vec4 where its rows are dense."""
        p, spec = problem, super().specialise(problem)
        vec = spec.vec and p.inner == 1 and p.y_offset % 4 == 0
        spec = dataclasses.replace(spec, vec=vec)
        base, held = dataclasses.asdict(spec), self.steps(p) == 1
        return RowsSpecialisation(**base, function=p.function, weight=p.weight, bias=p.bias, held=held)


@dataclass(frozen=True)
class MapParams:
    """The uniform of elementwise kernels."""

    size: U32 = member("elements")
    x_offset: U32 = member("first element of x in its buffer")
    y_offset: U32 = member("first element of y")

    @classmethod
    def of(cls, p: Elementwise) -> MapParams:
        """Return the uniform for the problem `p`."""
        return cls(p.size, p.x_offset, p.y_offset)


@dataclass(frozen=True)
class MapSpecialisation:
    """The choices of its template."""

    activation: str
    dtype: str
    out_dtype: str
    f16: bool
    bf16: bool
    vec: bool


@dataclass(frozen=True)
class Map(Kernel[Elementwise]):
    """A few vec4 per invocation."""

    name = "map"
    summary = "an activation of each element"
    op = "elementwise"
    params: ClassVar[type[Params]] = MapParams

    size: int = tunable(256, (8, 32, 64, 128, 256), "invocations per workgroup")
    unroll: int = tunable(1, (1, 2, 4), "vec4 that an invocation loads before it takes the first")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Along x."""
        return (self.size, 1, 1)

    def bindings(self, spec: MapSpecialisation) -> Iterator[Binding]:
        """Yield x and y."""
        yield Binding(1, "x", "read-only-storage", array_of(spec.dtype, spec.vec))
        yield Binding(2, "y", "storage", array_of(spec.out_dtype, spec.vec, written=True))

    def dispatch(self, problem: Elementwise) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z)."""
        return fold(ceil_div(problem.size, 4 * self.unroll * self.size))

    def specialise(self, problem: Elementwise) -> MapSpecialisation:
        """Return the template choices that fit `problem`."""
        p = problem
        vec = not any(n % 4 for n in (p.size, p.x_offset, p.y_offset))
        name = p.dtype.wgsl
        return MapSpecialisation(p.activation, name, name, name == "f16", name == "bf16", vec)
