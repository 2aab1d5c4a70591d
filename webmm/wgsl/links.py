"""What the names of an epilogue's text stand for: the checks of it in both languages, and the link that it makes.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from webmm.dtypes import COMPUTED, DTYPES, DType, names
from webmm.errors import ProblemError
from webmm.wgsl.compiler import REAL, Compiled, Node, Numbers, compiled_tree, kind_of, not_given, shown
from webmm.wgsl.functions import MAX_NUMBERS, MAX_OPERANDS, Link, X
from webmm.wgsl.grammar import names_of
from webmm.wgsl.terms import placed


def checked_kind(text: str, name: str, dtype: str, element: DType | None) -> str:
    """Return the kind of an array's elements; raises ProblemError for a dtype that expressions do not take."""
    if element is None or element not in COMPUTED:
        raise ProblemError(f"epilogue {shown(text)}: {name} is {dtype}; cast it to one of {names(COMPUTED)}")
    return kind_of(element)


def places_of(text: str, numbers: Sequence[str], arrays: Sequence[str]) -> dict[str, str]:
    """Return the names that WGSL has for those of a text; raises ProblemError if a value is called x."""
    if X in numbers or X in arrays:
        raise ProblemError(f"epilogue {shown(text)}: {X} is the element itself; give the value another name")
    places = {X: X}
    places.update({name: f"s{i}" for i, name in enumerate(numbers)})
    places.update({name: f"y{i}" for i, name in enumerate(arrays)})
    return places


def typed(numbers: int, kinds: Sequence[str]) -> dict[str, str]:
    """Return the kinds of these names, of arrays with elements of `kinds`."""
    found = {X: REAL}
    found.update({f"s{i}": REAL for i in range(numbers)})
    found.update({f"y{i}": kind for i, kind in enumerate(kinds)})
    return found


def check_used(text: str, given: Sequence[str], used: Sequence[str]) -> None:
    """Raise ProblemError for values that a text does not use."""
    unused = [name for name in given if name not in used and name != X]
    if unused:
        raise ProblemError(f"epilogue {shown(text)} does not use {', '.join(unused)}")


def check_float(text: str, found: Compiled) -> None:
    """Raise ProblemError for a text that is no float."""
    if found.kind != REAL:
        raise ProblemError(f"epilogue {shown(text)} is {found.kind}; write float32({text}) for a float")


def check_count(text: str, numbers: int, arrays: int) -> None:
    """Raise ProblemError for too many values."""
    if numbers > MAX_NUMBERS or arrays > MAX_OPERANDS:
        raise ProblemError(
            f"epilogue {shown(text)}: {numbers} numbers and {arrays} arrays are too many; it may "
            f"have {MAX_NUMBERS} and {MAX_OPERANDS} in all"
        )


def link_of(
    text: str, numbers: Sequence[str], arrays: Mapping[str, str], parsed: Callable[[str], Node], made: Numbers
) -> Link:
    """Return the function of an expression, given the names of its numbers, and the dtypes of its arrays.

    Trees and numbers come from `webmm.wgsl.expressions`, or from their counterparts in JavaScript. Raises ProblemError
    if it is invalid, or lacks or ignores a value.
    """
    kinds = tuple([checked_kind(text, name, dtype, DTYPES.get(dtype)) for name, dtype in arrays.items()])
    places = places_of(text, numbers, list(arrays))
    tree = parsed(text)
    used = [name.split(".")[0] for name in names_of(tree)]  # an attribute of a value is not allowed
    for name in used:
        if name not in places:
            raise not_given(text, name, list(places))
    check_used(text, list(places), used)
    found = compiled_tree(text, placed(tree, places), typed(len(numbers), kinds), made)
    check_float(text, found)
    return Link(text, found.wgsl, len(numbers), kinds)
