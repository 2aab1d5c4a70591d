"""How a kernel depends on sizes: what its template choices assume of them, and rules by which hosts compute from them.

A size is an integer member of the kernel's uniform, such as k, lda or a_offset, or `batch`. A template has choices that
are right at any sizes, and others, such as loads of vec4 and unguarded tiles, that are right only if sizes meet
conditions. A kernel states each such choice with its conditions once, in `assumptions()`; from these follow the
specialisation for a problem, the general one, and the sizes for which a rendered text is right.

Rules are formulas over sizes, such as ``ceil(m / 64) * ceil(n / 128)``: integers, names, + - * /, and the functions
ceil and min. They can be read, and evaluated in Python and JavaScript.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from webmm.problems.base import Problem

MAX_WORKGROUPS = 65_535  # per dimension: WebGPU's default limit, and the limit of every engine

Q = TypeVar("Q", bound=Problem)
Sizes = Mapping[str, int]


class Params(Protocol):
    """A dataclass of 32-bit members: the uniform of a kernel, computed from its problem."""

    @classmethod
    def of(cls, problem: Any) -> Any:
        """Return the uniform for `problem`."""


@dataclass(frozen=True)
class Condition:
    """What a size must be: a multiple, within bounds, or equal to a number or another size.

    `size` may also be a product, m*n. With `where`, the condition applies only if that length is above 1.
    """

    size: str
    multiple_of: int = 1
    at_least: int = 0
    at_most: int = 0  # 0 for no limit
    equals: int | str = ""
    where: str = ""

    def holds(self, sizes: Sizes) -> bool:
        """Tell whether `sizes` meet the condition."""
        if self.where and sizes[self.where] <= 1:
            return True
        size = sizes[self.size]
        if size % self.multiple_of or size < self.at_least or (self.at_most and size > self.at_most):
            return False
        if isinstance(self.equals, str):
            return not self.equals or size == sizes[self.equals]
        return size == self.equals


def multiples(of: int, *sizes: str) -> tuple[Condition, ...]:
    """Return the conditions that `sizes` are multiples of `of`; none if that is 1."""
    return tuple(Condition(size, multiple_of=of) for size in sizes) if of > 1 else ()


@dataclass(frozen=True)
class Assumption:
    """A template choice, a field of the specialisation, that has this value if sizes meet all conditions."""

    choice: str
    value: Any
    conditions: tuple[Condition, ...] = ()

    def holds(self, sizes: Sizes) -> bool:
        """Tell whether `sizes` meet all conditions."""
        return all(condition.holds(sizes) for condition in self.conditions)


@functools.lru_cache(maxsize=1024)
def sizes_of(params: type[Params], problem: Problem) -> dict[str, int]:
    """Return the sizes of `problem` by name: the integers of its uniform, `batch`, and m*n if there are m and n."""
    sizes = {"batch": problem.sizes[3]}
    uniform = params.of(problem)
    for field in dataclasses.fields(uniform):
        value = getattr(uniform, field.name)
        if isinstance(value, tuple):
            sizes.update({f"{field.name}.{axis}": each for axis, each in zip("xyzw", value, strict=False)})
        elif isinstance(value, int):
            sizes[field.name] = value
    if "m" in sizes and "n" in sizes:
        sizes["m*n"] = sizes["m"] * sizes["n"]
    return sizes


class Sized(ABC, Generic[Q]):
    """What every kernel says about sizes."""

    params: ClassVar[type[Params]]

    def uniform(self, of: Any) -> type[Params]:
        """Return the uniform's class for a problem, or for template choices."""
        del of
        return self.params

    @abstractmethod
    def choices(self, problem: Q) -> Any:
        """Return the template choices for problems like `problem`, in types, layout and terms, that assume nothing."""

    def assumptions(self, choices: Any) -> Iterator[Assumption]:
        """Yield what the template may assume of sizes, given the other choices; later ones override earlier ones."""
        del choices
        yield from ()

    def needs(self) -> Iterator[Condition]:
        """Yield what sizes must be for any text of this kernel."""
        yield from ()

    def specialise(self, problem: Q) -> Any:
        """Return the template choices that fit `problem`; problems that share them share a shader."""
        return _specialised(self, problem)

    def general(self, problem: Q) -> Any:
        """Return the template choices for problems like `problem` of any sizes, strides and offsets."""
        return _assuming(self, problem, lambda assumption: not assumption.conditions)

    def conditions(self, spec: Any) -> Iterator[Condition]:
        """Yield what a text with the template choices `spec` assumes of sizes."""
        yield from self.needs()
        for assumption in self.assumptions(spec):
            if getattr(spec, assumption.choice) == assumption.value:
                yield from assumption.conditions

    def places(self, problem: Q) -> dict[str, tuple[str, str]]:
        """Return, for each buffer of problems like `problem`, the place of an element, and the number of elements.

        Both are formulas, the first one also over an element's indices; a plugin's op may have none.
        """
        del problem
        return {}

    def grid_rule(self, spec: Any) -> dict[str, Any] | None:
        """Return the rule of `dispatch` for texts with the template choices `spec`, or None.

        Its formulas `count`, `y`, `x` and `z` are evaluated in this order; `rule` has them in words.
        """
        del spec
        return None


@functools.lru_cache(maxsize=1024)
def _specialised(kernel: Sized[Any], problem: Problem) -> Any:
    """Return `kernel.specialise(problem)`: the check, the self-test and the launch of a kernel ask for it in turn."""
    sizes = sizes_of(kernel.uniform(problem), problem)
    return _assuming(kernel, problem, lambda assumption: assumption.holds(sizes))


def _assuming(kernel: Sized[Any], problem: Problem, made: Any) -> Any:
    choices = kernel.choices(problem)
    changes = {each.choice: each.value for each in kernel.assumptions(choices) if made(each)}
    return dataclasses.replace(choices, **changes) if changes else choices


def folded(count: str, z: str = "1") -> dict[str, Any]:
    """Return the rule of `fold()`: `count` workgroups numbered along x, then y."""
    y = f"ceil(count / {MAX_WORKGROUPS})"
    words = f"count = {count}; y = {y}; dispatch (ceil(count / y), y, {z})"
    return {"count": count, "y": y, "x": "ceil(count / y)", "z": z, "rule": words}


def valid_for(conditions: Iterable[Condition]) -> dict[str, dict[str, Any]]:
    """Return conditions by size, in JSON types: multiple_of, at_least, at_most, equals, and where they apply.

    Conditions on a size are merged; of one that applies always and one with `where`, the result applies always.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in conditions:
        where = {"where": f"{each.where} > 1"} if each.where else {}
        known = found.setdefault(each.size, {**where})
        if known.get("where") != where.get("where"):
            known = {key: value for key, value in known.items() if key != "where"}
            found[each.size] = known
        if each.multiple_of > 1:
            known["multiple_of"] = _common(known.get("multiple_of", 1), each.multiple_of)
        if each.at_least > known.get("at_least", 0):
            known["at_least"] = each.at_least
        if each.at_most and ("at_most" not in known or each.at_most < known["at_most"]):
            known["at_most"] = each.at_most
        if each.equals != "":
            known["equals"] = each.equals
    return found


def _common(a: int, b: int) -> int:
    """Return the least common multiple."""
    return next(a * i for i in range(1, b + 1) if a * i % b == 0)
