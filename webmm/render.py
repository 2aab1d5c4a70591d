"""From a kernel and a problem to WGSL text, and to all that a host needs to run it."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import jinja2

from webmm.errors import ConfigError
from webmm.kernels.base import MAX_WORKGROUPS, Grid, Kernel, Specialisation
from webmm.params import F32, U32, layout, pack, wgsl_struct
from webmm.problem import Problem

Dialect = Literal["naga", "tint"]
DIALECTS: tuple[str, ...] = get_args(Dialect)
ENTRY_POINT = "main"
SUBGROUPS = {"naga": "subgroup", "tint": "subgroups"}  # the feature's name in each dialect's engine


def _doc(text: str) -> Any:
    return dataclasses.field(metadata={"doc": text})


@dataclass(frozen=True)
class GemmParams:
    """The uniform of every GEMM kernel; lengths are in elements."""

    m: U32 = _doc("rows of A and C")
    n: U32 = _doc("columns of B and C")
    k: U32 = _doc("columns of A, rows of B")
    lda: U32 = _doc("distance between stored rows of A")
    ldb: U32 = _doc("distance between stored rows of B")
    ldc: U32 = _doc("distance between stored rows of C")
    a_offset: U32 = _doc("first element of A in its buffer")
    b_offset: U32 = _doc("first element of B")
    c_offset: U32 = _doc("first element of C")
    a_batch_stride: U32 = _doc("distance between matrices of the batch")
    b_batch_stride: U32 = _doc("")
    c_batch_stride: U32 = _doc("")
    bias_offset: U32 = _doc("first element of the bias")
    alpha: F32 = _doc("factor of A·B")
    beta: F32 = _doc("factor of what C holds before")

    @classmethod
    def of(cls, p: Problem) -> GemmParams:
        """Return the uniform for the problem `p`."""
        a, b, c = p.a, p.b, p.c
        return cls(
            *(p.m, p.n, p.k),
            *(a.ld, b.ld, c.ld),
            *(a.offset, b.offset, c.offset),
            *(a.batch_stride, b.batch_stride, c.batch_stride),
            *(p.bias_offset, p.alpha, p.beta),
        )


@dataclass(frozen=True)
class Binding:
    """One binding of group 0: its number, name, WGSL type, and WebGPU buffer type or storage texture access."""

    binding: int
    name: str
    type: str
    wgsl_type: str


@dataclass(frozen=True)
class Shader:
    """A rendered kernel, with everything that a host needs to run it."""

    kernel: Kernel
    dialect: Dialect
    wgsl: str
    bindings: tuple[Binding, ...]
    features: frozenset[str]

    @property
    def label(self) -> str:
        """Name for error messages and debuggers."""
        return str(self.kernel)

    def to_json(self) -> dict[str, Any]:
        """Return what another host needs, in JSON types; lengths in the uniform are bytes."""
        grid = self.kernel.grid
        return {
            "kernel": self.kernel.name,
            "config": self.kernel.config,
            "dialect": self.dialect,
            "entry_point": ENTRY_POINT,
            "wgsl": self.wgsl,
            "bindings": [dataclasses.asdict(binding) for binding in self.bindings],
            "params": {
                "size": layout(GemmParams).size,
                "members": [{"name": m.name, "type": m.type, "offset": m.offset} for m in layout(GemmParams).members],
            },
            "workgroup_size": list(self.kernel.workgroup_size),
            "grid": grid_rule(grid),
            "features": sorted(self.features),
            "limits": {
                "maxComputeInvocationsPerWorkgroup": self.kernel.invocations,
                "maxComputeWorkgroupSizeX": self.kernel.workgroup_size[0],
                "maxComputeWorkgroupSizeY": self.kernel.workgroup_size[1],
                "maxComputeWorkgroupStorageSize": self.kernel.workgroup_bytes,
            },
        }


def grid_rule(grid: Grid) -> dict[str, Any]:
    """Return the grid as data and in words, for hosts in other languages."""
    if grid.elements:
        count, tile = f"ceil(m*n / {grid.elements})", {"elements": grid.elements}
    else:
        count = f"ceil(m / {grid.tile_m}) * ceil(n / {grid.tile_n})"
        tile = {"tile_m": grid.tile_m, "tile_n": grid.tile_n}
    if grid.at_most:
        count = f"min({count}, {grid.at_most})"
    words = f"count = {count}; y = ceil(count / {MAX_WORKGROUPS}); dispatch (ceil(count / y), y, batch)"
    return {**tile, "at_most": grid.at_most or None, "rule": words}


def shader_folder() -> Path:
    """Return the folder of the templates: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "shaders"
    return installed if installed.is_dir() else package.parent / "shaders"


@functools.cache
def environment() -> jinja2.Environment:
    """Return the one Jinja environment; an undefined name is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(shader_folder()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def tidy(text: str) -> str:
    """Indent by braces and parentheses and drop blank lines that template tags leave, so that it reads as written."""
    lines: list[str] = []
    depth = 0
    for line in map(str.strip, text.splitlines()):
        code = line.split("//")[0].strip()
        opened, closed = sum(map(code.count, "{(")), sum(map(code.count, "})"))
        leading = len(code) - len(code.lstrip("})"))
        previous = lines[-1] if lines else ""
        if line or not (previous == "" or previous.endswith("{")):
            lines.append("    " * (depth - leading) + line if line else "")
        depth += opened - closed
    text = "\n".join(lines)
    return re.sub(r"\n+(\n *\})", r"\1", text).strip() + "\n"


def render(kernel: Kernel, problem: Problem, dialect: Dialect = "naga") -> Shader:
    """Return the shader of `kernel` specialised for `problem`, in the dialect of naga (wgpu) or Tint (browsers).

    Problems that share a specialisation share the shader. Raises ConfigError for an unknown dialect and for tile
    sizes that cannot work on any device.
    """
    if dialect not in DIALECTS:
        raise ConfigError(f"unknown dialect {dialect!r}; choose from {', '.join(DIALECTS)}")
    if reason := kernel.invalid():
        raise ConfigError(f"{kernel.name}: {reason}")
    return _render(kernel, kernel.specialise(problem), problem.features, dialect)


@functools.lru_cache(maxsize=4096)
def _render(kernel: Kernel, spec: Specialisation, features: frozenset[str], dialect: Dialect) -> Shader:
    bindings = (Binding(0, "params", "uniform", "Params"), *_bindings(kernel, spec))
    text = (
        environment()
        .get_template(kernel.template)
        .render(
            kernel=kernel,
            s=spec,
            dialect=dialect,
            bindings=bindings,
            constants=_constants(kernel),
            params_struct=wgsl_struct(GemmParams, "Params"),
        )
    )
    needed = features | ({SUBGROUPS[dialect]} if kernel.subgroup else set())
    return Shader(kernel, dialect, tidy(text), bindings, needed)


def _bindings(kernel: Kernel, spec: Specialisation) -> Iterator[Binding]:
    types = {
        "a": _array(spec.dtype, spec.vec_a),
        "b": _array(spec.dtype, spec.vec_b),
        "c": _array(spec.out_dtype, spec.vec_c),
        "bias": _array(spec.dtype, False),
    }
    names = (name for name in kernel.binds if name != "bias" or spec.bias)
    for number, name in enumerate(names, 1):
        written = name == kernel.writes
        if name in types:
            yield Binding(number, name, "storage" if written else "read-only-storage", types[name])
        else:
            access = "write" if written else "read"
            yield Binding(number, name, f"{access}-only", f"texture_storage_2d_array<rgba32float, {access}>")


def _array(scalar: str, vector: bool) -> str:
    return f"array<vec4<{scalar}>>" if vector else f"array<{scalar}>"


def _constants(kernel: Kernel) -> str:
    """Return integer tunables as WGSL constants; the others steer the template and stand as comments."""
    lines = []
    for name, value, doc in kernel.constants:
        if isinstance(value, int):
            lines.append(f"const {name.upper()}: u32 = {value}u; // {doc}")
        else:
            lines.append(f"// {name} = {value}: {doc}")
    return "\n".join(lines)


@functools.lru_cache(maxsize=1024)
def params_bytes(problem: Problem) -> bytes:
    """Return the uniform's bytes for `problem`."""
    return pack(GemmParams.of(problem))
