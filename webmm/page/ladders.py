"""The prepared ladders of the ops' rows, whose problems have known results.

`bundle/ladders.js` lists them, with the parameters of their inputs, the kernels of the ladder, and the fingerprint of
the result (`webmm.cases.exact`).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from webmm.cases import OPS
from webmm.cases.exact import Ladder, Size
from webmm.choose import COLUMNS, adapted
from webmm.dtypes import DType
from webmm.kernels import STAGES
from webmm.kernels.base import Capabilities, Kernel
from webmm.page import core
from webmm.page.script import runtime
from webmm.page.script.program import Program
from webmm.page.script.values import value
from webmm.problems.base import Problem

NOTHING = Capabilities("", {}, frozenset())  # browsers lack float64


def every() -> list[Ladder]:
    """Return the ladders of all ops, plugins included."""
    return list(itertools.chain(*(op.ladders for op in OPS.values())))


def explained() -> list[int]:
    """Return the numbers of the ladders that Explain shows: those of stages, if one is in none before them."""
    known: set[type[Kernel[Any]]] = set()
    numbers = []
    for i, ladder in enumerate(every()):
        own = {type(kernel) for kernels in ladder.kernels.values() for kernel in kernels}
        stages = all(kernel in STAGES[kernel.op].values() for kernel in own)
        if stages and not own <= known:
            numbers.append(i)
        known |= own
    return numbers


def made_for_gpus(problem: Problem) -> Iterator[Kernel[Any]]:
    """Yield Python's candidates for `problem` on a typical GPU, best first: with subgroups, then without."""
    for lanes in (32, 0):
        described = dataclasses.replace(NOTHING, subgroup_size=lanes)
        device: Any = SimpleNamespace(info=SimpleNamespace(kind="discrete"), capabilities=described)
        column = COLUMNS[problem.op]
        made = list(column.candidates(problem, device))
        yield from made
        if not made:
            model = adapted.typical(device)
            field = list(column.field(problem, device, model.machine.multiprocessors))
            yield from (kernel for kernel, _, _ in model.best(field, problem))


def stages(ladder: Ladder, kind: str, problem: Problem) -> list[Kernel[Any]]:
    """Return the stages of a ladder for a problem, for a GPU with the settings that Python would choose."""
    kernels = ladder.kernels[kind]
    if kind != "gpu":
        return list(kernels)
    usual = list(made_for_gpus(problem))
    return [_as_chosen(kernel, kernels, usual) for kernel in kernels]


def _as_chosen(kernel: Kernel[Any], kernels: tuple[Kernel[Any], ...], made: list[Kernel[Any]]) -> Kernel[Any]:
    """Return a kernel with the settings that Python would choose, but its own where kernels of its stage differ."""
    same_stage = next((each for each in made if type(each) is type(kernel)), kernel)
    others = [each.config for each in kernels if type(each) is type(kernel)]
    own = {name: x for name, x in kernel.config.items() if any(other[name] != x for other in others)}
    return dataclasses.replace(same_stage, **own)


def module(program: Program) -> str:
    """Return a JavaScript module of the ladders, with problems and kernels as exported by `program`."""

    def text(x: Any) -> str:
        return value(x, lambda name: f"{program.homes[str(name)][:-3]}.{program.identifier(name)}", "")

    def problem(ladder: Ladder, kind: str, size: Size, dtype: DType) -> str:
        case = ladder.case(size, dtype)
        fields = {
            "problem": text(case.problem),
            "inputs": json.dumps([each.to_json() for each in case.inputs]),
            "fingerprint": text(ladder.fingerprint(size, dtype)),
            "kernels": text(stages(ladder, kind, case.problem)),
        }
        return f"{{ {', '.join(f'{name}: {each}' for name, each in fields.items())} }}"

    def problems(ladder: Ladder, kind: str) -> str:
        return ",\n".join(problem(ladder, kind, size, dtype) for dtype in ladder.dtypes for size in ladder.sizes[kind])

    rows = (
        f"{{ title: {text(ladder.title)}, others: {text(ladder.others)}, "
        + ", ".join(f"{kind}: [{problems(ladder, kind)}]" for kind in ladder.sizes)
        + " }"
        for ladder in every()
    )
    modules = "".join(f'import * as {file[:-3]} from "./{file}";\n' for file in ("core.js", *core.OF_OPS))
    head = f'import * as $ from "../python.js";\n{modules}'
    return runtime.imported(head + "export default [\n" + ",\n".join(rows) + "\n];\n")
