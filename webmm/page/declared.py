"""Declared reductions on the page: states are evaluated element by element, in Python by NumPy (`webmm.wgsl.states`).

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from webmm.problems.declared import operation
from webmm.problems.reduce import DECLARED, Operation
from webmm.wgsl.compiler import Numbers
from webmm.wgsl.grammar import tree_of
from webmm.wgsl.terms import FAR, SAMPLES, Apply, Declaration, Terms, check_combine, terms_of_kinds

Made = Callable[[str, Terms | None, Terms | None], object]  # is called once for each name, with its expressions


def declared(name: str, texts: Declaration, numbers: Numbers, apply: Apply, made: Made) -> Operation:
    """Return the operation of a declaration, the same one each time; raises ProblemError if its texts are wrong."""
    if name in DECLARED:
        return DECLARED[name]
    texts.check()
    floats, integers, refused = terms_of_kinds(texts, tree_of, numbers)
    near, far = [[x if floats else int(x) for x in samples] for samples in (SAMPLES, FAR)]
    known: Any = floats or integers
    check_combine(texts, known, near, far, apply)

    def none(whole: bool) -> float:
        terms: Any = integers if whole else floats
        return float(terms.finished(terms.none, 0, apply))

    def states() -> list[Operation]:
        each = [(value, replace(texts, finish=value)) for value in texts.names]
        return [declared(f"own_{name}_{value}", unfinished, numbers, apply, made) for value, unfinished in each]

    def joined(parts: Sequence[Any], length: int, whole: bool) -> Any:
        """Return the result of one element, given those of the parts for each value of the state."""
        terms: Any = integers if whole else floats
        state = terms.none
        for values in zip(*parts, strict=True):
            state = terms.combined(state, dict(zip(texts.names, values, strict=True)), apply)
        return terms.finished(state, length, apply)

    reference: Any = None  # of the page's results: Python's
    made(name, floats, integers)
    DECLARED[name] = operation(name, floats, integers, refused, reference, none, states, joined)
    return DECLARED[name]
