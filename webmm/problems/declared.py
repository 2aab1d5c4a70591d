"""Declared operations: those of `webmm.Reduction`, as rows beside the built-in ones; and ours, by name.

`DECLARATIONS` are var, std (of the population, as NumPy's are by default: divided by n), norm (√Σx²), all, any and
count_nonzero.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError
from webmm.problems.reduce import DECLARED, Operation
from webmm.wgsl.expressions import REAL, WHOLE
from webmm.wgsl.reductions import OWN, Reduction
from webmm.wgsl.states import Terms

# Mean, sum of squared deviations and count, combined as by Chan, Golub and LeVeque (1979).
MOMENTS = {"mean": "float32(x)", "m2": "0.0", "n": "1.0"}
JOINED = {
    "mean": "a.mean + (b.mean - a.mean) * (b.n / maximum(a.n + b.n, 1.0))",
    "m2": "a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * (a.n * (b.n / maximum(a.n + b.n, 1.0)))",
    "n": "a.n + b.n",
}
NOTHING = {"mean": 0.0, "m2": 0.0, "n": 0.0}
DECLARATIONS = {
    "var": Reduction(MOMENTS, JOINED, NOTHING, "m2 / n"),
    "std": Reduction(MOMENTS, JOINED, NOTHING, "sqrt(m2 / n)"),
    "norm": Reduction("float32(x) * float32(x)", "a + b", 0.0, "sqrt(v)"),
    "all": Reduction("int32(bool(x))", "minimum(a, b)", 1, "v != 0"),
    "any": Reduction("int32(bool(x))", "maximum(a, b)", 0, "v != 0"),
    "count_nonzero": Reduction("int32(bool(x))", "a + b", 0),
}


_lock = threading.RLock()  # the states of an operation are operations, too


def declared(given: Reduction, name: str = "") -> Operation:
    """Return the operation of a declaration, under its own name or `name`; the same one each time."""
    with _lock:  # another thread must not find one without its states
        return DECLARED.get(name or given.name) or _declare(given, name or given.name)


def _declare(given: Reduction, name: str) -> Operation:
    both = given.of_floats, given.of_integers
    kinds = [x.kind if isinstance(x, Terms) else "" for x in both]
    refused = [str(x) if isinstance(x, ProblemError) else "" for x in both]
    known = [x for x in both if isinstance(x, Terms)]
    operation = Operation(
        name,
        lambda x: of_all(given, x),
        0.0,
        sums=REAL in (kind for x in known for kind in x.kinds.values()),
        integers=isinstance(given.of_integers, Terms),
        arithmetic=max(1.0, max(x.work for x in known) / 2),
        declared=True,
        values=len(given.names),
        yields=(kinds[0], kinds[1]),
        refused=(refused[0], refused[1]),
    )
    OWN.setdefault(name, given)
    DECLARED[name] = operation  # before its states, one of which may be itself
    if given.positions:
        return operation
    states = tuple(declared(given.unfinished(each)).name for each in given.names)
    DECLARED[name] = replace(operation, states=states, joined=_joined(given))
    return DECLARED[name]


def declaration_of(operation: Operation) -> Reduction:
    """Return what a declared operation was made of."""
    return OWN[operation.name]


def of_all(given: Reduction, x: NDArray[Any]) -> NDArray[Any]:
    """Return the results along the last axis, in float64 or int32."""
    terms = given.terms(x)
    return terms.finished(terms.reduced(terms.mapped(x)), x.shape[-1])


def of_none(given: Reduction, integers: bool) -> float:
    """Return the result over no elements."""
    terms = given.terms(np.zeros(1, np.int32 if integers else np.float64))
    return float(terms.finished({name: np.asarray([x]) for name, x in terms.identity.items()}, 0)[0])


def kinds_of(operation: Operation, integers: bool) -> list[str]:
    """Return the kinds, f32 or i32, of the values of a partial result."""
    terms = declaration_of(operation).terms(np.zeros(1, np.int32 if integers else np.float64))
    return list(terms.kinds.values())


def _joined(given: Reduction) -> Callable[[list[NDArray[Any]], int, bool], NDArray[Any]]:
    def joined(states: list[NDArray[Any]], length: int, integers: bool) -> NDArray[Any]:
        terms = given.terms(np.zeros(1, np.int32 if integers else np.float64))
        parts = {
            name: x.astype(np.int32 if terms.kinds[name] == WHOLE else np.float64)
            for name, x in zip(given.names, states, strict=True)
        }
        return terms.finished(terms.reduced(parts), length)

    return joined


for _name, _given in DECLARATIONS.items():
    declared(_given, _name)
