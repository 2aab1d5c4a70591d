"""The expressions of a declared reduction, compiled for elements of one kind, and the check of its `combine`.

This module is in the translated subset (docs/page.md). Trees and numbers come from `webmm.wgsl.expressions`, or from
their counterparts in JavaScript; values are evaluated by a function `apply(operation, kind, terms)`, here NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webmm.errors import ProblemError, UnsupportedError
from webmm.wgsl.compiler import (
    REAL,
    SELECT,
    SIGNATURES,
    TRUTH,
    WHOLE,
    Compiled,
    Literal,
    Node,
    Numbers,
    compiled_tree,
)
from webmm.wgsl.library import files_of

MOST_VALUES = 4  # of a state: 16 bytes of workgroup memory per invocation
SAMPLES = (0.5, -1.25, 2.0, 0.75, 1.0, -0.5, 3.0, 3.0)  # at which combine is checked, neighbours also equal
FAR = (-1e4, -60.0, 60.0, 1e4)  # and identity: -100 changes nothing of SAMPLES in a maximum
NEAR = 1e-6  # the difference of two samples that rounding explains, absolute and relative
ONE = ("v",)  # the name of the value of a state that has one
# What the template of a declaration has of shaders/common/reduce/declared.wgsl.
EXPORTED = ("fields", "types", "at_once", "yields", "functions", "lift", "result", "in_subgroup")

Apply = Callable[[str, str, list[Any]], Any]
State = dict[str, Any]


@dataclass(frozen=True)
class Declaration:
    """The texts of a reduction: `map`, `combine` and `identity` of each value of a state, and `finish`."""

    map: Mapping[str, str]
    combine: Mapping[str, str]
    identity: Mapping[str, float]
    finish: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values of the state."""
        return tuple(self.map.keys())

    def check(self) -> None:
        """Raise ProblemError if the values of the state differ between the texts, are too many or have bad names."""
        names = self.names
        if tuple(self.combine.keys()) != names or tuple(self.identity.keys()) != names:
            raise ProblemError(f"map, combine and identity must have the same keys in the same order: {names}")
        if not names or len(names) > MOST_VALUES:
            raise ProblemError(f"a state has 1 to {MOST_VALUES} values, not {len(names)}")
        for name in names:
            if not isinstance(name, str) or not named(name):
                raise ProblemError(f"{name!r} cannot name a value of the state: use letters and digits")
        texts = (*self.map.values(), *self.combine.values(), self.finish)
        for text in texts:
            if not isinstance(text, str):
                raise ProblemError(f'{text!r} is no expression: map, combine and finish are texts, such as "x * x"')
        if names != ONE and not self.finish:
            raise ProblemError(f"finish is missing: an expression of {', '.join(names)}, and of n unless it is one")


def named(name: str) -> bool:
    """Tell whether a name has letters, digits and underscores only, and begins with a letter."""
    first = name[:1].lower()
    rest = name.replace("_", "")
    return "a" <= first <= "z" and all("a" <= x <= "z" or "0" <= x <= "9" for x in rest.lower())


@dataclass(frozen=True)
class Terms:
    """The expressions of a declaration for elements of one kind; `kinds` are those of the values of its state."""

    names: tuple[str, ...]
    map: dict[str, Compiled]
    combine: dict[str, Compiled]
    finish: Compiled
    identity: dict[str, Compiled]
    kinds: dict[str, str]

    @property
    def kind(self) -> str:
        """The kind of the result."""
        return self.finish.kind

    @property
    def positions(self) -> bool:
        """Whether an element's position matters."""
        return any(mentions(x, "i") for x in self.map.values())

    @property
    def two(self) -> bool:
        """Whether it is of the elements of two arrays."""
        return any(mentions(x, "y") for x in self.map.values())

    @property
    def work(self) -> int:
        """Operations per element."""
        return sum(work(x) for x in (*self.map.values(), *self.combine.values()))

    @property
    def wgsl(self) -> dict[str, Any]:
        """The expressions for shaders/common/reduce/declared.wgsl."""
        maps, merges = [x.wgsl for x in self.map.values()], [x.wgsl for x in self.combine.values()]
        constants = [x.wgsl for x in self.identity.values()]
        return {
            "names": self.names,
            "fields": [f"of_{name}" for name in self.names],
            "types": [self.kinds[name] for name in self.names],
            "identity": constants,
            "map": maps,
            "combine": merges,
            "finish": self.finish.wgsl,
            "count": mentions(self.finish, "n"),
            "yields": self.kind,
            "functions": files_of(" ".join([*constants, *maps, *merges, self.finish.wgsl])),
        }

    def mapped(self, x: Any, y: Any, i: Any, apply: Apply) -> State:
        """Return the states of single elements."""
        return {name: evaluated(each, {"x": x, "y": y, "i": i}, apply) for name, each in self.map.items()}

    def combined(self, a: State, b: State, apply: Apply) -> State:
        """Return the states of two."""
        values = {f"{side}_{name}": x[name] for side, x in (("a", a), ("b", b)) for name in self.names}
        return {name: evaluated(each, values, apply) for name, each in self.combine.items()}

    def finished(self, state: State, length: float, apply: Apply) -> Any:
        """Return the results of states of `length` elements."""
        values = {f"v_{name}": state[name] for name in self.names}
        return evaluated(self.finish, {"n": length, **values}, apply)

    @property
    def none(self) -> State:
        """The state of no elements."""
        return {name: x.value for name, x in self.identity.items()}


def terms_of(given: Declaration, parsed: Callable[[str], Node], numbers: Numbers, kind: str) -> Terms:
    """Return the expressions for elements of this kind; raises ProblemError if one is wrong."""
    names, texts = given.names, given.map

    def compiled(text: str, places: dict[str, str], kinds: dict[str, str]) -> Compiled:
        return compiled_tree(text, placed(parsed(text), places), kinds, numbers)

    of_element = {"x": "x", "y": "y", "i": "i"}
    maps = {name: compiled(texts[name], of_element, {"x": kind, "y": kind, "i": WHOLE}) for name in names}
    kinds = {name: each.kind for name, each in maps.items()}
    for name in names:
        if kinds[name] == TRUTH:
            raise ProblemError(f"map {texts[name]!r} is a boolean; a state has numbers: use int32({texts[name]})")
    of_both = {f"{side}.{name}": f"{side}_{name}" for side in ("a", "b") for name in names}
    alone = {"a": "a_v", "b": "b_v"} if names == ONE else {}
    both = {f"{side}_{name}": kinds[name] for side in ("a", "b") for name in names}
    merges = {name: compiled(given.combine[name], {**of_both, **alone}, both) for name in names}
    for name, each in merges.items():
        if each.kind != kinds[name]:
            raise ProblemError(f"combine {given.combine[name]!r} is {each.kind}, but map {texts[name]!r} {kinds[name]}")
    of_state = {name: f"v_{name}" for name in names}
    free = {} if "n" in names else {"n": "n"}
    last = {**{f"v_{name}": kinds[name] for name in names}, **dict.fromkeys(free, REAL)}
    end = compiled(given.finish or "v", {**free, **of_state}, last)
    identity = {name: _constant(given.identity[name], kinds[name], numbers) for name in names}
    return Terms(names, maps, merges, end, identity, kinds)


def terms_of_kinds(
    given: Declaration, parsed: Callable[[str], Node], numbers: Numbers
) -> tuple[Terms | None, Terms | None, tuple[str, str]]:
    """Return the expressions for floats and for int32, and why there are none for one of them.

    Raises ProblemError if there are none for either.
    """
    found: list[Terms | None] = []
    refused = []
    for kind in (REAL, WHOLE):
        try:
            found.append(terms_of(given, parsed, numbers, kind))
            refused.append("")
        except ProblemError as error:
            found.append(None)
            refused.append(str(error))
    if found[0] is None and found[1] is None:
        raise ProblemError(refused[0])
    return found[0], found[1], (refused[0], refused[1])


def _constant(value: float, kind: str, numbers: Numbers) -> Compiled:
    if kind == WHOLE and not (math.isfinite(value) and value == math.floor(value)):
        raise ProblemError(f"identity {value} is no int32")
    return numbers.typed(Literal(int(value), "int") if kind == WHOLE else Literal(value, "float"), kind)


def has_positions(step: int, length: int) -> UnsupportedError:
    """Return the error for a declaration that depends on positions, along an axis that is reduced in parts."""
    return UnsupportedError(
        f"a reduction whose map uses i takes at most {step:,} of these {length:,} elements at once: "
        "positions in pieces would start anew"
    )


def placed(node: Node, places: Mapping[str, str]) -> Node:
    """Return a tree with the names that WGSL has for them; others are not allowed, and have none."""
    word = places.get(node.word, "") if node.form == "name" else node.word
    return replace(node, word=word, terms=tuple([placed(x, places) for x in node.terms]))


def parts(x: Compiled) -> list[Compiled]:
    """Return an expression and all that it is computed from."""
    return [x, *(each for term in x.terms for each in parts(term))]


def mentions(x: Compiled, name: str) -> bool:
    """Tell whether an expression has a name."""
    return any(each.wgsl == name and not each.operation for each in parts(x))


def inexact(x: Compiled) -> bool:
    """Tell whether an expression calls a function that drivers approximate."""
    return any(each.operation in SIGNATURES and SIGNATURES[each.operation].inexact for each in parts(x)) or any(
        each.operation == "**" for each in parts(x)
    )


def work(x: Compiled) -> int:
    """Return the instructions of an expression, roughly."""
    found = 0
    for each in parts(x):
        if each.operation in SIGNATURES:
            found += 8 if SIGNATURES[each.operation].inexact else 2
        elif each.operation == SELECT or len(each.terms) > 1:
            found += 1
    return found


def evaluated(x: Compiled, values: Mapping[str, Any], apply: Apply) -> Any:
    """Return the value of an expression, given those of its names."""
    if x.value is not None:
        return x.value
    if not x.operation:
        return values[x.wgsl]
    return apply(x.operation, x.kind, [evaluated(term, values, apply) for term in x.terms])


def check_combine(given: Declaration, terms: Terms, samples: Sequence[Any], far: Sequence[Any], apply: Apply) -> None:
    """Raise ProblemError unless combine is associative and commutative on samples, and identity changes nothing.

    It changes nothing of samples that are `far`, too, unless these are not finite: exp() of them overflows.
    """
    of_one = given.names == ONE
    combine = f"combine {given.combine['v'] if of_one else dict(given.combine)!r}"
    none, what = (
        terms.none,
        f"identity {given.identity['v'] if of_one else dict(given.identity)!r} is none of {combine}",
    )
    states = [terms.mapped(x, samples[at - 3], at, apply) for at, x in enumerate(samples)]
    wide = [*states, none, *[terms.mapped(x, x, at, apply) for at, x in enumerate(far)]]
    for at, a in enumerate(wide):
        _check_same(terms.combined(a, none, apply), a, what, at > len(states))
    for at, a in enumerate(states):
        b, c = states[at - 1], states[at - 2]
        ab = terms.combined(a, b, apply)
        _check_same(ab, terms.combined(b, a, apply), f"{combine} is not commutative")
        bc = terms.combined(b, c, apply)
        left, right = terms.combined(ab, c, apply), terms.combined(a, bc, apply)
        _check_same(left, right, f"{combine} is not associative")
    for at, a in enumerate(wide):
        _check_same(terms.combined(none, a, apply), a, what, at > len(states))


def _check_same(found: State, wanted: State, what: str, far: bool = False) -> None:
    for name, want in wanted.items():
        got = found[name]
        same = got == want or (got != got and want != want) or (far and not math.isfinite(got))
        if not (same or abs(got - want) <= NEAR * (1 + abs(want))):
            raise ProblemError(f"{what}: {got:g} instead of {want:g}")


# Mean, sum of squared deviations and count, combined as by Chan, Golub and LeVeque (1979).
MOMENTS = {"mean": "float32(x)", "m2": "0.0", "n": "1.0"}
JOINED = {
    "mean": "a.mean + (b.mean - a.mean) * (b.n / maximum(a.n + b.n, 1.0))",
    "m2": "a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * (a.n * (b.n / maximum(a.n + b.n, 1.0)))",
    "n": "a.n + b.n",
}
NOTHING = {"mean": 0.0, "m2": 0.0, "n": 0.0}


def _of_one(mapped: str, combined: str, identity: float, finish: str = "") -> Declaration:
    return Declaration({"v": mapped}, {"v": combined}, {"v": identity}, finish)


OURS = {  # by name
    "var": Declaration(MOMENTS, JOINED, NOTHING, "m2 / n"),
    "std": Declaration(MOMENTS, JOINED, NOTHING, "sqrt(m2 / n)"),
    "norm": _of_one("float32(x) * float32(x)", "a + b", 0.0, "sqrt(v)"),
    "all": _of_one("int32(bool(x))", "minimum(a, b)", 1.0, "v != 0"),
    "any": _of_one("int32(bool(x))", "maximum(a, b)", 0.0, "v != 0"),
    "count_nonzero": _of_one("int32(bool(x))", "a + b", 0.0),
}
