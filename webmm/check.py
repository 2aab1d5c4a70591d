"""What `webmm check` has compilers read: every text that the ops have, in the dialect of each compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webmm.cases import OPS
from webmm.kernels.base import Kernel
from webmm.render import Dialect, expressible, render


def texts(dialect: Dialect) -> dict[str, str]:
    """Return each stage of each op on the op's examples, as far as the dialect has words for it: labels by text."""
    labels: dict[str, str] = {}
    for op in OPS.values():
        for words, kernel, problem in op.shaders():
            for step in kernel.dispatches:
                if dialect not in step.not_in and expressible(step, problem, dialect):
                    labels.setdefault(render(step, problem, dialect).wgsl, f"{step} {words}")
    return labels


def inexpressible(dialect: Dialect) -> Iterator[Kernel[Any]]:
    """Yield the stages that the dialect has no words for."""
    return (cls() for op in OPS.values() for cls in op.stages if dialect in cls.not_in)
