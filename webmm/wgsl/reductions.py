"""Reductions of your own: what to do with each element, how to combine two partial results, how to finish.

A declaration has four expressions (webmm/wgsl/expressions.py). Each is evaluated by NumPy, for references, and compiled
to WGSL: `Reduction.template` is the file that an operation in shaders/reduce/operations/ would be.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError
from webmm.wgsl.expressions import NUMBERS, shown, tree_of
from webmm.wgsl.states import apply
from webmm.wgsl.terms import EXPORTED, FAR, SAMPLES, Declaration, Terms, check_combine, terms_of_kinds


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduction of your own, for `webmm.reduce(x, mine, axis)`, or of two arrays, `webmm.reduce(x, mine, axis, y=y)`.

    - `map`: the partial result of one element: an expression of `x`, of `i`, its position along the axis, and of `y`,
      the element of a second array, if there is one.
    - `combine`: that of two partial results, an expression of `a` and `b`. The order is not defined, so that it must be
      associative and commutative, but for rounding.
    - `identity`: the partial result of no elements, a number that changes nothing when it is combined.
    - `finish`: the result, an expression of the partial result `v` and of the number of elements `n`; by default `v`.

    For a state of up to four values, the first three are dictionaries with the same keys, the names of the values: in
    `combine`, a value is `a.NAME` or `b.NAME`, in `finish` it is NAME. Expressions may have + - * /, comparisons,
    & | ~ of booleans, exp, log, sqrt, tanh, abs, maximum, minimum, isnan, float32, int32, bool and where(condition,
    yes, no). They are computed in float32, or for int32 in int32.

    Two declarations are equal if their expressions are. Raises ProblemError for an expression that is not allowed,
    and for an `identity` or a `combine` that, on samples, is none.

    Example: ``webmm.Reduction(map="x * x", combine="a + b", identity=0.0, finish="sqrt(v / n)")``
    """

    map: str | Mapping[str, str]
    combine: str | Mapping[str, str]
    identity: float | Mapping[str, float]
    finish: str = ""
    name: str = field(init=False, repr=False)  # identifies it in problems and shaders

    def __post_init__(self) -> None:
        several = isinstance(self.map, Mapping)
        if any(isinstance(each, Mapping) != several for each in (self.combine, self.identity)):
            raise ProblemError("map, combine and identity must all be single, or dictionaries with the same keys")
        self.declaration.check()
        words = json.dumps([self._of(self.map), self._of(self.combine), {**self._numbers}, self.finish])
        object.__setattr__(self, "name", f"own_{hashlib.sha256(words.encode()).hexdigest()[:12]}")
        floats, _, _ = self.both
        near, far = (np.array(x, np.float64 if floats else np.int32) for x in (SAMPLES, FAR))
        with np.errstate(all="ignore"):
            check_combine(self.declaration, self.terms(near), list(near), list(far), apply)
        OWN[self.name] = self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reduction) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @functools.cached_property
    def declaration(self) -> Declaration:
        """Its texts."""
        return Declaration(self._of(self.map), self._of(self.combine), self._of(self.identity), self.finish)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values of the state."""
        return self.declaration.names

    @functools.cached_property
    def both(self) -> tuple[Terms | None, Terms | None, tuple[str, str]]:
        """The expressions for float elements and for int32, and why there are none for one of them."""
        return terms_of_kinds(self.declaration, tree_of, NUMBERS)

    def terms(self, x: NDArray[Any]) -> Terms:
        """Return the expressions for the elements of `x`; raises ProblemError if there are none."""
        floats, integers, refused = self.both
        found, why = (integers, refused[1]) if x.dtype.kind == "i" else (floats, refused[0])
        if found is None:
            raise ProblemError(why)
        return found

    @property
    def template(self) -> str:
        """The operation as a template; what it has in common with others is shaders/common/reduce/declared.wgsl."""
        floats, integers = ({} if terms is None else terms.wgsl for terms in self.both[:2])
        return (
            f"{{# A declaration: {self.name}. #}}\n"
            '{% import "common/reduce/elements.wgsl" as elements with context %}\n'
            f"{{% set of_floats = {json.dumps(floats)} %}}\n"
            f"{{% set of_integers = {json.dumps(integers)} %}}\n"
            "{% set state = of_integers if elements.integers else of_floats %}\n"
            '{% import "common/reduce/declared.wgsl" as declared with context %}\n'
            + "".join(f"{{% set {name} = declared.{name} %}}\n" for name in EXPORTED)
        )

    def unfinished(self, name: str) -> Reduction:
        """Return the reduction whose result is a value of the state."""
        return Reduction(self.map, self.combine, self.identity, name)

    def _of(self, given: Any) -> dict[str, Any]:
        return dict(given) if isinstance(given, Mapping) else {"v": given}

    @property
    def _numbers(self) -> dict[str, float]:
        try:
            return {name: float(x) for name, x in self._of(self.identity).items()}
        except (TypeError, ValueError, OverflowError) as error:
            raise ProblemError(f"identity must be numbers, not {shown(self.identity)}") from error


OWN: dict[str, Reduction] = {}  # by name; never removed, since cached problems and shaders refer to them
