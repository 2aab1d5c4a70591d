"""What all kernels share: tunable fields, and everything that is derived from them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.errors import ConfigError
from webmm.problem import Problem

# Mesa's lavapipe (seen in 22.3.6) silently leaves a loop once the loops of an invocation have run this often in all.
LOOP_LIMIT = 65_535
LONG_K_STEP = 16  # steps that a template writes out per iteration where single steps would reach that limit
MAX_WORKGROUPS = 65_535  # per dimension: WebGPU's guaranteed limit, and what every engine offers


def tunable(default: Any, candidates: tuple[Any, ...], doc: str) -> Any:
    """Declare a kernel parameter: its default, what a tuner may try, and the comment it carries into WGSL."""
    if default not in candidates:
        raise ConfigError(f"the default {default!r} is not among the candidates {candidates}")
    return dataclasses.field(default=default, metadata={"candidates": candidates, "doc": doc})


@dataclass(frozen=True)
class Capabilities:
    """What an engine offers, as far as kernels need to know."""

    name: str
    limits: Mapping[str, int]
    features: frozenset[str]

    loop_limit: int = 0  # iterations after which the driver leaves a loop, if it does
    subgroup_size: int = 0  # lanes that share a broadcast, as the opened device showed; 0 where there are no subgroups

    def limit(self, name: str) -> int:
        """Return a limit by its WebGPU name in kebab case."""
        return self.limits[name]


@dataclass(frozen=True)
class Grid:
    """How many workgroups cover C: tiles of (tile_m, tile_n), or runs of `elements` of the flattened C.

    Workgroups are numbered along x, then y; z is the batch. With `at_most` they are no more than that, and each
    walks over several tiles.
    """

    tile_m: int = 1
    tile_n: int = 1
    elements: int = 0
    at_most: int = 0

    def tiles(self, problem: Problem) -> int:
        """Return the number of tiles of one matrix of the batch."""
        if self.elements:
            return _ceil_div(problem.m * problem.n, self.elements)
        return _ceil_div(problem.m, self.tile_m) * _ceil_div(problem.n, self.tile_n)

    def dispatch(self, problem: Problem) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z), folded so that none exceeds 65,535."""
        count = self.tiles(problem)
        if self.at_most:
            count = min(count, self.at_most)
        y = _ceil_div(count, MAX_WORKGROUPS)
        return _ceil_div(count, y), y, problem.batch


@dataclass(frozen=True)
class Texture:
    """A 2D array of rgba32float texels that a kernel leaves for the next; devices reuse equal ones."""

    name: str
    width: int
    height: int
    layers: int

    def needs(self) -> Iterator[tuple[int, str, str]]:
        """Yield (need, limit, what) of each limit that it must respect."""
        yield max(self.width, self.height), "max-texture-dimension-2d", f"texels along a side of {self.name}"
        yield self.layers, "max-texture-array-layers", f"layers of {self.name}"
        yield 16 * self.width * self.height * self.layers, "max-buffer-size", f"bytes in {self.name}"


@dataclass(frozen=True)
class Specialisation:
    """The choices that a template takes besides the tile sizes; problems that share them share a shader."""

    dtype: str
    out_dtype: str
    f16: bool
    trans_a: bool
    trans_b: bool
    vec_a: bool  # A, B, C are bound as vec4: their contiguous lengths are multiples of 4
    vec_b: bool
    vec_c: bool
    edge_m: bool  # the last tile hangs over the end of C's rows, its columns, or the inner dimension
    edge_n: bool
    edge_k: bool
    long_k: bool  # a loop over single k would take more than LOOP_LIMIT iterations
    scaled: bool = False  # alpha is not 1
    accumulate: bool = False  # beta is not 0
    bias: str = ""
    activation: str = ""


@dataclass(frozen=True)
class Kernel:
    """A stage of the ladder. Subclasses add tunable fields and say how large workgroups and tiles are."""

    name: ClassVar[str]
    summary: ClassVar[str]
    a_vector_axis: ClassVar[str] = ""  # along which axis the kernel can read A as vec4: "m", "k" or "any"
    b_vector_axis: ClassVar[str] = ""  # likewise B: "k", "n" or "any"; such a kernel writes C as vec4, too
    binds: ClassVar[tuple[str, ...]] = ("a", "b", "c", "bias")  # what it reads and writes; a bias only if there is one
    writes: ClassVar[str] = "c"

    @property
    def template(self) -> str:
        """Path of the WGSL template below `shaders/`."""
        return f"gemm/{self.name}.wgsl"

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations of a workgroup along x, y and z."""
        return (1, 1, 1)

    @property
    def invocations(self) -> int:
        """Invocations of a workgroup."""
        x, y, z = self.workgroup_size
        return x * y * z

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory in bytes."""
        return 0

    @property
    def subgroup(self) -> int:
        """Lanes that a subgroup must have at least; 0 for a kernel that uses none."""
        return 0

    @property
    def before(self) -> tuple[Kernel, ...]:
        """Kernels that run first, each in a dispatch of its own, and leave this one what it reads."""
        return ()

    def textures(self, problem: Problem) -> tuple[Texture, ...]:
        """Return what the kernels before leave to this one."""
        del problem
        return ()

    @property
    def grid(self) -> Grid:
        """How workgroups cover C."""
        return Grid()

    def dispatch(self, problem: Problem) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z)."""
        return self.grid.dispatch(problem)

    @property
    def inner_step(self) -> int:
        """How far the loop over k advances in one step."""
        return 1

    def iterations(self, problem: Problem) -> int:
        """Return how often the loops of an invocation run, loops over constants aside: drivers unroll those.

        A loop within a loop counts once more than it runs: the pass that finds it finished counts, too.
        """
        step = LONG_K_STEP if self.inner_step == 1 and problem.k > LOOP_LIMIT else self.inner_step
        return _ceil_div(problem.k, step)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Yield (holds, reason) for what the tile sizes must satisfy on any device."""
        yield from ()

    @property
    def config(self) -> dict[str, Any]:
        """The tunables by name."""
        return dataclasses.asdict(self)

    @property
    def constants(self) -> list[tuple[str, Any, str]]:
        """(name, value, doc) of each tunable."""
        return [(f.name, getattr(self, f.name), f.metadata["doc"]) for f in dataclasses.fields(self)]

    @classmethod
    def space(cls) -> Iterator[Kernel]:
        """Yield every combination of the tunables' candidates that satisfies the constraints."""
        fields = dataclasses.fields(cls)
        for values in itertools.product(*(field.metadata["candidates"] for field in fields)):
            kernel = cls(**dict(zip((field.name for field in fields), values, strict=True)))
            if kernel.invalid() is None:
                yield kernel

    def invalid(self) -> str | None:
        """Return why these tile sizes cannot work anywhere, or None."""
        for name, value, _ in self.constants:
            if isinstance(value, int) and value < 1:
                return f"{name} must be at least 1, not {value}"
        for field in dataclasses.fields(self):
            value, candidates = getattr(self, field.name), field.metadata["candidates"]
            if isinstance(value, str) and value not in candidates:
                return f"{field.name} must be one of {', '.join(candidates)}, not {value!r}"
        return next((reason for holds, reason in self.constraints() if not holds), None)

    def check(self, problem: Problem, device: Capabilities) -> str | None:
        """Return why this kernel cannot compute `problem` on `device`, or None if it can."""
        if reason := self.invalid():
            return reason
        missing = sorted(problem.features - device.features)
        if missing:
            return f"needs the feature {', '.join(missing)}, which {device.name} does not have"
        if self.subgroup > device.subgroup_size:
            return f"needs subgroups of {self.subgroup} lanes, {device.name} has {device.subgroup_size or 'none'}"
        return self._beyond_limits(problem, device)

    def _beyond_limits(self, problem: Problem, device: Capabilities) -> str | None:
        x, y, z = self.workgroup_size
        binding = max(
            operand.end(rows, columns, problem.batch) * (problem.out_dtype if name == "C" else problem.dtype).itemsize
            for name, operand, rows, columns in problem.operands()
        )
        needs = [
            (self.invocations, "max-compute-invocations-per-workgroup", "invocations per workgroup"),
            (x, "max-compute-workgroup-size-x", "invocations along x"),
            (y, "max-compute-workgroup-size-y", "invocations along y"),
            (z, "max-compute-workgroup-size-z", "invocations along z"),
            (self.workgroup_bytes, "max-compute-workgroup-storage-size", "bytes of workgroup memory"),
            (binding, "max-storage-buffer-binding-size", "bytes in one binding"),
            (max(self.dispatch(problem)), "max-compute-workgroups-per-dimension", "workgroups in one dimension"),
            *(need for texture in self.textures(problem) for need in texture.needs()),
        ]
        for need, limit, what in needs:
            if need > device.limit(limit):
                return f"needs {need:,} {what}, {device.name} has {device.limit(limit):,}"
        if device.loop_limit and self.iterations(problem) > device.loop_limit:
            return f"needs {self.iterations(problem):,} loop iterations, {device.name} stops at {device.loop_limit:,}"
        return next(filter(None, (kernel._beyond_limits(problem, device) for kernel in self.before)), None)

    def specialise(self, problem: Problem) -> Specialisation:
        """Return the template choices that fit `problem`."""
        grid, p = self.grid, problem
        contiguous_a, contiguous_b = "m" if p.a.transposed else "k", "k" if p.b.transposed else "n"
        ragged = bool(grid.elements) and bool(p.m * p.n % grid.elements)
        return Specialisation(
            dtype=p.dtype.wgsl,
            out_dtype=p.out_dtype.wgsl,
            f16="f16" in (p.dtype.wgsl, p.out_dtype.wgsl),
            trans_a=p.a.transposed,
            trans_b=p.b.transposed,
            vec_a=self.a_vector_axis in (contiguous_a, "any") and p.a.vectorizable(p.m, p.k),
            vec_b=self.b_vector_axis in (contiguous_b, "any") and p.b.vectorizable(p.k, p.n),
            vec_c=bool(self.b_vector_axis) and p.c.vectorizable(p.m, p.n),
            edge_m=ragged or p.m % grid.tile_m != 0,
            edge_n=ragged or p.n % grid.tile_n != 0,
            edge_k=p.k % self.inner_step != 0,
            long_k=self.inner_step == 1 and p.k > LOOP_LIMIT,
            scaled=p.alpha != 1,
            accumulate=p.beta != 0,
            bias=p.bias,
            activation=p.activation,
        )

    def __str__(self) -> str:
        settings = ",".join(f"{name}={value}" for name, value in self.config.items())
        return f"{self.name}({settings})" if settings else self.name


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
