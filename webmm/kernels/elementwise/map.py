"""An activation of each element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Kernel, Params, Stored, ceil_div, fold, tunable
from webmm.params import U32, member
from webmm.problems.elementwise import Elementwise


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
class MapSpecialisation(Stored):
    """The choices of its template."""

    activation: str
    vec: bool


@dataclass(frozen=True)
class Map(Kernel[Elementwise]):
    """UNROLL vec4 per invocation."""

    name = "map"
    follows = ""
    summary = "an activation of each element"
    op = "elementwise"
    params: ClassVar[type[Params]] = MapParams

    size: int = tunable(256, (8, 32, 64, 128, 256), "invocations per workgroup")
    unroll: int = tunable(1, (1, 2, 4), "vec4 that an invocation loads at once")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations."""
        return (self.size, 1, 1)

    def bindings(self, spec: MapSpecialisation) -> Iterator[Binding]:
        """Yield x and y."""
        yield Binding(1, "x", "read-only-storage", spec.dtype.array(spec.vec))
        yield Binding(2, "y", "storage", spec.out_dtype.array(spec.vec, shared=True))

    def dispatch(self, problem: Elementwise) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z)."""
        return fold(ceil_div(problem.size, 4 * self.unroll * self.size))

    def specialise(self, problem: Elementwise) -> MapSpecialisation:
        """Return the template choices for `problem`."""
        p = problem
        vec = not any(n % 4 for n in (p.size, p.x_offset, p.y_offset))
        return MapSpecialisation(p.dtype, p.dtype, p.activation, vec)
