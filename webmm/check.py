"""What `webmm check` has compilers read: every text that the ops have, in the dialect of each compiler."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from webmm.cases import OPS
from webmm.kernels import REGISTERED
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.render import Dialect, expressible, render

Shaders = Iterable[tuple[str, Kernel[Any], Problem]]  # in words, and what is rendered


def shipped() -> Shaders:
    """Yield each of webmm's stages on the examples of its op."""
    return itertools.chain.from_iterable(op.shaders() for op in OPS.values())


def registered() -> Shaders:
    """Yield likewise the stages from outside the package."""
    for stage in REGISTERED:
        for words, problem in OPS[stage.op].examples():
            if stage().unsuited(problem) is None:
                yield words, stage(), problem


def texts(dialect: Dialect, shaders: Shaders | None = None) -> dict[str, str]:
    """Return what `shaders` render to, webmm's own by default, as far as the dialect has words for it: labels by text.

    Raises ShaderError where a template is at fault.
    """
    labels: dict[str, str] = {}
    for words, kernel, problem in shipped() if shaders is None else shaders:
        for step in kernel.dispatches:
            if dialect not in step.not_in and expressible(step, problem, dialect):
                labels.setdefault(render(step, problem, dialect).wgsl, f"{step} {words}")
    return labels


def inexpressible(dialect: Dialect) -> Iterator[Kernel[Any]]:
    """Yield the stages that the dialect has no words for."""
    return (cls() for op in OPS.values() for cls in op.stages if dialect in cls.not_in)
