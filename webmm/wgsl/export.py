"""Shaders for other programs: texts whose headers state their contract, and everything that a host needs as data.

A text is what runs, below a header that says for which sizes it is right, where elements are, and how to dispatch it.
The sizes, the places and the rules follow from the kernel (`webmm.kernels.sizes`).

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from webmm.kernels.base import Kernel
from webmm.kernels.sizes import valid_for
from webmm.kernels.subgroups import SIZE_CONTROL
from webmm.problems.base import Problem
from webmm.wgsl.render import Dialect, Shader, params_bytes, render
from webmm.wgsl.subgroups import contract

WIDTH = 117  # columns of a header's line after "// "


def stage(
    kernel: Kernel[Any],
    problem: Problem,
    dialect: Dialect,
    *,
    general: bool = False,
    sized: bool = True,
    pinned: bool = False,
) -> dict[str, Any]:
    """Return a stage as data in JSON types: its dispatches in order, buffers and scratch, and for which sizes it holds.

    The texts are specialised for `problem`, or with `general` right at any sizes. With `sized`, workgroups, uniforms,
    and the sizes of buffers and scratch are given for `problem` as numbers, beside the rules. With `pinned`, dispatches
    that use subgroups ask for their size. The main dispatch's keys are also those of the result. Raises as `render()`
    does.
    """
    shaders = [
        render(each, problem, dialect, general=general, pinned=pinned and (each.subgroup > 0 or each is kernel))
        for each in kernel.dispatches
    ]
    dispatches = [_dispatch(shader, kernel, problem, sized) for shader in shaders]
    main = dispatches[len(kernel.before)]
    return {
        **main,
        "op": problem.op,
        "valid_for": valid_for(each for shader in shaders for each in shader.kernel.conditions(shader.spec)),
        "dispatches": dispatches,
        "buffers": [_buffer(extent, kernel.places(problem), sized) for extent in problem.buffers()],
        "scratch": list(_scratch(kernel, problem, sized)),
    }


def with_contract(shader: Shader, kernel: Kernel[Any], problem: Problem) -> str:
    """Return the text of a dispatch of `kernel` with its contract at the end of its header; the rest is what runs."""
    lines = shader.wgsl.split("\n")
    end = next((i for i, line in enumerate(lines) if not line.startswith("//")), 0)
    contract = [f"// {line}".rstrip() for line in _contract(shader, kernel, problem)]
    return "\n".join([*lines[:end], *(["//"] if end else []), *contract, *([] if end else [""]), *lines[end:]])


def _dispatch(shader: Shader, kernel: Kernel[Any], problem: Problem, sized: bool) -> dict[str, Any]:
    data = shader.to_json()
    data["wgsl"] = with_contract(shader, kernel, problem)
    data["valid_for"] = valid_for(shader.kernel.conditions(shader.spec))
    if sized:
        data["uniform"] = list(params_bytes(shader.kernel, problem))
        data["workgroups"] = list(shader.kernel.dispatch(problem))
    return data


def _buffer(extent: Any, places: dict[str, tuple[str, str]], sized: bool) -> dict[str, Any]:
    place, elements = places.get(extent.name, (None, None))
    rules = {"place": place, "rule": elements}
    numbers = {"elements": extent.end} if sized else {}
    return {"name": extent.name, "dtype": extent.dtype.name, **numbers, "written": extent.written, **rules}


def _scratch(kernel: Kernel[Any], problem: Problem, sized: bool) -> Iterator[dict[str, Any]]:
    rules = kernel.scratch_rule(problem)
    for each in kernel.scratch(problem):
        yield {**(vars(each) if sized else {"name": each.name}), "rule": rules.get(each.name)}


def _contract(shader: Shader, kernel: Kernel[Any], problem: Problem) -> Iterator[str]:
    """Yield the lines of the contract."""
    step, count = shader.kernel, len(kernel.dispatches)
    if count > 1:
        number = kernel.dispatches.index(step) + 1
        yield from _wrapped(f"Dispatch {number} of {count} of {kernel.name}; bindings of the same name share a buffer.")
    yield from _wrapped(f"Shapes: {_shapes(shader)}.")
    yield from _wrapped("Layout, with sizes in elements from the uniform, and z the number of a matrix of the batch:")
    bound = {binding.name for binding in shader.bindings}
    for name, (place, _) in kernel.places(problem).items():
        if name in bound:
            yield from _wrapped(f"{problem.element_of(name)} is element {place} of {name}", "  ")
    for name, rule in kernel.scratch_rule(problem).items():
        if name in bound:
            words = rule if isinstance(rule, str) else ", ".join(f"{side} {each}" for side, each in rule.items())
            yield from _wrapped(f"{name} is scratch: {words}{' bytes' if isinstance(rule, str) else ' texels'}", "  ")
    params = shader.params
    members = ", ".join(f"{each.name} {each.offset}" for each in params.members)
    yield from _wrapped(f"Uniform: {params.size} bytes, with the members at bytes: {members}.")
    rule = step.grid_rule(shader.spec)
    if rule:
        yield from _wrapped(f"Grid: {rule['rule']}.")
    if subgroups := contract(step, SIZE_CONTROL in shader.features):
        yield from _wrapped(subgroups)


def _shapes(shader: Shader) -> str:
    """Return for which sizes a text is right, in words."""
    found = valid_for(shader.kernel.conditions(shader.spec))
    return "only " + "; ".join(_grouped(found)) if found else "any sizes, strides and offsets"


def _grouped(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return conditions in words, with all sizes that have the same one together."""
    sizes: dict[str, list[str]] = {}
    for size, condition in found.items():
        sizes.setdefault(_words(condition), []).append(size)
    return [f"{', '.join(names)} {words}" for words, names in sizes.items()]


def _words(condition: dict[str, Any]) -> str:
    kinds = {"multiple_of": "a multiple of", "at_least": "at least", "at_most": "at most", "equals": "equal to"}
    words = " and ".join(f"{kind} {condition[key]}" for key, kind in kinds.items() if key in condition)
    return words + (f" where {condition['where']}" if "where" in condition else "")


def _wrapped(words: str, indent: str = "") -> Iterable[str]:
    """Return a sentence in lines of at most WIDTH columns; further lines are indented by two more."""
    lines: list[str] = []
    line = ""
    for word in words.split(" "):
        if line and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        start = indent if not lines else f"{indent}  "
        line = f"{line} {word}" if line else start + word
    return [*lines, line]
