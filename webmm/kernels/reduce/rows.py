"""Built on reductions: normalisations, which reduce a row and go over it again with what came out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Kernel, Params, ceil_div, tunable
from webmm.kernels.gemm.base import array_of
from webmm.kernels.reduce.base import WAYS, MeetingKernel, ReduceParams, Specialisation, fold
from webmm.kernels.reduce.columns import Columns
from webmm.params import F32, U32, member
from webmm.reduction import Elementwise, Normalisation, Reduction


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
        return _bindings(spec)

    def specialise(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices that fit `problem`; y can only be written by vec4 where its rows are dense."""
        return _specialised(super().specialise(problem), problem, problem.inner == 1, self.steps(problem) == 1)


@dataclass(frozen=True)
class Strips(Columns):
    """A workgroup per strip of columns, for an axis that is not the last."""

    name = "strips"
    summary = "lanes along the kept axis"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams

    def unsuited(self, problem: Reduction) -> str | None:
        """Softmax is all that runs over other axes than the last."""
        made = isinstance(problem, Normalisation) and problem.function == "softmax"
        return None if made else "is made for softmax"

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x and y."""
        return _bindings(spec)

    def specialise(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices that fit `problem`."""
        return _specialised(super().specialise(problem), problem, True, False)


def _bindings(spec: Specialisation) -> Iterator[Binding]:
    assert isinstance(spec, RowsSpecialisation)
    array = array_of(spec.dtype, spec.vec)
    yield Binding(1, "x", "read-only-storage", array)
    yield Binding(2, "y", "storage", array_of(spec.out_dtype, spec.vec, written=True))
    there = [name for name in ("weight", "bias") if getattr(spec, name)]
    yield from (Binding(number, name, "read-only-storage", array) for number, name in enumerate(there, 3))


def _specialised(spec: Specialisation, p: Normalisation, neighbours: bool, held: bool) -> RowsSpecialisation:
    """Return the choices of a reduction and what is added to them; `neighbours` in a vec4 of x are so in y, too."""
    base = {**dataclasses.asdict(spec), "vec": spec.vec and neighbours and p.y_offset % 4 == 0}
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
