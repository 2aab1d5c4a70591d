"""Kernels from outside the package: stages and ops that somebody registers from a file of their own.

A stage is a `Kernel` of an op's kind – of products of floats a `GemmKernel` – with its WGSL template beside the Python
file, as NAME.wgsl. An op is a row like those of `webmm.cases`; its stages are registered after it. From then on they
are used as ours are: found by name, proven before their first use on a driver, benched, tuned, explained.
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
from webmm.errors import ConfigError
from webmm.kernels import REGISTERED, STAGES, ladder
from webmm.kernels.base import Kernel
from webmm.render import shader_folder, template_of

T = TypeVar("T", bound=type[Any])

_OPS: list[type[Op[Any]]] = []  # from outside the package; the stages are in REGISTERED


def register(what: T) -> T:
    """Add a stage (a frozen dataclass, subclass of `Kernel`) or an op (a subclass of `Op`), and return it.

    A stage says its `name`, its `op`, and in `follows` after which stage it comes; each of its fields is a `tunable()`.
    One of the same name that was registered before gives way. Raises ConfigError for what is none of this.
    """
    if isinstance(what, type) and issubclass(what, Kernel):
        _register_stage(what)
    elif isinstance(what, type) and issubclass(what, Op):
        _register_op(what)
    else:
        raise ConfigError(f"register() takes a subclass of Kernel or Op, not {what!r}")
    return what


def unregister(what: type[Any]) -> None:
    """Take back the registration of a stage, or of an op and its stages; raises ConfigError where there is none."""
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


def registered() -> tuple[type[Any], ...]:
    """Return the ops and stages from outside the package, in the order in which they were registered."""
    return (*_OPS, *REGISTERED)


def _register_stage(cls: type[Kernel[Any]]) -> None:
    name, op, follows = (getattr(cls, word, None) for word in ("name", "op", "follows"))
    if not name or op not in STAGES or follows is None:
        raise ConfigError(f"{cls.__name__} must say its name, an op of {', '.join(STAGES)}, and which stage it follows")
    known: type[Kernel[Any]] | None = STAGES[op].get(name)
    if (known and known not in REGISTERED) or (shader_folder() / op / f"{name}.wgsl").exists():
        raise ConfigError(f"{name} of {op} is a kernel of webmm's; take another name")
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
    if not (shader_folder() / template_of(kernel)).is_file():  # an absolute path stays what it is
        raise ConfigError(f"there is no template of {name}: {template_of(kernel)}")
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
        raise ConfigError(f"{cls.__name__} must have a name that is none of webmm's ops: {', '.join(OPS)}")
    try:
        op = cls()
    except TypeError as error:
        raise ConfigError(f"{cls.__name__}: {error}") from error
    if known:
        unregister(known)
    _OPS.append(cls)
    OPS[name], STAGES[name] = op, {}


def load(path: Path | str) -> None:
    """Import the Python file at `path`, which registers what it has, unless that was done.

    Raises ConfigError where there is no such file, where it fails, or registers nothing.
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
            raise ConfigError("it registers nothing: webmm.register(…)")
    except Exception as error:
        for what in set(registered()) - set(before):
            if what in registered():  # an op takes its stages with it
                unregister(what)
        del sys.modules[name]
        raise ConfigError(f"plugin {path}{_line(error, name)}: {error or type(error).__name__}") from error


def _line(error: Exception, file: str) -> str:
    """Return where in `file` an error arose, as far as that is known."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f", line {lines[-1]}" if lines else ""


def file_of(stage: type[Any]) -> str | None:
    """Return the file that defines a registered class, None where that is a program or a notebook.

    Another process may import the file; a program would begin its work there once more.
    """
    path = getattr(sys.modules.get(stage.__module__), "__file__", None)
    return str(Path(path).resolve()) if path and stage.__module__ != "__main__" else None


def files() -> list[str]:
    """Return the files that another process must `load()` to know what is registered here, in that order."""
    return list(dict.fromkeys(filter(None, map(file_of, registered()))))
