"""The base class of all kernels: tunable fields, and everything that is derived from them."""

from __future__ import annotations

import dataclasses
import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from webmm.dtypes import F32, WIDE_FEATURES, DType
from webmm.errors import ConfigError
from webmm.kernels.matrix_shape import MatrixShape as MatrixShape
from webmm.kernels.matrix_shape import ranked
from webmm.kernels.sizes import MAX_WORKGROUPS as MAX_WORKGROUPS
from webmm.kernels.sizes import Params as Params
from webmm.kernels.sizes import Sized
from webmm.kernels.traffic import Traffic
from webmm.problems.base import Problem

# Mesa's lavapipe (22.3.6) silently leaves a loop once the loops of an invocation have run this often in total.
LOOP_LIMIT = 65_535
INDEX_LIMIT = 2**32  # shaders index storage with u32

P = TypeVar("P", bound=Problem)
K = TypeVar("K", bound="Kernel[Any]")


def ceil_div(a: int, b: int) -> int:
    """Return a/b rounded up."""
    return -(-a // b)


def fold(count: int, z: int = 1) -> tuple[int, int, int]:
    """Return the workgroup counts (x, y, z) of `count` workgroups numbered along x, then y; none exceeds 65,535."""
    y = ceil_div(count, MAX_WORKGROUPS)
    return ceil_div(count, y), y, z


def tunable(default: Any, candidates: tuple[Any, ...], doc: str, most: int = 0) -> Any:
    """Declare a tunable: its default, the values that a tuner may try, and its comment in WGSL.

    If the choice of kernels computes other values, such as from the device's properties, `most` is the largest.
    """
    if default not in candidates:
        raise ConfigError(f"the default {default!r} is not among the candidates {candidates}")
    return dataclasses.field(default=default, metadata={"candidates": candidates, "doc": doc, "most": most})


@dataclass(frozen=True)
class Capabilities:
    """The properties of a device that kernels depend on."""

    name: str
    limits: Mapping[str, int]
    features: frozenset[str]

    loop_limit: int = 0  # iterations after which the driver leaves a loop; 0 if it never does
    subgroup_size: int = 0  # lanes that share a broadcast, as measured on the device; 0 if it has no subgroups
    matrix_shapes: frozenset[MatrixShape] = frozenset()  # what its matrix units multiply, if shaders can use them
    no_matrix: str = ""  # why shaders cannot, in words
    workgroups: int = 0  # workgroups that run at once at full speed, as a probe measured; 0 if not measured
    other_sizes: tuple[int, ...] = ()  # lanes of subgroups that the driver may choose for other shaders, nearest first
    fragment_rates: Mapping[str, float] = dataclasses.field(default_factory=dict)  # 10⁹ operations/s, by str(shape)

    @property
    def subgroup_sizes(self) -> list[int]:
        """Lanes that a shader's subgroups may have, the likely number first; empty without subgroups."""
        return [self.subgroup_size, *self.other_sizes] if self.subgroup_size else []

    def limit(self, name: str) -> int:
        """Return a limit by its WebGPU name in kebab case."""
        return self.limits[name]

    def fragment(self, operands: str, result: str) -> MatrixShape | None:
        """Return the fastest fragments of these types, the largest if no probe measured them; None if it has none."""
        return next(iter(self.fragments(operands, result)), None)

    def fragments(self, operands: str, result: str) -> list[MatrixShape]:
        """Return all fragments of these types, in that order."""
        return ranked(self.matrix_shapes, self.fragment_rates, operands, result)

    def lacks(self, shape: MatrixShape) -> str | None:
        """Return why shaders cannot multiply `shape` on matrix units, or None if they can."""
        if not self.matrix_shapes:
            return f"needs matrix units, {self.name} has none for shaders" + f" ({self.no_matrix})" * bool(
                self.no_matrix
            )
        if shape not in self.matrix_shapes:
            offered = ", ".join(map(str, sorted(self.matrix_shapes)))
            return f"needs matrix units that multiply {shape}, those of {self.name} multiply {offered}"
        return None


@dataclass(frozen=True)
class Binding:
    """One binding of group 0: its number, name, WGSL type, and WebGPU buffer type or storage texture access."""

    binding: int
    name: str
    type: str
    wgsl_type: str


@dataclass(frozen=True)
class Stored:
    """The first choices of a template: the element types that are read and written."""

    dtype: DType
    out_dtype: DType

    @property
    def types(self) -> tuple[DType, ...]:
        """The distinct types among both."""
        return tuple(dict.fromkeys((self.dtype, self.out_dtype)))


@dataclass(frozen=True)
class Texture:
    """A 2D array of rgba32float texels that one dispatch writes and a later one reads; devices reuse equal ones."""

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
class Scratch:
    """A buffer that one dispatch writes and a later one reads; devices reuse equal ones."""

    name: str
    nbytes: int

    def needs(self) -> Iterator[tuple[int, str, str]]:
        """Yield (need, limit, what) of each limit that it must respect."""
        yield self.nbytes, "max-storage-buffer-binding-size", f"bytes in {self.name}"
        yield self.nbytes, "max-buffer-size", f"bytes in {self.name}"


@dataclass(frozen=True)
class Kernel(Sized[P]):
    """A way to compute problems of class P: tunable fields and a WGSL template of the same name."""

    name: ClassVar[str]
    summary: ClassVar[str]
    op: ClassVar[str]
    follows: ClassVar[str]  # the previous stage of the op's ladder, "" for the first; not set for dispatches of a stage
    integer: ClassVar[bool] = False  # whether it handles float64 as pairs of u32, which every device has
    not_in: ClassVar[Mapping[str, str]] = {}  # dialects that cannot express it, with the reason
    features: ClassVar[frozenset[str]] = frozenset()  # WebGPU features in addition to those of the problem's types
    exact: ClassVar[bool] = False  # whether subgroups must have `subgroup` lanes, no more

    @property
    def template(self) -> str:
        """Path of the WGSL template below `shaders/`."""
        return f"{self.op}/{self.name}.wgsl"

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
        """Bytes of workgroup memory, for sums in f32."""
        return 0

    def workgroup_bytes_for(self, problem: P) -> int:
        """Return the bytes of workgroup memory for `problem`: twice `workgroup_bytes` if its tiles hold doubles."""
        return self.workgroup_bytes * (problem.dtype.sums.itemsize // F32.itemsize)

    @property
    def subgroup(self) -> int:
        """Lanes that a subgroup must have at least, or exactly; 0 for a kernel that uses none."""
        return 0

    @property
    def matrix_shape(self) -> MatrixShape | None:
        """The fragments that matrix units must multiply; None for a kernel that uses none."""
        return None

    @property
    def before(self) -> tuple[Kernel[P], ...]:
        """Kernels that run first, each in its own dispatch, and write what this one reads."""
        return ()

    @property
    def after(self) -> tuple[Kernel[P], ...]:
        """Kernels that run next, each in its own dispatch, and finish the result."""
        return ()

    @property
    def dispatches(self) -> tuple[Kernel[P], ...]:
        """All dispatches of this kernel, in order."""
        return (*self.before, self, *self.after)

    def scratch(self, problem: P) -> tuple[Texture | Scratch, ...]:
        """Return the buffers and textures that its dispatches pass to each other."""
        del problem
        return ()

    def scratch_rule(self, problem: P) -> dict[str, Any]:
        """Return the rules of `scratch` by name: of a buffer's bytes, or of a texture's width, height and layers."""
        del problem
        return {}

    @abstractmethod
    def bindings(self, spec: Any) -> Iterator[Binding]:
        """Yield the bindings from number 1 on for the specialisation `spec`; binding 0 is the uniform."""

    @abstractmethod
    def dispatch(self, problem: P) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z)."""

    def traffic(self, problem: P) -> Traffic | None:
        """Return the work of this dispatch, without those before and after it; None if its time is not modelled."""
        del problem
        return None

    def iterations(self, problem: P) -> int:
        """Return how many iterations the loops of an invocation run, except loops over constants, which drivers unroll.

        A nested loop counts one more iteration each time: the check that ends it counts, too.
        """
        del problem
        return 0

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Yield (holds, reason) for each condition that the tunables must satisfy on any device."""
        yield from ()

    @property
    def config(self) -> dict[str, Any]:
        """The tunables by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def constants(self) -> list[tuple[str, Any, str]]:
        """(name, value, doc) of each tunable."""
        return [(f.name, getattr(self, f.name), f.metadata["doc"]) for f in dataclasses.fields(self)]

    @classmethod
    def on(cls: type[K], device: Capabilities) -> K:
        """Return the stage with its defaults, adapted to the device if its tunables must match the hardware."""
        del device
        return cls()

    @classmethod
    def space(cls: type[K]) -> Iterator[K]:
        """Yield every combination of the tunables' candidates that satisfies the constraints."""
        tables = (field.metadata["candidates"] for field in dataclasses.fields(cls))
        for values in itertools.product(*([x for x in table if isinstance(x, str) or x >= 1] for table in tables)):
            kernel = cls(*values)
            if all(holds for holds, _ in kernel.constraints()):  # these candidates pass the rest of invalid()
                yield kernel

    def invalid(self) -> str | None:
        """Return why these tunables cannot work on any device, or None."""
        for name, value, _ in self.constants:
            if isinstance(value, int) and value < 1:
                return f"{name} must be at least 1, not {value}"
        for field in dataclasses.fields(self):
            value, candidates = getattr(self, field.name), field.metadata["candidates"]
            if isinstance(value, str) and value not in candidates:
                return f"{field.name} must be one of {', '.join(candidates)}, not {value!r}"
        return next((reason for holds, reason in self.constraints() if not holds), None)

    def unsuited(self, problem: P) -> str | None:
        """Return why this kernel cannot compute `problem` on any device, such as its element type, or None."""
        del problem
        return None

    def check(self, problem: P, device: Capabilities) -> str | None:
        """Return why this kernel cannot compute `problem` on `device`, or None if it can."""
        if reason := self.invalid() or self.unsuited(problem):
            return reason
        missing = sorted(features(self, problem) - device.features)
        if missing:
            return f"needs the feature {', '.join(missing)}, which {device.name} does not have"
        if self.matrix_shape and (reason := device.lacks(self.matrix_shape)):
            return reason
        if self.subgroup and not any(suits(self, lanes) for lanes in device.subgroup_sizes):
            exactly = "exactly " if self.exact else ""
            has = " or ".join(map(str, sorted(device.subgroup_sizes))) or "none"
            return f"needs subgroups of {exactly}{self.subgroup} lanes, {device.name} has {has}"
        return _beyond_limits(self, problem, device)

    def __str__(self) -> str:
        settings = ",".join(f"{name}={value}" for name, value in self.config.items())
        return f"{self.name}({settings})" if settings else self.name


def suits(kernel: Kernel[Any], lanes: int) -> bool:
    """Tell whether subgroups of `lanes` lanes are what this dispatch needs."""
    return kernel.subgroup == lanes if kernel.exact else kernel.subgroup <= lanes


def features(kernel: Kernel[Any], problem: Problem) -> frozenset[str]:
    """Return the WebGPU features that `kernel` needs for `problem`: those of the element types and of the kernel."""
    return kernel.features | (problem.features - WIDE_FEATURES if kernel.integer else problem.features)


def _beyond_limits(kernel: Kernel[P], problem: P, device: Capabilities) -> str | None:
    """Return the first limit of `device` that a dispatch of `kernel` exceeds, or None."""
    x, y, z = kernel.workgroup_size
    extents = problem.buffers()
    binding, reach = max(e.nbytes for e in extents), max(e.end - e.first for e in extents)
    if reach > INDEX_LIMIT:
        return f"indexes {reach:,} elements of one buffer, shaders at most {INDEX_LIMIT:,}"
    needs = [
        (kernel.invocations, "max-compute-invocations-per-workgroup", "invocations per workgroup"),
        (x, "max-compute-workgroup-size-x", "invocations along x"),
        (y, "max-compute-workgroup-size-y", "invocations along y"),
        (z, "max-compute-workgroup-size-z", "invocations along z"),
        (kernel.workgroup_bytes_for(problem), "max-compute-workgroup-storage-size", "bytes of workgroup memory"),
        (binding, "max-storage-buffer-binding-size", "bytes in one binding"),
        (max(kernel.dispatch(problem)), "max-compute-workgroups-per-dimension", "workgroups in one dimension"),
        *(need for left in kernel.scratch(problem) for need in left.needs()),
    ]
    for need, limit, what in needs:
        if need > device.limit(limit):
            return f"needs {need:,} {what}, {device.name} has {device.limit(limit):,}"
    if device.loop_limit and kernel.iterations(problem) > device.loop_limit:
        return f"needs {kernel.iterations(problem):,} loop iterations, {device.name} stops at {device.loop_limit:,}"
    others = (*kernel.before, *kernel.after)
    reasons = (_beyond_limits(other, problem, device) for other in others)
    return next((reason for reason in reasons if reason), None)
