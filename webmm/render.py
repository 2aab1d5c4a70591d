"""Rendering: from a kernel and a problem to a shader, its WGSL text with everything that a host needs to run it."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import jinja2

from webmm.dtypes import F32, F64
from webmm.epilogues import OWN
from webmm.errors import ConfigError, ShaderError
from webmm.kernels.base import Binding, Kernel, features
from webmm.params import U32, layout, pack, wgsl_struct
from webmm.problems.base import Problem

Dialect = Literal["naga", "tint"]
DIALECTS: tuple[str, ...] = get_args(Dialect)
ENTRY_POINT = "main"
SUBGROUPS = {"naga": "subgroup", "tint": "subgroups"}  # the feature's name in the engine of each dialect
MATRIX_UNITS = {"naga": "cooperative-matrix", "tint": "chromium-experimental-subgroup-matrix"}  # likewise


DEBUG_LINE = re.compile(r"^[ \t]*dbg\w*\(.*\);\n", re.MULTILINE)
TAG = re.compile(r"^[ \t]*dbg\w*\(([A-Z]\w*), ", re.MULTILINE)  # the tag that such a line records
FRAGMENT_TAGS = ("SHARED_A", "SHARED_B", "ACC")  # the tags that dbg_fragment() records


@dataclass(frozen=True)
class Watch:
    """The element that a debug shader watches, and the number of inner steps that it can record."""

    row: U32
    col: U32
    steps: U32


@dataclass(frozen=True)
class Shader:
    """A rendered kernel, with everything that a host needs to run it."""

    kernel: Kernel[Any]
    dialect: Dialect
    wgsl: str
    bindings: tuple[Binding, ...]
    features: frozenset[str]
    workgroup_bytes: int

    @property
    def label(self) -> str:
        """Name for error messages and debuggers."""
        return str(self.kernel)

    def to_json(self) -> dict[str, Any]:
        """Return the shader for other hosts, in JSON types; sizes and offsets of the uniform are in bytes."""
        params = layout(self.kernel.params, real_type(self.features))
        return {
            "kernel": self.kernel.name,
            "config": self.kernel.config,
            "dialect": self.dialect,
            "entry_point": ENTRY_POINT,
            "wgsl": self.wgsl,
            "bindings": [dataclasses.asdict(binding) for binding in self.bindings],
            "params": {
                "size": params.size,
                "members": [{"name": m.name, "type": m.type, "offset": m.offset} for m in params.members],
            },
            "workgroup_size": list(self.kernel.workgroup_size),
            "grid": self.kernel.grid_rule(),
            "features": sorted(self.features),
            "limits": {
                "maxComputeInvocationsPerWorkgroup": self.kernel.invocations,
                "maxComputeWorkgroupSizeX": self.kernel.workgroup_size[0],
                "maxComputeWorkgroupSizeY": self.kernel.workgroup_size[1],
                "maxComputeWorkgroupStorageSize": self.workgroup_bytes,
            },
        }


def shader_folder() -> Path:
    """Return the folder of the templates: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "shaders"
    return installed if installed.is_dir() else package.parent / "shaders"


class _Loader(jinja2.FileSystemLoader):
    """Loads templates of `shaders/`, those of plugins by their absolute paths, and user-defined epilogues by name."""

    def get_source(self, environment: jinja2.Environment, template: str) -> Any:
        path = Path(template)
        if own := OWN.get(path.stem):
            return f"{{% raw %}}{own.text}{{% endraw %}}", None, lambda: True
        if path.is_absolute():
            return jinja2.FileSystemLoader(path.parent).get_source(environment, path.name)
        return super().get_source(environment, template)


class _Environment(jinja2.Environment):
    """An environment in which a plugin's template can include files of its own folder."""

    def join_path(self, template: str, parent: str) -> str:
        """Return the name of `template` as `parent` includes it."""
        sibling = Path(parent).parent / template
        return str(sibling) if sibling.is_absolute() and sibling.is_file() else template


@functools.cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment of all templates; an undefined name is an error."""
    return _Environment(
        loader=_Loader(shader_folder()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def tidy(text: str) -> str:
    """Return WGSL text indented by braces and parentheses, without the blank lines that template tags leave."""
    lines: list[str] = []
    depth = 0
    for line in map(str.strip, text.splitlines()):
        code = line.split("//")[0].strip()
        opened, closed = (sum(code.count(mark) for mark in marks) for marks in ("{(", "})"))
        leading = len(code) - len(code.lstrip("})"))
        previous = lines[-1] if lines else ""
        if line or not (previous == "" or previous.endswith("{")):
            lines.append("    " * (depth - leading) + line if line else "")
        depth += opened - closed
    text = "\n".join(lines)
    return re.sub(r"\n+(\n *\})", r"\1", text).strip() + "\n"


def render(
    kernel: Kernel[Any],
    problem: Problem,
    dialect: Dialect = "naga",
    *,
    debug: bool = False,
    tags: tuple[str, ...] | None = None,
) -> Shader:
    """Return the shader of `kernel` specialised for `problem`, in the dialect of naga (wgpu) or Tint (browsers).

    Problems with the same specialisation share the shader. With `debug`, the template's lines that call `dbg…()` are
    kept; they record values by tag in an additional binding, which `webmm.debug` reads. `tags` are those of all
    dispatches that share the binding, by default the template's. Raises ConfigError for an unknown dialect or one that
    cannot express the kernel, and for tile sizes or element types that cannot work on any device; ShaderError for a
    template that is missing or has an error.
    """
    if dialect not in DIALECTS:
        raise ConfigError(f"unknown dialect {dialect!r}; choose from {', '.join(DIALECTS)}")
    if why := kernel.not_in.get(dialect):
        raise ConfigError(f"{kernel.name} of {kernel.op} cannot be written for {dialect}: {why}")
    if not expressible(kernel, problem, dialect):
        raise ConfigError(f"{kernel.name} of float64 cannot be written for {dialect}, which has no f64")
    if debug and problem.dtype == F64:
        raise ConfigError("debug shaders record float32; use operands of a shorter type than float64")
    if reason := kernel.invalid() or kernel.unsuited(problem):
        raise ConfigError(f"{kernel.name}: {reason}")
    if debug and tags is None:
        tags = tags_of(kernel, problem, dialect)
    spec, stored, nbytes = kernel.specialise(problem), features(kernel, problem), kernel.workgroup_bytes_for(problem)
    return _render(kernel, spec, stored, nbytes, dialect, tags if debug else None)


def tags_of(kernel: Kernel[Any], problem: Problem, dialect: Dialect = "naga") -> tuple[str, ...]:
    """Return the tags that the debug shaders of all dispatches of a kernel record, in order of appearance."""
    found: dict[str, None] = {}
    for step in kernel.dispatches:
        text = render(step, problem, dialect, debug=True, tags=()).wgsl
        found |= dict.fromkeys(TAG.findall(text))
        found |= dict.fromkeys(FRAGMENT_TAGS if re.search(r"^ *dbg_fragment\(", text, re.MULTILINE) else ())
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _render(
    kernel: Kernel[Any],
    spec: Any,
    stored: frozenset[str],
    workgroup_bytes: int,
    dialect: Dialect,
    tags: tuple[str, ...] | None,
) -> Shader:
    bindings = (Binding(0, "params", "uniform", "Params"), *kernel.bindings(spec))
    if tags:
        bindings = (*bindings, Binding(len(bindings), "debug", "storage", "Debug"))
    values = {
        "s": spec,
        "dialect": dialect,
        "bindings": bindings,
        "constants": _constants(kernel),
        "params_struct": wgsl_struct(kernel.params, "Params"),
        "tags": tags,
        "watch_struct": wgsl_struct(Watch, "Watch"),
    }
    text = _filled_in(kernel, values)
    if F64.features <= stored:
        text = _in_f64(text)
    if tags is None:
        text = DEBUG_LINE.sub("", text)
    needed = stored | ({SUBGROUPS[dialect]} if kernel.subgroup else set())
    needed |= {MATRIX_UNITS[dialect]} if kernel.matrix_shape else set()
    return Shader(kernel, dialect, tidy(text), bindings, needed, workgroup_bytes)


def template_of(kernel: Kernel[Any]) -> str:
    """Return the name of a kernel's template in `shaders/`, or the path of the one next to its class's module."""
    module = sys.modules.get(type(kernel).__module__)
    place = getattr(module, "__file__", None)
    if place is None or (shader_folder() / kernel.template).is_file():  # an absolute path is unchanged
        return kernel.template
    return str(Path(place).resolve().with_name(f"{kernel.name}.wgsl"))


def _filled_in(kernel: Kernel[Any], values: dict[str, Any]) -> str:
    """Return the rendered template of a kernel; raises ShaderError with file and line if it has an error."""
    try:
        return environment().get_template(template_of(kernel)).render(kernel=kernel, **values)
    except jinja2.TemplateNotFound as error:
        raise ShaderError(f"{kernel.name} of {kernel.op}: there is no template {error}") from error
    except jinja2.TemplateSyntaxError as error:
        raise ShaderError(f"{error.filename}, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise ShaderError(f"{template_of(kernel)}: {error.message}") from error


def expressible(kernel: Kernel[Any], problem: Problem, dialect: Dialect) -> bool:
    """Tell whether a dialect has the types in which `kernel` computes `problem`; only naga has f64."""
    return dialect == "naga" or not F64.features <= features(kernel, problem)


def _in_f64(text: str) -> str:
    """Return a template's text with f64 in place of f32, for which templates are written.

    This includes the epilogue's numbers in the uniform, which `pack()` then packs as f64.
    """
    return re.sub(r"\bvec([234])f\b", r"vec\1<f64>", text).replace("f32", "f64")


def _constants(kernel: Kernel[Any]) -> str:
    """Return integer tunables as WGSL constants, and the others, which only templates use, as comments."""
    lines = []
    for name, value, doc in kernel.constants:
        if isinstance(value, int):
            lines.append(f"const {name.upper()}: u32 = {value}u; // {doc}")
        else:
            lines.append(f"// {name} = {value}: {doc}")
    return "\n".join(lines)


def real_type(needed: frozenset[str]) -> str:
    """Return the type of the uniform's real numbers in a shader that needs these features."""
    return F64.wgsl if F64.features <= needed else F32.wgsl


def params_bytes(kernel: Kernel[Any], problem: Problem) -> bytes:
    """Return the bytes of the uniform of `kernel` for `problem`."""
    return _params_bytes(type(kernel), problem, real_type(features(kernel, problem)))


@functools.lru_cache(maxsize=1024)
def _params_bytes(cls: type[Kernel[Any]], problem: Problem, real: str) -> bytes:
    return pack(cls.params.of(problem), real)
