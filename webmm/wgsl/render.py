"""Rendering: from a kernel and a problem to a shader, its WGSL text with everything that a host needs to run it.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import dataclasses
import functools
import linecache
import re
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from webmm.dtypes import F32, WIDE
from webmm.errors import ConfigError, ShaderError, WebmmError
from webmm.kernels.base import Binding, Kernel, Params, features
from webmm.kernels.subgroups import SIZE_CONTROL
from webmm.problems.base import Problem
from webmm.wgsl.compilers import Place
from webmm.wgsl.params import U32, Layout, layout, pack, wgsl_struct
from webmm.wgsl.subgroups import sized

if TYPE_CHECKING:
    import jinja2

Dialect = Literal["naga", "tint"]
DIALECTS: tuple[str, ...] = get_args(Dialect)
ENTRY_POINT = "main"
SUBGROUPS = {"naga": "subgroup", "tint": "subgroups"}  # the feature's name in the engine of each dialect
MATRIX_UNITS = {"naga": "cooperative-matrix", "tint": "chromium-experimental-subgroup-matrix"}  # likewise

# The characters of the longest text that is compiled. On lavapipe, tile_2d with 92,000, 184,000 and 367,000 compiles in
# 30, 92 and 396 s of CPU time and 0.4, 1.0 and 3.3 GB; drivers of GPUs were not measured. No kernel that was chosen or
# recorded has more than 95,000; a search skips the few candidates beyond the limit, 1 % of `pipelined`'s.
MAX_TEXT = 200_000
MAX_STEPS = 50_000  # of the loops of a template, each of which writes at least 20 characters

DEBUG_LINE = re.compile(r"^[ \t]*dbg\w*\(.*\);\n", re.MULTILINE)
REGION_LINE = re.compile(r"^[ \t]*//#.*\n", re.MULTILINE)  # a mark around a region that a chapter shows
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
    spec: Any
    dialect: Dialect
    wgsl: str
    bindings: tuple[Binding, ...]
    features: frozenset[str]
    workgroup_bytes: int
    values: dict[str, Any] = dataclasses.field(compare=False, repr=False)  # the variables of its template

    @property
    def label(self) -> str:
        """Name for error messages and debuggers."""
        return str(self.kernel)

    @property
    def params(self) -> Layout:
        """The layout of the uniform, in bytes."""
        return layout(self.kernel.uniform(self.spec), real_type(self.features))

    def to_json(self) -> dict[str, Any]:
        """Return the shader for other hosts, in JSON types; sizes and offsets of the uniform are in bytes."""
        params = self.params
        return {
            "kernel": self.kernel.name,
            "config": self.kernel.config,
            "dialect": self.dialect,
            "entry_point": ENTRY_POINT,
            "wgsl": self.wgsl,
            "bindings": [dict(vars(binding)) for binding in self.bindings],
            "params": {
                "size": params.size,
                "members": [{"name": m.name, "type": m.type, "offset": m.offset} for m in params.members],
            },
            "workgroup_size": list(self.kernel.workgroup_size),
            "grid": self.kernel.grid_rule(self.spec),
            "features": sorted(self.features),
            "limits": {
                "maxComputeInvocationsPerWorkgroup": self.kernel.invocations,
                "maxComputeWorkgroupSizeX": self.kernel.workgroup_size[0],
                "maxComputeWorkgroupSizeY": self.kernel.workgroup_size[1],
                "maxComputeWorkgroupStorageSize": self.workgroup_bytes,
            },
        }


@functools.cache
def shader_folder() -> Path:
    """Return the folder of the templates: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "shaders"
    return installed if installed.is_dir() else package.parent / "shaders"


class _Steps(threading.local):
    """Counts the steps of loops while a kernel is rendered, so that absurd tunables end it early."""

    left: int | None = None  # None: not counted

    def range(self, *bounds: int) -> range:
        """Return Python's range; raises _TooManyStepsError once the steps are used up."""
        steps = range(*bounds)
        if self.left is not None:
            self.left -= len(steps[: self.left + 1])
            if self.left < 0:
                raise _TooManyStepsError
        return steps


class _TooManyStepsError(Exception):
    pass


_steps = _Steps()


@functools.cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment of all templates; an undefined name is an error."""
    from webmm.wgsl.templates import Environment  # with jinja2, which `import webmm` does not need

    made = Environment(shader_folder())
    made.globals["range"] = _steps.range
    return made


def tidy(text: str) -> str:
    """Return WGSL text indented by braces and parentheses, without the blank lines that template tags leave."""
    lines: list[str] = []
    depth = 0
    for line in [each.strip() for each in text.splitlines()]:
        code = line.split("//")[0].strip()
        opened, closed = code.count("{") + code.count("("), code.count("}") + code.count(")")
        leading = len(code) - len(re.sub(r"^[})]+", "", code))
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
    general: bool = False,
    debug: bool = False,
    tags: tuple[str, ...] | None = None,
    pinned: bool = False,
) -> Shader:
    """Return the shader of `kernel` specialised for `problem`, in the dialect of naga (wgpu) or Tint (browsers).

    Problems with the same specialisation share the shader. With `general`, it is right for problems like `problem`, in
    types, layout and terms, of any sizes, strides and offsets. With `pinned`, which only Tint knows, it asks for the
    size of subgroups that the kernel needs; otherwise it compares the size. With `debug`, the template's lines that
    call `dbg…()` are kept; they record values by tag in an additional binding, which `webmm.debug` reads. `tags` are
    those of all dispatches that share the binding, by default the template's. Raises ConfigError for an unknown dialect
    or one that cannot express the kernel, for tile sizes or element types that cannot work on any device, and for a
    text longer than MAX_TEXT; ShaderError for a template that is missing or has an error.
    """
    if dialect not in DIALECTS:
        raise ConfigError(f"unknown dialect {dialect!r}; choose from {', '.join(DIALECTS)}")
    if why := inexpressible(kernel, problem, dialect):
        raise ConfigError(f"{kernel.name} of {kernel.op} cannot be written for {dialect}: {why}")
    if pinned and (dialect != "tint" or not kernel.subgroup):
        only = f"cannot ask for its size of subgroups in {dialect}, only in tint"
        why = "uses no subgroups" if dialect == "tint" else only
        raise ConfigError(f"{kernel.name} of {kernel.op} {why}")
    if debug and problem.dtype.wide:
        raise ConfigError("debug shaders record float32; use operands of a shorter type")
    if reason := kernel.invalid() or kernel.unsuited(problem):
        raise ConfigError(f"{kernel.name}: {reason}")
    if debug and tags is None:
        tags = tags_of(kernel, problem, dialect)
    spec = kernel.general(problem) if general else kernel.specialise(problem)
    stored, nbytes = features(kernel, problem), kernel.workgroup_bytes_for(problem)
    return _render(kernel, spec, stored, nbytes, dialect, tags if debug else None, pinned)


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
    pinned: bool = False,
) -> Shader:
    bindings = (Binding(0, "params", "uniform", "Params"), *kernel.bindings(spec))
    if tags:
        bindings = (*bindings, Binding(len(bindings), "debug", "storage", "Debug"))
    real = real_type(stored)
    values = {
        "s": spec,
        "real": real,
        "vec2r": vector_type(2, real),
        "vec4r": vector_type(4, real),
        "dialect": dialect,
        "pinned": pinned,
        "bindings": bindings,
        "constants": _constants(kernel),
        "params_struct": wgsl_struct(kernel.uniform(spec), "Params", real),
        "tags": tags,
        "watch_struct": wgsl_struct(Watch, "Watch"),
    }
    text = tidy(finished(sized(filled_in(kernel, values), kernel, dialect, pinned), tags))
    needed = stored | ({SUBGROUPS[dialect]} if kernel.subgroup else set())
    needed |= {MATRIX_UNITS[dialect]} if kernel.matrix_shape else set()
    needed |= {SIZE_CONTROL} if pinned else set()
    size = len(re.sub(DEBUG_LINE, "", text))
    if size > MAX_TEXT:
        why = f"its text has {size:,} characters, and drivers take minutes for more than {MAX_TEXT:,}"
        raise ConfigError(f"{kernel}: {why}; choose smaller tunables, or a shorter epilogue or expression")
    return Shader(kernel, spec, dialect, text, bindings, needed, workgroup_bytes, values)


def finished(text: str, tags: tuple[str, ...] | None) -> str:
    """Return a template's text without the marks of regions, and without debug lines unless these record `tags`."""
    text = re.sub(REGION_LINE, "", text)
    return re.sub(DEBUG_LINE, "", text) if tags is None else text


def template_of(kernel: Kernel[Any]) -> str:
    """Return the name of a kernel's template in `shaders/`, or the path of the one next to its class's module."""
    module = sys.modules.get(type(kernel).__module__)
    place = getattr(module, "__file__", None)
    if place is None or (shader_folder() / kernel.template).is_file():  # an absolute path is unchanged
        return kernel.template
    return Path(place).resolve().with_name(f"{kernel.name}.wgsl").as_posix()


def filled_in(kernel: Kernel[Any], values: dict[str, Any], templates: jinja2.Environment | None = None) -> str:
    """Return the rendered template of a kernel, in another environment if one is given.

    Raises ShaderError with file, line and the line itself if the template has an error, ConfigError if its loops have
    more than MAX_STEPS steps.
    """
    _steps.left = MAX_STEPS
    try:
        return (templates or environment()).get_template(template_of(kernel)).render(kernel=kernel, **values)
    except WebmmError:
        raise
    except _TooManyStepsError:
        raise ConfigError(
            f"{kernel}: its text would be unrolled in more than {MAX_STEPS:,} steps; choose smaller tunables"
        ) from None
    except Exception as error:
        raise ShaderError(_explained(error, kernel)) from error
    finally:
        _steps.left = None


def _explained(error: Exception, kernel: Kernel[Any]) -> str:
    """Return an error of a template in words, with the innermost line of a template that it has passed."""
    import jinja2

    words = str(error) or type(error).__name__
    if isinstance(error, jinja2.TemplateSyntaxError):
        file, line, words = error.filename or error.name or "", error.lineno, error.message or words
    else:
        frames = traceback.extract_tb(error.__traceback__)
        frame = next((each for each in reversed(frames) if each.filename.endswith(".wgsl")), None)
        file, line = (frame.filename, frame.lineno or 0) if frame else ("", 0)
    if isinstance(error, jinja2.TemplateNotFound):
        words = f"there is no template {error}"
    if not file:
        return f"{kernel.name} of {kernel.op}: {words}"
    linecache.checkcache(file)  # its author may have changed it since an earlier error
    place = Place(file, line, linecache.getline(file, line).strip())
    return f"{kernel.name} of {kernel.op} cannot be rendered: {place}: {words}\n  {place}: {place.text}"


def expressible(kernel: Kernel[Any], problem: Problem, dialect: Dialect) -> bool:
    """Tell whether a dialect has what `kernel` needs to compute `problem`."""
    return inexpressible(kernel, problem, dialect) is None


def inexpressible(kernel: Kernel[Any], problem: Problem, dialect: Dialect) -> str | None:
    """Return why a dialect cannot express how `kernel` computes `problem`, or None if it can."""
    shape = kernel.matrix_shape
    if why := kernel.not_in.get(dialect):
        return why
    if dialect == "naga":
        return None if shape is None or shape.m == shape.n == shape.k else "its fragments are square"
    return None if real_type(features(kernel, problem)) == F32.wgsl else f"it has no {problem.dtype.wgsl}"


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
    """Return the type in which a shader that needs these features computes, also that of the uniform's numbers."""
    return next((dtype.wgsl for dtype in WIDE if dtype.features <= needed), F32.wgsl)


def vector_type(width: int, real: str) -> str:
    """Return the WGSL type of a vector of `width` numbers of the type `real`."""
    return f"vec{width}f" if real == F32.wgsl else f"vec{width}<{real}>"


def params_bytes(kernel: Kernel[Any], problem: Problem) -> bytes:
    """Return the bytes of the uniform of `kernel` for `problem`."""
    return _params_bytes(kernel.uniform(problem), problem, real_type(features(kernel, problem)))


@functools.lru_cache(maxsize=1024)
def _params_bytes(uniform: type[Params], problem: Problem, real: str) -> bytes:
    return pack(uniform.of(problem), real)
