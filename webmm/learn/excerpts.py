"""Excerpts of shaders: the lines between `//# NAME` and `//# end` of a template, rendered with small tunables."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from webmm.errors import ConfigError
from webmm.kernels.base import Kernel
from webmm.learn.directives import directive
from webmm.learn.kernels import problem_for, stage_of
from webmm.wgsl.render import DEBUG_LINE, filled_in, render, tidy

MOST_LINES = 40
SIZE = "1024"  # of the problem: tiles divide it, so that no edge is in the text


@directive
def code(
    stage: str, region: str, size: str = SIZE, dtype: str = "float32", precision: str = "", **tunables: Any
) -> str:
    """Return a region of a stage's shader as a block of code, headed by the stage's name."""
    op = str(tunables.pop("op", "")) or stage  # a variant, such as op=reduce:max
    kernel = stage_of(stage, **tunables)
    problem: Any = problem_for(op, size, dtype)
    if precision:
        problem = replace(problem, precision=precision)
    lines = excerpt(kernel, problem, region)
    return f"**{kernel.name}**\n\n```wgsl\n{lines}\n```"


def excerpt(kernel: Kernel[Any], problem: Any, region: str) -> str:
    """Return the lines of a region, without the indentation that they share; raises ConfigError if it is not there."""
    kernels = [kernel, *(each for each in kernel.dispatches if each is not kernel)]
    for each in kernels:
        shader = render(each, problem, "naga" if each.matrix_shape is None else "tint")
        text = tidy(DEBUG_LINE.sub("", filled_in(each, shader.values)))
        found = re.search(rf"^ *//# {re.escape(region)}\n(.*?)^ *//# end\n", text, re.MULTILINE | re.DOTALL)
        if found:
            return _checked(found[1], kernel, region)
    raise ConfigError(f"the template of {kernel.name} has no region {region!r}: lines between //# {region} and //# end")


def _checked(text: str, kernel: Kernel[Any], region: str) -> str:
    lines = re.sub(r"^ *//#.*\n", "", text, flags=re.MULTILINE).rstrip().split("\n")
    if len(lines) > MOST_LINES:
        raise ConfigError(f"region {region!r} of {kernel} has {len(lines)} lines; a chapter shows {MOST_LINES} at most")
    indent = min(len(line) - len(line.lstrip()) for line in lines if line)
    return "\n".join(line[indent:] for line in lines)
