"""Samples of the translated Python subset, by construct; `test_script.py` runs each in both languages."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from webmm.errors import ConfigError

Side = Literal["left", "right"]
SIDES = get_args(Side)
SQUARES = {n: n * n for n in range(3)}
WORD = re.compile(r"^(\w)(\w)$", re.MULTILINE)


class Shape(ABC):
    """A base with a property that calls, and is called by, its subclasses."""

    sides: ClassVar[int] = 0

    @property
    @abstractmethod
    def area(self) -> float:
        """Its area."""

    def words(self) -> str:
        """Return a description."""
        return f"{type(self).__name__} of {self.sides} sides, {self.area:,}"

    def parts(self) -> Iterator[str]:
        """Yield the names of its parts."""
        yield "area"


@dataclass(frozen=True)
class Box(Shape):
    """Defaults, a keyword-only field, and a field without an init argument."""

    sides = 4
    width: int
    height: int = 2
    name: str = field(default="box", kw_only=True)
    tags: tuple[str, ...] = ()
    turned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.width < 0:
            raise ConfigError(f"width = {self.width} is below 0")

    @property
    def area(self) -> int:
        """Width times height."""
        return self.width * self.height

    @functools.cached_property
    def corner(self) -> tuple[int, int]:
        """The far corner."""
        return self.width, self.height

    @classmethod
    def square(cls, side: int) -> Box:
        """Return a square."""
        return cls(side, side, name="square")

    def parts(self) -> Iterator[str]:
        """Yield the base's parts, then this class's."""
        yield from super().parts()
        yield "edge"


class Solid(Shape):
    """A second base, reached by cooperative calls."""

    depth: int

    def parts(self) -> Iterator[str]:
        """Yield the next base's parts, then this class's."""
        yield from super().parts()
        yield "depth"


@dataclass(frozen=True, order=True)
class Block(Solid, Box):
    """Two bases."""

    depth: int = 3

    def __str__(self) -> str:
        return "×".join(str(length) for length in (self.width, self.height, self.depth))


class Pair(NamedTuple):
    """A tuple with names."""

    left: int
    right: int = 7

    @property
    def both(self) -> int:
        """Their sum."""
        return self.left + self.right


def only_python(x: Any) -> Any:
    """Return a NumPy array: has no translation."""
    return np.asarray(x)


def signs() -> Any:
    """Floor division and remainder take the sign of the divisor."""
    return [(a // b, a % b, divmod(a, b)) for a in (-7, 7) for b in (-3, 3)], -(-7 // 2), 2**10, 1 << 40, 5 & 6, 5 | 6


def booleans() -> Any:
    """Booleans count."""
    yes, none, zero, nothing = True, None, 0, list(range(0))
    return (
        3 * yes,
        yes + yes,
        yes == 1,
        str(yes),
        f"{none}",
        nothing or "empty",
        zero or 7,
        not nothing,
        bool({}),
        bool(math.nan),
        yes and 2,
    )


def values() -> Any:
    """Tuples, sets and dataclasses are compared and hashed by value."""
    boxes = {Box(1): "a", Box(1, tags=("x",)): "b"}
    pairs = {(1, 2): 3}
    return (
        Box(1) == Box(1),
        Box(1) != Box(1, 3),
        boxes[Box(1, 2)],
        boxes.get(Box(2)),
        pairs[1, 2],
        (1, 2) in {(1, 2)},
        frozenset({1, 2}) <= {1, 2, 3},
        sorted({3, 1} | {2}),
        list(dict.fromkeys([(1, 1), (2, 2), (1, 1)])),
        len({Box(1), Box(1)}),
    )


def text() -> Any:
    """Formats, and methods of strings."""
    number, name = 1234567, 'it\'s "so"'
    lines = "  a\n  b\n".splitlines()
    return (
        f"{number:,} {2.5:.1f} {1234.56:,.1f} {0.00012:.1e} {2e300:.1e} {12.346:.3g} {0.5:g} {name!r} {'x'!r}",
        f"{0.1 + 0.2:.{number % 10}g} {math.nan:.6g} {-math.inf:.2e} {math.isnan(math.nan)}",
        "-" * 3 + "abc"[1:][-1],
        [line.strip() for line in lines],
        re.sub(r"^[})]+", "", "}})x}"),
        ["a", "b", "c"],
        "prefix-x".removeprefix("prefix-"),
        re.sub(WORD, r"\2\1$", "ab\ncd"),
        "a1".upper().lower().startswith(("a", "b")),
        "x,y".replace(",", "$&"),
        f"$.add {name} $.add" + "$.mul",  # not a name of the runtime
    )


def loops() -> Any:
    """Comprehensions, generators, conditions and unpacking."""
    found = []
    for i, (a, *rest) in enumerate([(1, 2, 3), (4,), (5, 6)], 1):
        if not rest:
            continue
        found.append((i, a, sum(rest)))
    first, *between = found
    *before, last = range(3)
    one, *middle, end = range(4)
    *none, only = [5]
    total = 0
    while total < 10:
        total += 3
    nested = [x * y for x in range(4) if x % 2 for y in range(3) if y]
    return (
        found,
        first,
        between,
        (before, last, one, middle, end, none, only),
        total,
        nested,
        {k: v for v, k in enumerate("ab")},
        {n % 2 for n in range(5)} == {0, 1},
    )


def laziness() -> Any:
    """Generators compute only the values that are requested."""
    asked = []

    def ask(x: int) -> int:
        asked.append(x)
        return x

    large = next((x for x in (ask(n) for n in range(10)) if x > 2), None)
    return large, asked, next(iter(()), "none"), any(x > 1 for x in (1, 2, 3)), all(x for x in ())


def chained() -> Any:
    """Chained comparisons and assignment expressions."""
    low, high = 1, 5
    if (middle := (low + high) // 2) > low:
        return low < middle < high, low <= middle != high, middle, 3 if low else 4
    return None


def builtins() -> Any:
    """Builtins, with their keywords."""
    words = ["bb", "a", "ccc"]
    return (
        max(words, key=len),
        min((), default="none"),
        sorted(words, key=lambda word: -len(word)),
        sorted(words, reverse=True),
        list(zip(words, range(3), strict=True)),
        list(reversed(words)),
        [round(x) for x in (0.5, 1.5, 2.5, -0.5)],
        int("42"),
        (5).bit_length(),
        isinstance(3, int),
        isinstance("x", (int, str)),
        getattr(Box(1), "nothing", "none"),
        hasattr(Box(1), "area"),
        list(map(str, (1, 2))),
        list(itertools.product((1, 2), "ab")),
        math.prod((2, 3)),
        words[-1],
        words[1:],
    )


def classes() -> Any:
    """Dataclasses, inheritance in Python's method resolution order, and introspection."""
    block = Block(2, 3, name="brick")
    other = replace(block, depth=9)
    return (
        block.words(),
        str(block),
        list(block.parts()),
        Block.square(4).area,
        other.depth,
        vars(other)["name"],
        [f.name for f in dataclasses.fields(Block)],
        block.corner + other.corner,
        Block.sides,
        isinstance(block, Solid) and issubclass(Block, Box),
        Block(1) < Block(2),
        Pair(1).both,
        list(Pair(1, 2)),
        Box(**{"width": 3}, height=4).area,
        SIDES,
        SQUARES[2],
    )


def errors() -> Any:
    """Raising and catching exceptions."""
    found = []
    for width in (-1, 1):
        try:
            found.append(Box(width).width)
        except ConfigError as error:
            found.append(str(error))
    for x in (3, 3.5, "x"):
        try:
            found.append(operator.index(x))
        except TypeError:
            found.append(f"no index: {x!r}")
    try:
        int("x")
    except (ValueError, KeyError):
        found.append("no number")
    try:
        _ = {}["missing"]
    except KeyError:
        found.append("no key")
    return found


def packed() -> Any:
    """Numbers packed into bytes."""
    data = bytearray(12)
    struct.pack_into("<2I", data, 0, 1, 2**32 - 1)
    struct.pack_into("<1f", data, 8, 0.5)
    return list(bytes(data)), struct.unpack("<2I", struct.pack("<d", -2.5))


@functools.cache
def counted(n: int) -> tuple[int, ...]:
    """Return a tuple that is created once per argument."""
    return tuple(range(n))


def caches() -> Any:
    """A cached function returns the identical object."""
    return counted(3) is counted(3), _defaults(1), _defaults(1, c=5), _defaults(b=2, a=0)


def _defaults(a: int, b: int = 10, *, c: int = 20) -> int:
    return a + b + c


def slow(x: int) -> int:
    """Return the next number; JavaScript has it of its own, and awaits it."""
    return x + 1


def _later(x: int) -> int:
    return slow(x) if x < 3 else _later(x - 1)


def _passed(compute: Callable[[int], int], x: int) -> int:
    return compute(x) + 1


def waiting() -> Any:
    """Functions that wait, directly and through others, in loops, comprehensions and functions within functions.

    One of these is passed to a function that calls it.
    """

    def twice(x: int) -> int:
        return slow(slow(x))

    total = _passed(twice, 2)
    for x in range(3):
        total += _later(x) if slow(x) > 1 else 10
    return total, [twice(x) for x in range(4) if x], tuple(slow(x) for x in (5, 6)), max(slow(1), 1), _later(5)
