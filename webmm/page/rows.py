"""What the page knows of each op: its row.

`bundle/core.js` has the data of the rows that the page needs at once (`DATA`); `bundle/ops.js` has the rows as classes
with their pure methods (`Op.PURE`), and what is shown of them. All of it includes the ops of plugins.
What it names for the page is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webmm.cases import OPS
from webmm.cases.base import Exhibit, Op
from webmm.cases.streaming import StreamingOp
from webmm.dtypes import F32
from webmm.errors import ConfigError
from webmm.measure.records import Record


@dataclass(frozen=True)
class Shown:
    """An exhibit of the op called `op`; `checked` tells whether the page can check its results."""

    op: str
    exhibit: Exhibit
    checked: bool


ROWS: dict[str, type[Op[Any]]]  # by name; this and the next four are found in __getattr__(), since plugins add to them
DATA: dict[str, list[Any]]  # of each row: its unit, `axes`, and a and b of its rate
SHOWN: tuple[Shown, ...]
FORMS: tuple[str, ...]  # the ops of one array that a visitor can compute, as OP or OP:VARIANT
FIELDS: dict[str, tuple[str, ...]]  # the fields of problems in `webmm/shaders`: the parameters of `described()`


def __getattr__(name: str) -> Any:
    if name == "ROWS":
        return {key: type(op) for key, op in OPS.items()}
    if name == "DATA":
        return {key: [op.unit, op.axes, *rate(op)] for key, op in OPS.items()}
    if name == "SHOWN":
        return tuple(Shown(key, each, checks(op)) for key, op in OPS.items() for each in op.exhibits)
    if name == "FORMS":
        known = ((key, variant) for key, op in OPS.items() if checks(op) for variant in op.variants or ("",))
        return tuple(f"{key}:{variant}".rstrip(":") for key, variant in known)
    if name == "FIELDS":
        described = {key: getattr(op, "described", None) for key, op in OPS.items()}
        return {key: tuple(inspect.signature(method).parameters) for key, method in described.items() if method}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def checks(op: Op[Any]) -> bool:
    """Return whether the page can check results of an op: it has a reference that is translated."""
    return isinstance(op, StreamingOp) and type(op).reference is not StreamingOp.reference


def omitted() -> Iterator[str]:
    """Yield the methods of rows that the page does not have, as module.Class.method."""
    classes = {cls for op in OPS.values() for cls in type(op).__mro__ if issubclass(cls, Op)}
    for cls in sorted(classes, key=lambda each: each.__qualname__):
        yield from (f"{cls.__module__}.{cls.__name__}.{name}" for name in vars(cls) if name not in Op.PURE)


def titles() -> list[list[Any]]:
    """Return the title of each of SHOWN, and whether the page can check it."""
    return [[shown.exhibit.title, shown.checked] for shown in __getattr__("SHOWN")]


def rate(op: Op[Any]) -> list[float]:
    """Return what a record's speed in GB/s is per 10⁹ operations/s and byte of an element: a + b / n, as [a, b].

    [] for a unit of operations. Raises ConfigError if the op's rate is of another form.
    """
    if op.unit != "GB/s":
        return []
    about = {"dtype": F32.name, "engine": "", "adapter": "", "backend": "", "driver": "", "version": ""}
    records = (Record(op.name, "", 2, n, 1, 1, **about, gflops=1.0, variant=op.variant) for n in (1, 2, 32))  # type: ignore[arg-type]
    one, two, more = (op.rate(record) / F32.itemsize for record in records)
    b = 2 * (one - two)
    if abs(one - b + b / 32 - more) > 1e-9:
        raise ConfigError(f"the page cannot compute the rate of op {op.name}: GB/s per GFLOP/s must be a + b / n")
    return [one - b, b]
