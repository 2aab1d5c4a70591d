"""An activation of each element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.kernels.base import Binding, Kernel, Params, Stored, ceil_div, fold, tunable
from webmm.kernels.sizes import Assumption, folded, multiples
from webmm.problems.elementwise import Elementwise
from webmm.wgsl.params import U32, member


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

    def grid_rule(self, spec: MapSpecialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`."""
        del spec
        return folded(f"ceil(size / {4 * self.unroll * self.size})")

    def choices(self, problem: Elementwise) -> MapSpecialisation:
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        p = problem
        return MapSpecialisation(p.dtype, p.dtype, p.activation, False)

    def assumptions(self, choices: MapSpecialisation) -> Iterator[Assumption]:
        """Yield the sizes at which x and y can be accessed as vec4."""
        del choices
        yield Assumption("vec", True, multiples(4, "size", "x_offset", "y_offset"))

    def places(self, problem: Elementwise) -> dict[str, tuple[str, str]]:
        """Return the places of elements of x and y, and their numbers."""
        del problem
        return {x: (f"{x}_offset + i", f"{x}_offset + size") for x in "xy"}
