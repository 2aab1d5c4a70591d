"""Name resolution: the definition of a name in a module, an imported one, or a Python-only one."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from webmm import plugins
from webmm.errors import ConfigError
from webmm.lazy import Lazy
from webmm.page.script import runtime
from webmm.wgsl.compilers import shown

PACKAGES = ["webmm"]  # the packages whose modules are translated, besides those of plugins
PURE = ("webmm.arguments", "webmm.cut", "webmm.kernels")  # those all of whose functions JavaScript can call
SIDES = (
    *("arranged", "assign", "beside", "converted", "dense", "forward", "from_start", "in_shape", "on_host"),
    "run_kernel",
)
# What JavaScript has of its own, in these packages or others: functions that return a promise there …
AWAITED = (
    *("webmm.calls.doubles.add_up", "webmm.calls.pieces.in_pieces", "webmm.calls.pieces.in_placed_pieces"),
    *("webmm.calls.product.fill", "webmm.calls.reduce.combine", "webmm.measure.roofline.best_us"),
    *(f"webmm.calls.sides.{name}" for name in SIDES),
    *(f"webmm.engine.timing.{name}" for name in ("rested", "timestamps", "wall")),
    "webmm.page.pieces.store",
)
# … and others.
PROVIDED = (
    *("webmm.arguments.options.spelled", "webmm.calls.executor.piece_of", "webmm.calls.sides.*"),
    *("webmm.engine.device.Array", "webmm.engine.view.View"),  # classes, as far as isinstance() goes
    *(f"webmm.problems.scheme.{name}" for name in ("extremes", "first_outside", "name_of_dtype", "numbers_of")),
    *("webmm.problems.scheme.single", "webmm.problems.scheme.vector"),
    *("webmm.problems.quantized.multipliers_of", "webmm.problems.quantized.terms_of"),
)


def is_ours(module: str | None) -> bool:
    """Tell whether a module belongs to one of PACKAGES, or to a plugin."""
    return (module or "").split(".")[0] in PACKAGES or is_plugin(module)


def is_plugin(module: str | None) -> bool:
    """Tell whether a module outside PACKAGES registered a stage or an op."""
    return any(cls.__module__ == module for cls in plugins.registered())


class ScriptError(ConfigError):
    """Python code that is not supported; the message has its file and line."""

    def __init__(self, module: str, node: ast.AST | None, what: str) -> None:
        line = getattr(node, "lineno", 0)
        super().__init__(f"{_file(module)}:{line}: {what}")


class HostError(Exception):
    """A name without a counterpart in JavaScript."""


REGISTRIES = ("webmm.wgsl.functions.OWN", "webmm.problems.reduce.DECLARED")  # filled by user code: empty on the page
LATE_OPS = ("attention", "quantized", "weights")  # whose keys of mappings by op are added by modules of their own


@dataclass(frozen=True)
class Name:
    """A top-level definition of a module; with `key`, the entry of one of LATE_OPS in a mapping by op."""

    module: str
    name: str
    key: str = ""

    @property
    def value(self) -> Any:
        """The defined object, as it is when its module was imported: an empty one for REGISTRIES.

        A mapping by op is without LATE_OPS.
        """
        module = importlib.import_module(self.module)
        if self.name in _rebound(module):
            return _initial(definitions(self.module)[self.name])
        value = getattr(module, self.name)
        if self.key:
            return value[self.key]
        if isinstance(value, Lazy):
            return {key: each for key, each in value.items() if key not in LATE_OPS}
        return type(value)() if str(self) in REGISTRIES else value

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" + (f"[{self.key}]" if self.key else "")


def _file(module: str) -> str:
    found = importlib.import_module(module)
    if is_plugin(module):
        return shown(str(found.__file__))
    return f"{module.replace('.', '/')}{'/__init__' if hasattr(found, '__path__') else ''}.py"


def definitions(module: str) -> dict[str, ast.stmt]:
    """Return the top-level statements of a module by the names that they bind."""
    return _definitions(importlib.import_module(module))


@functools.cache
def _definitions(module: ModuleType) -> dict[str, ast.stmt]:
    return {name: statement for statement in _tree(module).body for name in _bound(statement)}


@functools.cache
def _rebound(module: ModuleType) -> frozenset[str]:
    """Return the names that functions of a module bind again."""
    statements = (node for node in ast.walk(_tree(module)) if isinstance(node, ast.Global))
    return frozenset(name for statement in statements for name in statement.names)


@functools.cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _initial(statement: ast.stmt) -> Any:
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        raise HostError(ast.unparse(statement))
    return ast.literal_eval(statement.value)


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id


def home(module: str, name: str) -> Name:
    """Return the definition of a module's `name`, following imports within webmm."""
    statement = definitions(module).get(name)
    if isinstance(statement, ast.ImportFrom) and statement.module and is_ours(statement.module):
        original = next(a.name for a in statement.names if (a.asname or a.name) == name)
        if not isinstance(vars(importlib.import_module(module)).get(name), ModuleType):
            return home(statement.module, original)
    return Name(module, name)


def home_of(value: Any) -> Name | None:
    """Return the definition of a top-level class or function of webmm; None for anything else."""
    if not isinstance(value, type | FunctionType) and not hasattr(value, "__wrapped__"):
        return None
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if not is_ours(module) or name not in vars(importlib.import_module(module)):
        return None
    return Name(module, name)


def resolve(module: str, name: str) -> Name | str:
    """Return the definition of the global `name` in `module`, or its JavaScript expression if the runtime has it.

    Raises HostError if neither webmm nor the runtime has it.
    """
    scope = vars(importlib.import_module(module))
    if name not in scope:
        if expression := runtime.builtin(name):
            return expression
        raise HostError(name)
    value = scope[name]
    if isinstance(value, ModuleType):
        if not (is_ours(value.__name__) or value in runtime.MODULES):
            raise HostError(name)
        return Name(module, name)
    if expression := runtime.spelled(value):
        return expression
    found = home_of(value) or home(module, name)
    if not is_ours(found.module):
        raise HostError(name)
    if isinstance(definitions(found.module).get(found.name), ast.Import | ast.ImportFrom):
        raise HostError(name)
    return found


def is_provided(module: str, name: str) -> bool:
    """Tell whether JavaScript has a function, or a class, of its own in place of this one."""
    return f"{module}.{name}" in (*PROVIDED, *AWAITED) or f"{module}.*" in PROVIDED


def is_awaited(name: Name) -> bool:
    """Tell whether JavaScript has a function of its own in place of this one, which returns a promise."""
    return str(name) in AWAITED


def refuse_host(name: Name, function: ast.FunctionDef, error: HostError) -> None:
    """Raise ScriptError for a function with a Python-only name, if it is a plugin's, or in PURE and not PROVIDED."""
    pure = any(f"{name.module}.".startswith(f"{package}.") for package in PURE)
    if is_plugin(name.module) or (pure and not is_provided(name.module, name.name)):
        within = (node for node in ast.walk(function) if isinstance(node, ast.expr) and ast.unparse(node) == str(error))
        what = f"{function.name}() uses {error}, which the page does not have"
        raise ScriptError(name.module, next(within, function), what) from error
