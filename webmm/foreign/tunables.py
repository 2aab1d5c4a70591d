"""Tunables of a foreign text: constants whose value is a number, and the values to try of each.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import itertools
import math
import re
import string
from collections.abc import Mapping, Sequence

from webmm.errors import ConfigError
from webmm.text import whole

MAX_COMBINATIONS = 100_000
LETTERS, DIGITS = string.ascii_letters + "_", string.digits
PLACE = "\x00"  # of a value in a text: a number next to a group's would be taken for a part of the group's


def tunables_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the values of each tunable in texts such as "BM=32,64".

    Raises ConfigError for other texts, and a name that is given twice: formulas ignore case.
    """
    found = {}
    for text in texts:
        name, *values = text.split("=")
        numbers = [whole(value.strip()) for value in ",".join(values).split(",") if value.strip()]
        named = name and name[0] in LETTERS and all(letter in LETTERS or letter in DIGITS for letter in name)
        if len(values) != 1 or not named or not numbers or None in numbers:
            raise ConfigError(f"a tunable is NAME=V,… with whole numbers, such as BM=32,64, not {text!r}")
        found[name] = tuple(dict.fromkeys(number for number in numbers if number is not None))
    if len({name.lower() for name in found}) < len(texts):
        each = "each tunable needs a name of its own, not only in other case"
        raise ConfigError(f"{each}; give its values at once: BM=8,16")
    return found


def check_tunables(text: str, name: str, tunables: Mapping[str, tuple[int, ...]], lengths: Sequence[str]) -> None:
    """Raise ConfigError if a tunable is called as a length, or is no constant of the text `name`."""
    for tunable in tunables:
        if tunable.lower() in lengths:
            raise ConfigError(f"tunable {tunable}: this is the name of a length")
        check_constant(text, name, tunable)


def check_constant(text: str, name: str, constant: str) -> None:
    """Raise ConfigError unless the text `name` has the constant or override, with a number as its value."""
    if PLACE not in _with_place(without_comments(text), constant):
        raise ConfigError(f"{name} has no constant {constant} with a number as its value")


def with_constants(text: str, values: Mapping[str, int]) -> str:
    """Return a text with these values of its constants and overrides."""
    for constant, value in values.items():
        text = _with_place(text, constant).replace(PLACE, f"{value}")
    return text


def _with_place(text: str, constant: str) -> str:
    """Return a text with PLACE as the value of a constant."""
    pattern = rf"\b((?:const|override)\s+{constant}\s*(?::\s*\w+\s*)?=\s*)(\d+)([ui]?)\s*;"
    return re.sub(pattern, rf"\1{PLACE}\3;", text)


def without_comments(text: str) -> str:
    """Return a WGSL text without its comments."""
    return re.sub(r"//[^\n]*|/\*[\s\S]*?\*/", " ", text)


def combinations(tunables: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """Return the combinations of values, the first ones first.

    Raises ConfigError if there are no tunables, or more than MAX_COMBINATIONS combinations.
    """
    if not tunables:
        raise ConfigError("there is nothing to tune: name constants and their values, such as TILE=8,16,32")
    if (count := math.prod(map(len, tunables.values()))) > MAX_COMBINATIONS:
        raise ConfigError(f"{count:,} combinations are too many; choose fewer values, at most {MAX_COMBINATIONS:,}")
    return [dict(zip(tunables, each, strict=True)) for each in itertools.product(*tunables.values())]
