"""Drawings: SVG files that functions make from kernels' own numbers.

A drawing is a function that returns an `Svg`; one of a stage takes the kernel first. Modules of this package register
theirs with `@drawn`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from webmm.learn.drawings.svg import Svg

DRAWINGS: dict[str, Callable[..., Svg]] = {}


def drawn(function: Callable[..., Svg]) -> Callable[..., Svg]:
    """Make a function a drawing of its name."""
    DRAWINGS[function.__name__] = function
    return function


def find() -> dict[str, Callable[..., Svg]]:
    """Return all drawings by name."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return DRAWINGS
