"""From a kernel and a problem to WGSL text, and to all that a host needs to run it."""

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
SUBGROUPS = {"naga": "subgroup", "tint": "subgroups"}  # the feature's name in each dialect's engine
MATRIX_UNITS = {"naga": "cooperative-matrix", "tint": "chromium-experimental-subgroup-matrix"}  # likewise


DEBUG_LINE = re.compile(r"^[ \t]*dbg\w*\(.*\);\n", re.MULTILINE)
TAG = re.compile(r"^[ \t]*dbg\w*\(([A-Z]\w*), ", re.MULTILINE)  # what such a line records, as it calls that
FRAGMENT_TAGS = ("SHARED_A", "SHARED_B", "ACC")  # what dbg_fragment() records


@dataclass(frozen=True)
class Watch:
    """The element that a debug shader watches, and for how many inner steps there is room to record."""

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

    @property
    def label(self) -> str:
        """Name for error messages and debuggers."""
        return str(self.kernel)

    def to_json(self) -> dict[str, Any]:
        """Return what another host needs, in JSON types; lengths in the uniform are bytes."""
        params = layout(self.kernel.params)
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
                "maxComputeWorkgroupStorageSize": self.kernel.workgroup_bytes,
            },
        }


def shader_folder() -> Path:
    """Return the folder of the templates: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "shaders"
    return installed if installed.is_dir() else package.parent / "shaders"


class _Loader(jinja2.FileSystemLoader):
    """The templates below `shaders/`, those of others by their absolute paths, and epilogues of one's own by name."""

    def get_source(self, environment: jinja2.Environment, template: str) -> Any:
        path = Path(template)
        if own := OWN.get(path.stem):
            return f"{{% raw %}}{own.text}{{% endraw %}}", None, lambda: True
        if path.is_absolute():
            return jinja2.FileSystemLoader(path.parent).get_source(environment, path.name)
        return super().get_source(environment, template)


class _Environment(jinja2.Environment):
    """An environment in which a template from elsewhere may include a file that lies beside it."""

    def join_path(self, template: str, parent: str) -> str:
        """Return the name of `template` as `parent` includes it."""
        beside = Path(parent).parent / template
        return str(beside) if beside.is_absolute() and beside.is_file() else template


@functools.cache
def environment() -> jinja2.Environment:
    """Return the one Jinja environment; an undefined name is an error."""
    return _Environment(
        loader=_Loader(shader_folder()),
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

    Problems that share a specialisation share the shader. With `debug`, the lines of its template that call `dbg…()`
    stay, and record in one more binding what `webmm.debug` reads: values by tag, those that the template has, or the
    `tags` of all dispatches that share the binding. Raises ConfigError for an unknown dialect or one that
    cannot express the kernel, and for tile sizes or element types that cannot work on any device; ShaderError for a
    template that is missing or at fault.
    """
    if dialect not in DIALECTS:
        raise ConfigError(f"unknown dialect {dialect!r}; choose from {', '.join(DIALECTS)}")
    if why := kernel.not_in.get(dialect):
        raise ConfigError(f"{kernel.name} of {kernel.op} cannot be written for {dialect}: {why}")
    if not expressible(kernel, problem, dialect):
        raise ConfigError(f"{kernel.name} of float64 cannot be written for {dialect}: it has no f64")
    if debug and problem.dtype == F64:
        raise ConfigError("what a debug shader records is float32; take operands of a shorter type")
    if reason := kernel.invalid() or kernel.unsuited(problem):
        raise ConfigError(f"{kernel.name}: {reason}")
    if debug and tags is None:
        tags = tags_of(kernel, problem, dialect)
    return _render(kernel, kernel.specialise(problem), features(kernel, problem), dialect, tags if debug else None)


def tags_of(kernel: Kernel[Any], problem: Problem, dialect: Dialect = "naga") -> tuple[str, ...]:
    """Return what the debug shaders of all dispatches of a kernel record, in the order in which they are named."""
    found: dict[str, None] = {}
    for step in kernel.dispatches:
        text = render(step, problem, dialect, debug=True, tags=()).wgsl
        found |= dict.fromkeys(TAG.findall(text))
        found |= dict.fromkeys(FRAGMENT_TAGS if re.search(r"^ *dbg_fragment\(", text, re.MULTILINE) else ())
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _render(
    kernel: Kernel[Any], spec: Any, stored: frozenset[str], dialect: Dialect, tags: tuple[str, ...] | None
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
    return Shader(kernel, dialect, tidy(text), bindings, needed)


def template_of(kernel: Kernel[Any]) -> str:
    """Return the name of a kernel's template: below `shaders/`, else the path of the one beside its class's module."""
    module = sys.modules.get(type(kernel).__module__)
    place = getattr(module, "__file__", None)
    if place is None or (shader_folder() / kernel.template).is_file():  # an absolute path stays what it is
        return kernel.template
    return str(Path(place).resolve().with_name(f"{kernel.name}.wgsl"))


def _filled_in(kernel: Kernel[Any], values: dict[str, Any]) -> str:
    """Return the text of a kernel's template; raises ShaderError, which names file and line, where it has a fault."""
    try:
        return environment().get_template(template_of(kernel)).render(kernel=kernel, **values)
    except jinja2.TemplateNotFound as error:
        raise ShaderError(f"{kernel.name} of {kernel.op}: there is no template {error}") from error
    except jinja2.TemplateSyntaxError as error:
        raise ShaderError(f"{error.filename}, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise ShaderError(f"{template_of(kernel)}: {error.message}") from error


def expressible(kernel: Kernel[Any], problem: Problem, dialect: Dialect) -> bool:
    """Tell whether a dialect has the types that `kernel` computes `problem` in: f64 is naga's alone."""
    return dialect == "naga" or not F64.features <= features(kernel, problem)


def _in_f64(text: str) -> str:
    """Return a template's text with f64 in place of f32: it is written for the one, and means the same for the other.

    The uniform's numbers of the epilogue become f64, too, as `pack()` packs them.
    """
    return re.sub(r"\bvec([234])f\b", r"vec\1<f64>", text).replace("f32", "f64")


def _constants(kernel: Kernel[Any]) -> str:
    """Return integer tunables as WGSL constants; the others steer the template and stand as comments."""
    lines = []
    for name, value, doc in kernel.constants:
        if isinstance(value, int):
            lines.append(f"const {name.upper()}: u32 = {value}u; // {doc}")
        else:
            lines.append(f"// {name} = {value}: {doc}")
    return "\n".join(lines)


def params_bytes(kernel: Kernel[Any], problem: Problem) -> bytes:
    """Return the bytes of the uniform with which `kernel` computes `problem`."""
    return _params_bytes(type(kernel), problem, F64.wgsl if F64.features <= features(kernel, problem) else F32.wgsl)


@functools.lru_cache(maxsize=1024)
def _params_bytes(cls: type[Kernel[Any]], problem: Problem, real: str) -> bytes:
    return pack(cls.params.of(problem), real)
