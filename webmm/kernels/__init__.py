"""The kernels: frozen dataclasses of tile sizes, each with a WGSL template of the same name.

Stages register themselves: every class in a module of `kernels/OP/` that defines `follows` is one.

The package is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from webmm.errors import ConfigError
from webmm.kernels.base import Capabilities, Kernel
from webmm.lazy import Lazy
from webmm.problems import OPS

if TYPE_CHECKING:
    from webmm.measure.records import Record


def ladder(stages: Mapping[str, type[Kernel[Any]]]) -> Iterator[type[Kernel[Any]]]:
    """Yield stages in order: each after the one that it follows; of stages that follow the same one, that with fewer
    followers of its own comes first, then by name.

    Stages on matrix units, which few devices offer to shaders, come last. Raises ConfigError if a stage follows one
    that does not exist.
    """

    def after(name: str) -> list[type[Kernel[Any]]]:
        branches = [[cls, *after(cls.name)] for cls in stages.values() if cls.follows == name]
        return [cls for branch in sorted(branches, key=lambda each: (len(each), each[0].name)) for cls in branch]

    order = after("")
    if lost := [cls for cls in stages.values() if cls not in order]:
        raise ConfigError(
            f"{lost[0].name} of {lost[0].op} follows {lost[0].follows!r}, which is not a stage of the ladder"
        )
    yield from sorted(order, key=_beyond)


def _beyond(stage: type[Kernel[Any]]) -> bool:
    return stage().matrix_shape is not None


def _found(op: str) -> Iterator[type[Kernel[Any]]]:
    """Yield the stages that the modules of an op define."""
    package = import_module(f"{__name__}.{op}")
    for info in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__ and "follows" in vars(value):
                yield value


def _stages(op: str) -> dict[str, type[Any]]:
    """Return the stages of an op by name, in the order of the ladder."""
    return {stage.name: stage for stage in ladder({stage.name: stage for stage in _found(op)})}


STAGES: Lazy[str, dict[str, type[Any]]] = Lazy(OPS, _stages)  # by op
KERNELS: dict[str, type[Any]]  # the stages of gemm; this and the next two are found in __getattr__()
LADDER: tuple[type[Any], ...]  # webmm's own without matrix units
BEYOND: tuple[type[Any], ...]  # webmm's own on matrix units
REGISTERED: list[type[Kernel[Any]]] = []  # the stages from outside the package; webmm.plugins adds them


def __getattr__(name: str) -> Any:
    if name == "KERNELS":
        return STAGES["gemm"]
    if name in ("LADDER", "BEYOND"):
        own = (stage for stage in STAGES["gemm"].values() if stage not in REGISTERED)
        return tuple(stage for stage in own if _beyond(stage) == (name == "BEYOND"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def kernel_class(name: str, op: str = "gemm") -> type[Any]:
    """Return the op's kernel class called `name`; raises ConfigError for an unknown one, listing those that exist."""
    if op not in STAGES:
        raise ConfigError(f"unknown op {op!r}; choose from {', '.join(STAGES)}")
    if name not in STAGES[op]:
        raise ConfigError(f"unknown kernel {name!r}; choose from {', '.join(STAGES[op])}")
    return STAGES[op][name]


def depths(op: str = "gemm") -> dict[str, int]:
    """Return, for each stage of an op, how many branches of the ladder lead to it.

    Of the stages that follow the same one, the last stays on its branch, and the others begin branches of their own.
    """
    stages = STAGES[op]
    last = {cls.follows: name for name, cls in stages.items()}
    found: dict[str, int] = {}
    for name, cls in stages.items():
        found[name] = found.get(cls.follows, 0) + int(last[cls.follows] != name)
    return found


def branch(name: str, op: str = "gemm") -> str:
    """Return what stands before a stage in a list: spaces for branches that lead to it, └ where the last one begins."""
    inward = depths(op)
    depth = inward[name]
    if not depth:
        return ""
    begins = inward.get(STAGES[op][name].follows, 0) < depth
    return "  " * (depth - 1) + ("└ " if begins else "  ")


def label_of(record: Record) -> str:
    """Return the kernel of a record, and the settings in which it differs from the defaults."""
    if record.kernel not in STAGES.get(record.op, ()):
        return record.kernel
    default = STAGES[record.op][record.kernel]().config
    changed = [f"{name}={value}" for name, value in record.config.items() if default.get(name) != value]
    return " ".join([record.kernel, *changed])


def configure(name: str, settings: Mapping[str, str], op: str = "gemm", offered: Capabilities | None = None) -> Any:
    """Return the op's kernel called `name` with tunables set from text, such as {"bm": "64"}.

    The others are the stage's defaults, or those for a device whose capabilities are `offered`, if these go together.
    Raises ConfigError for an unknown op, kernel or tunable, and for a value that is not of the field's type.
    """
    cls = kernel_class(name, op)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values: dict[str, object] = {}
    for key, text in settings.items():
        if key not in fields:
            known = ", ".join(fields) or "it has none"
            raise ConfigError(f"{name} has no tunable {key!r}; its tunables: {known}")
        values[key] = _parse(f"{name}.{key}", text, fields[key].default)
    made = cls(**values)
    adapted = made if offered is None else dataclasses.replace(cls.on(offered), **values)
    return made if adapted.invalid() else adapted


def _parse(name: str, text: str, default: object) -> object:
    if not isinstance(default, int):
        return text
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"{name} takes an integer, not {text!r}") from error
