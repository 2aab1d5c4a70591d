"""Test cases of each op for benchmarks, the self-test and the tuner: sizes, operands, and expected results.

The pure methods of rows (`Op.PURE`) are in the translated subset (docs/page.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from webmm import problems
from webmm.cases.base import Op
from webmm.errors import ConfigError

OPS: dict[str, Op[Any]] = {name: import_module(f"{__name__}.{name}").OP() for name in problems.OPS}


def op_of(name: str, variant: str = "") -> Op[Any]:
    """Return the op called `name`, or NAME:VARIANT; raises ConfigError, with the existing names, if it is unknown."""
    name, _, named = name.partition(":")
    if name not in OPS:
        raise ConfigError(f"unknown op {name!r}; choose from {', '.join(OPS)}")
    op, variant = OPS[name], named or variant
    if not variant:
        return op
    if not op.knows(variant):
        known = ", ".join(filter(None, op.variants)) or "none"
        raise ConfigError(f"unknown variant {variant!r} of op {name}; choose from {known}")
    return type(op)(variant)
