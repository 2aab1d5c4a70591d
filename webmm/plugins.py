"""Plugins: stages and ops that users register from their own Python files.

A stage subclasses the kernel class of its op (for gemm, `GemmKernel`); its WGSL template is NAME.wgsl in the folder of
the Python file. An op is an `Op`, like those of `webmm.cases`; its stages are registered after it. Both are then used
like webmm's: found by name, proven before their first use on a driver, benchmarked, tuned and explained.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any, TypeVar

from webmm.cases import OPS
from webmm.cases.base import Op
from webmm.engine import generation
from webmm.errors import ConfigError
from webmm.kernels import REGISTERED, STAGES, ladder
from webmm.kernels.base import Kernel
from webmm.wgsl.render import shader_folder, template_of

T = TypeVar("T", bound=type[Any])

_OPS: list[type[Op[Any]]] = []  # registered ops; registered stages are in REGISTERED


def register(what: T) -> T:
    """Register a stage (a frozen dataclass, subclass of `Kernel`) or an op (a subclass of `Op`), and return it.

    A stage defines `name`, `op` and `follows` (the stage it comes after in the ladder); each of its fields is a
    `tunable()`. Registering a name again replaces the earlier registration. Raises ConfigError for anything else.
    """
    if isinstance(what, type) and issubclass(what, Kernel):
        _register_stage(what)
    elif isinstance(what, type) and issubclass(what, Op):
        _register_op(what)
    else:
        raise ConfigError(f"register() takes a subclass of Kernel or Op, not {what!r}")
    generation.advance()
    return what


def unregister(what: type[Any]) -> None:
    """Remove the registration of a stage, or of an op and its stages; raises ConfigError if it is not registered."""
    if what in REGISTERED:
        REGISTERED.remove(what)
        del STAGES[what.op][what.name]
    elif what in _OPS:
        for stage in [stage for stage in REGISTERED if stage.op == what.name]:
            unregister(stage)
        _OPS.remove(what)
        del OPS[what.name], STAGES[what.name]
    else:
        raise ConfigError(f"{what!r} is not registered")
    generation.advance()


def registered() -> tuple[type[Any], ...]:
    """Return the registered ops, then the registered stages, each in the order of their registration."""
    return (*_OPS, *REGISTERED)


def _register_stage(cls: type[Kernel[Any]]) -> None:
    given: list[Any] = [getattr(cls, word, None) for word in ("name", "op", "follows")]
    name, op, follows = given
    if not name or op not in STAGES or follows is None:
        raise ConfigError(f"{cls.__name__} must define name, op (one of {', '.join(STAGES)}) and follows")
    known: type[Kernel[Any]] | None = STAGES[op].get(name)
    if (known and known not in REGISTERED) or (shader_folder() / op / f"{name}.wgsl").exists():
        raise ConfigError(f"webmm has a kernel {name} of {op}; choose another name")
    others = {key: stage for key, stage in STAGES[op].items() if stage is not known}
    if not follows and others:
        raise ConfigError(f"{name} must follow a stage of {op}: {', '.join(others)}")
    if not dataclasses.is_dataclass(cls):
        raise ConfigError(f"{cls.__name__} must be a frozen dataclass")
    for each in dataclasses.fields(cls):
        if "candidates" not in each.metadata:
            raise ConfigError(f"{name}.{each.name} must be a tunable(): a default, candidates, and a comment")
    try:
        kernel = cls()
    except TypeError as error:
        raise ConfigError(f"{cls.__name__}: {error}") from error
    if reason := kernel.invalid():
        raise ConfigError(f"{name} with its defaults: {reason}")
    if not (shader_folder() / template_of(kernel)).is_file():  # absolute paths are kept by `/`
        raise ConfigError(f"{name} has no template: {template_of(kernel)} does not exist")
    order = list(ladder({**others, name: cls}))
    if known:
        REGISTERED.remove(known)
    REGISTERED.append(cls)
    STAGES[op].clear()
    STAGES[op].update((stage.name, stage) for stage in order)


def _register_op(cls: type[Op[Any]]) -> None:
    name = getattr(cls, "name", "")
    known = next((op for op in _OPS if op.name == name), None)
    if not name or (name in OPS and not known):
        raise ConfigError(f"{cls.__name__} must have a name other than {', '.join(OPS)}")
    try:
        op = cls()
    except TypeError as error:
        raise ConfigError(f"{cls.__name__}: {error}") from error
    if known:
        unregister(known)
    _OPS.append(cls)
    OPS[name], STAGES[name] = op, {}


def load(path: Path | str) -> None:
    """Import the Python file at `path`, which registers stages or ops, unless it was imported before.

    Raises ConfigError if there is no such file, if it fails, or if it registers nothing.
    """
    file = Path(path).resolve()
    name, before = str(file), registered()
    if name in files():
        return
    spec = importlib.util.spec_from_file_location(name, file)
    if file.suffix != ".py" or not file.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"a plugin is a Python file, not {str(path)!r}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        if registered() == before:
            raise ConfigError("it registers nothing; call webmm.register(…)")
    except Exception as error:
        for what in set(registered()) - set(before):
            if what in registered():  # removing an op removes its stages
                unregister(what)
        del sys.modules[name]
        raise ConfigError(f"plugin {path}{_line(error, name)}: {error or type(error).__name__}") from error


def _line(error: Exception, file: str) -> str:
    """Return ", line N" for the line of `file` that raised an error, or "" if it is not known."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f", line {lines[-1]}" if lines else ""


def file_of(stage: type[Any]) -> str | None:
    """Return the file that defines a registered class, or None if that is a program or a notebook.

    Another process can import the file, but importing a program would run it again.
    """
    path = getattr(sys.modules.get(stage.__module__), "__file__", None)
    return str(Path(path).resolve()) if path and stage.__module__ != "__main__" else None


def registered_file(cls: type[Any]) -> str | None:
    """Return the file that defines a stage or an op from outside the package, as `file_of()` does; None for webmm's."""
    return file_of(cls) if cls in registered() else None


def files() -> list[str]:
    """Return the files that another process must `load()`, in this order, to have the same registrations."""
    return list(dict.fromkeys(filter(None, map(file_of, registered()))))
