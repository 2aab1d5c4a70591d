"""Reductions of your own: what to do with each element, how to combine two partial results, how to finish.

A declaration has four expressions (webmm/wgsl/expressions.py). Each is evaluated by NumPy, for references, and compiled
to WGSL: `Reduction.template` is the file that an operation in shaders/reduce/operations/ would be.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError
from webmm.wgsl.expressions import REAL, WHOLE, parsed, shown
from webmm.wgsl.states import Terms

MOST_VALUES = 4  # of a state: 16 bytes of workgroup memory per invocation
SAMPLES = np.array([0.5, -1.25, 2.0, 0.75, 1.0, -0.5, 3.0, 3.0])  # at which combine is checked, neighbours also equal
FAR = np.array([-1e4, -60.0, 60.0, 1e4])  # and identity: -100 changes nothing of SAMPLES in a maximum


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduction of your own, for `webmm.reduce(x, mine, axis)`.

    - `map`: the partial result of one element: an expression of `x`, and of `i`, its position along the axis.
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
        if any(list(each) != list(self.names) for each in (self._of(self.combine), self._of(self.identity))):
            raise ProblemError(f"map, combine and identity must have the same keys in the same order: {self.names}")
        if not 1 <= len(self.names) <= MOST_VALUES:
            raise ProblemError(f"a state has 1 to {MOST_VALUES} values, not {len(self.names)}")
        for name in self.names:
            if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
                raise ProblemError(f"{name!r} cannot name a value of the state: use letters and digits")
        if several and not self.finish:
            raise ProblemError(
                f"finish is missing: an expression of {', '.join(self.names)}, and of n unless it is one"
            )
        texts = *self._of(self.map).values(), *self._of(self.combine).values(), self.finish
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise ProblemError(f'{wrong[0]!r} is no expression: map, combine and finish are texts, such as "x * x"')
        words = json.dumps([self._of(self.map), self._of(self.combine), {**self._numbers}, self.finish])
        object.__setattr__(self, "name", f"own_{hashlib.sha256(words.encode()).hexdigest()[:12]}")
        if all(isinstance(each, ProblemError) for each in (self.of_floats, self.of_integers)):
            assert isinstance(self.of_floats, ProblemError)
            raise self.of_floats
        self._check()
        OWN[self.name] = self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reduction) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values of the state."""
        return tuple(self.map) if isinstance(self.map, Mapping) else ("v",)

    @functools.cached_property
    def of_floats(self) -> Terms | ProblemError:
        """The expressions for float elements, or why there are none."""
        return self._terms(REAL)

    @functools.cached_property
    def of_integers(self) -> Terms | ProblemError:
        """Those for int32."""
        return self._terms(WHOLE)

    def terms(self, x: NDArray[Any]) -> Terms:
        """Return the expressions for the elements of `x`; raises ProblemError if there are none."""
        found = self.of_integers if x.dtype.kind == "i" else self.of_floats
        if isinstance(found, ProblemError):
            raise found
        return found

    @property
    def positions(self) -> bool:
        """Whether an element's position matters."""
        texts = self._of(self.map).values()
        return any(isinstance(node, ast.Name) and node.id == "i" for text in texts for node in ast.walk(parsed(text)))

    @property
    def template(self) -> str:
        """The operation as a template; what it has in common with others is shaders/common/reduce/declared.wgsl."""
        both = {name: getattr(self, f"of_{name}") for name in ("floats", "integers")}
        known = {name: {} if isinstance(x, ProblemError) else x.wgsl for name, x in both.items()}
        exported = ("fields", "types", "at_once", "yields", "functions", "lift", "result", "in_subgroup")
        return (
            f"{{# A declaration: {self.name}. #}}\n"
            '{% import "common/reduce/elements.wgsl" as elements with context %}\n'
            f"{{% set of_floats = {json.dumps(known['floats'])} %}}\n"
            f"{{% set of_integers = {json.dumps(known['integers'])} %}}\n"
            "{% set state = of_integers if elements.integers else of_floats %}\n"
            '{% import "common/reduce/declared.wgsl" as declared with context %}\n'
            + "".join(f"{{% set {name} = declared.{name} %}}\n" for name in exported)
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

    def _terms(self, kind: str) -> Terms | ProblemError:
        try:
            return Terms.of(self._of(self.map), self._of(self.combine), self._numbers, self.finish or "v", kind)
        except ProblemError as error:
            return error

    def _check(self) -> None:
        """Raise ProblemError unless combine is associative and commutative on samples, and identity changes nothing."""
        x = SAMPLES if isinstance(self.of_floats, Terms) else SAMPLES.astype(np.int32)
        terms = self.terms(x)
        a, wide = terms.mapped(x), terms.mapped(np.concatenate([x, FAR]).astype(x.dtype))
        b, c = ({name: np.roll(each, n) for name, each in a.items()} for n in (1, 2))
        none = {name: np.broadcast_to(terms.identity[name], wide[name].shape) for name in self.names}
        combine, words = terms.combined, f"combine {self.combine!r}"
        nothing = f"identity {self.identity!r} is none of {words}"
        for got, wanted, what in (
            (combine(wide, none), wide, nothing),
            (combine(none, none), none, nothing),
            (combine(a, b), combine(b, a), f"{words} is not commutative"),
            (combine(combine(a, b), c), combine(a, combine(b, c)), f"{words} is not associative"),
            (combine(none, wide), wide, nothing),
        ):
            for name in self.names:
                same = np.isclose(got[name], wanted[name], rtol=1e-6, atol=1e-6, equal_nan=True)
                same[x.size :] |= ~np.isfinite(got[name][x.size :])  # exp() of what is far overflows
                if not same.all():
                    at = np.flatnonzero(~same)[0]
                    raise ProblemError(f"{what}: {float(got[name][at]):g} instead of {float(wanted[name][at]):g}")


OWN: dict[str, Reduction] = {}  # by name; never removed, since cached problems and shaders refer to them
