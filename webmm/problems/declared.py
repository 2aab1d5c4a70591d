"""Declared operations: those of `webmm.Reduction`, as rows beside the built-in ones; and ours, by name.

`DECLARATIONS` are var, std (of the population, as NumPy's are by default: divided by n), norm (√Σx²), all, any and
count_nonzero. `operation()` is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import functools
import numbers
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError
from webmm.problems.reduce import DECLARED, Operation
from webmm.wgsl import states
from webmm.wgsl.expressions import REAL, WHOLE
from webmm.wgsl.reductions import OWN, Reduction
from webmm.wgsl.terms import OURS, Declaration, Terms


def _given(declaration: Declaration) -> Reduction:
    d, single = declaration, declaration.names == ("v",)
    if single:
        return Reduction(d.map["v"], d.combine["v"], d.identity["v"], d.finish)
    return Reduction(d.map, d.combine, d.identity, d.finish)


DECLARATIONS: Mapping[str, Reduction] = {name: _given(declaration) for name, declaration in OURS.items()}


def operation(
    name: str,
    floats: Terms | None,
    integers: Terms | None,
    refused: tuple[str, str],
    reference: Callable[..., Any],
    none: Callable[[bool], float],
    states: Callable[[], Sequence[Operation]],
    joined: Callable[[Sequence[NDArray[Any]], int, bool], NDArray[Any]],
) -> Operation:
    """Return the row of an operation, from its expressions for each kind of elements, or why there are none."""
    known = [x for x in (floats, integers) if x is not None]
    return Operation(
        name,
        reference,
        0.0,
        sums=any(kind == REAL for x in known for kind in x.kinds.values()),
        integers=integers is not None,
        arithmetic=max(1.0, max([x.work for x in known]) / 2),
        declared=True,
        two=known[0].two,
        values=len(known[0].names),
        yields=(floats.kind if floats else "", integers.kind if integers else ""),
        refused=refused,
        none=none,
        states=None if any(x.positions for x in known) else states,
        joined=joined,
    )


_lock = threading.Lock()  # so that the operation of a name stays the same


def declared(given: Reduction, name: str = "") -> Operation:
    """Return the operation of a declaration, under its own name or `name`; the same one each time."""
    name = name or given.name
    with _lock:
        if name not in DECLARED:
            OWN.setdefault(name, given)
            DECLARED[name] = operation(
                name,
                *given.both,
                lambda x, *y: of_all(given, x, *y),
                lambda integers: of_none(given, integers),
                lambda: [declared(given.unfinished(each)) for each in given.names],
                lambda parts, length, integers: _joined(given, parts, length, integers),
            )
        return DECLARED[name]


def spread(name: str, ddof: float) -> str | Reduction:
    """Return var or std with the divisor n - `ddof`, as NumPy has it; raises ProblemError if `ddof` is no number."""
    if not isinstance(ddof, numbers.Real):
        raise ProblemError(f"ddof must be a number, not {ddof!r}")
    return _divided(name, float(ddof)) if ddof else name


@functools.lru_cache(maxsize=64)
def _divided(name: str, less: float) -> Reduction:
    ours = OURS[name]
    finish = ours.finish.replace("/ n", f"/ maximum(n - {less!r}, 0.0)")
    return Reduction(ours.map, ours.combine, ours.identity, finish)


def declaration_of(operation: Operation) -> Reduction:
    """Return what a declared operation was made of."""
    return OWN[operation.name]


def of_all(given: Reduction, x: NDArray[Any], *y: NDArray[Any]) -> NDArray[Any]:
    """Return the results along the last axis, in float64 or int32."""
    terms = given.terms(x)
    return states.finished(terms, states.reduced(terms, states.mapped(terms, x, *y)), x.shape[-1])


def of_none(given: Reduction, integers: bool) -> float:
    """Return the result over no elements."""
    terms = given.terms(np.zeros(1, np.int32 if integers else np.float64))
    return float(states.finished(terms, states.none(terms, (1,)), 0)[0])


def _joined(given: Reduction, found: Sequence[NDArray[Any]], length: int, integers: bool) -> NDArray[Any]:
    terms = given.terms(np.zeros(1, np.int32 if integers else np.float64))
    parts = {
        name: x.astype(np.int32 if terms.kinds[name] == WHOLE else np.float64)
        for name, x in zip(given.names, found, strict=True)
    }
    return states.finished(terms, states.reduced(terms, parts), length)


for _name, _reduction in DECLARATIONS.items():
    declared(_reduction, _name)
