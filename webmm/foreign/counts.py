"""Formulas of sizes such as "n/16,m/16"; the text is never evaluated as Python.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webmm.errors import ConfigError
from webmm.kernels.base import ceil_div

MAX_CHARACTERS = 200  # also limits the nesting of brackets
GRID = "a grid is one to three numbers"
WORKGROUP = "a workgroup size is one to three numbers"
PRODUCT = ("m", "n", "k")
# Sizes at which a product is checked: aligned, ragged, single elements, wide and narrow.
CHECKED = ((64, 64, 64), (65, 67, 63), (1, 1, 1), (33, 130, 5), (128, 16, 200), (7, 300, 77))
DIGITS, SIGNS = "0123456789", ("+", "-", "*", "/", "(", ")")

Tree = Any  # a number, a name, or (sign, left, right)


@dataclass(frozen=True)
class Counts:
    """Numbers along x, y and z: + − × / and brackets over `names` and whole numbers; divisions round up.

    Upper and lower case are the same. `what` begins the message of the ConfigError that anything else raises.
    """

    text: str
    names: tuple[str, ...] = PRODUCT
    what: str = GRID

    def __post_init__(self) -> None:
        self.trees()

    def of(self, values: Mapping[str, int]) -> tuple[int, int, int]:
        """Return the numbers for the values of the names; raises ConfigError for a division by zero."""
        known = {name.lower(): value for name, value in values.items()}
        numbers = [self._value(tree, known) for tree in self.trees()]
        numbers.extend([1, 1])
        return numbers[0], numbers[1], numbers[2]

    def trees(self) -> list[Tree]:
        """Return the text's formulas, parsed."""
        parts = self.text.replace("×", "*").replace("−", "-").lower().split(",")
        if len(parts) > 3 or len(self.text) > MAX_CHARACTERS:
            raise self._wrong(self.text)
        return [self._parsed(part) for part in parts]

    def __str__(self) -> str:
        return repr(self.text)

    def _value(self, tree: Tree, known: Mapping[str, int]) -> int:
        if isinstance(tree, int):
            return tree
        if isinstance(tree, str):
            return known[tree]
        sign, left, right = tree
        x, y = self._value(left, known), self._value(right, known)
        if sign == "/":
            if y == 0:
                at = ", ".join(f"{name}={value}" for name, value in known.items())
                raise ConfigError(f"{self.text!r} divides by zero for {at}")
            return ceil_div(x, y)
        return x * y if sign == "*" else x + y if sign == "+" else x - y

    def _wrong(self, what: str) -> ConfigError:
        made_of = ", ".join([*self.names, "whole numbers"]) + ", + - * / and brackets"
        example = "n/16,m/16" if self.what == GRID else "16,16"
        return ConfigError(f"{self.what}, made of {made_of}, such as {example}, not {what!r}")

    def _parsed(self, part: str) -> Tree:
        tokens = self._tokens(part)
        tree = self._sum(tokens)
        if tokens:
            raise self._wrong(self.text)
        return tree

    def _tokens(self, part: str) -> list[str]:
        """Return the numbers, names and signs of a formula."""
        for sign in SIGNS:
            part = part.replace(sign, f" {sign} ")
        words = [word for word in part.split(" ") if word]
        names = [name.lower() for name in self.names]
        for word in words:
            if word not in SIGNS and word not in names and not _is_number(word):
                raise self._wrong(self.text)
        return words

    def _sum(self, tokens: list[str]) -> Tree:
        tree = self._product(tokens)
        while tokens and tokens[0] in ("+", "-"):
            sign = tokens.pop(0)
            tree = (sign, tree, self._product(tokens))
        return tree

    def _product(self, tokens: list[str]) -> Tree:
        tree = self._single(tokens)
        while tokens and tokens[0] in ("*", "/"):
            sign = tokens.pop(0)
            tree = (sign, tree, self._single(tokens))
        return tree

    def _single(self, tokens: list[str]) -> Tree:
        token = tokens.pop(0) if tokens else ""
        if token and token not in SIGNS:
            return int(token) if _is_number(token) else token
        if token == "(":
            tree = self._sum(tokens)
            if tokens and tokens.pop(0) == ")":
                return tree
        raise self._wrong(self.text)


def _is_number(word: str) -> bool:
    return all(letter in DIGITS for letter in word)


def check_names(found: Sequence[str], known: Sequence[str], option: str) -> None:
    """Raise ConfigError unless each of `found`, words of an option, is one of `known`."""
    for name in found:
        if name not in known:
            raise ConfigError(f"{option} must name {listed(known)}, not {name!r}")


def listed(names: Sequence[str], last: str = "or") -> str:
    """Return names as in a sentence: "m, n or k"."""
    return f" {last} ".join(([", ".join(names[:-1])] if len(names) > 1 else []) + [names[-1]])
