"""The shaders that `webmm check` validates: every variant of every kernel, in each compiler's dialect."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from webmm.cases import OPS, fragments
from webmm.errors import ShaderError
from webmm.kernels import REGISTERED
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.wgsl.compilers import refused
from webmm.wgsl.places import places
from webmm.wgsl.render import Dialect, expressible, render

Shaders = Iterable[tuple[str, Kernel[Any], Problem]]  # a description, and what is rendered


def shipped() -> Shaders:
    """Yield webmm's stages, each with the example problems of its op, and those of matrix units of every vendor."""
    return itertools.chain(*(op.shaders() for op in OPS.values()), fragments.shaders())


def registered() -> Shaders:
    """Yield the stages from outside the package, each with the example problems of its op."""
    for stage in REGISTERED:
        for words, problem in OPS[stage.op].examples():
            if stage().unsuited(problem) is None:
                yield words, stage(), problem


def texts(dialect: Dialect, shaders: Shaders | None = None) -> dict[str, str]:
    """Return the labels of `shaders` (default: webmm's) by WGSL text, without those the dialect cannot express.

    Raises ShaderError if a template cannot be rendered.
    """
    labels: dict[str, str] = {}
    for words, kernel, problem in shipped() if shaders is None else shaders:
        for step in kernel.dispatches:
            if expressible(step, problem, dialect):
                labels.setdefault(render(step, problem, dialect).wgsl, f"{step} {words}")
    return labels


def located(error: ShaderError, shaders: Shaders) -> ShaderError:
    """Return the error of one of `shaders` with the place in a template that its compiler means, if it is found."""
    for (_, kernel, problem), dialect in itertools.product(shaders, get_args(Dialect)):
        for step in kernel.dispatches:
            if expressible(step, problem, dialect):
                shader = render(step, problem, dialect)
                if shader.wgsl == error.wgsl:
                    return refused(error.what, error.said, error.wgsl, places(shader))
    return error


def inexpressible(dialect: Dialect) -> Iterator[Kernel[Any]]:
    """Yield the stages that the dialect cannot express."""
    return (cls() for op in OPS.values() for cls in op.stages if dialect in cls.not_in)
