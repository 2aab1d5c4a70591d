"""Text that others wrote, in files, settings and commands: what of it is a number, and what a terminal may get."""

from __future__ import annotations

import math
import re
import unicodedata

MAX_DIGITS = 18
PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
# Categories of Unicode: control characters, what turns the direction of writing, halves of pairs, ends of lines.
UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def whole(text: str) -> int | None:
    """Return the whole number that `text` is, in digits alone; None where it is none, or of more than MAX_DIGITS."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def amount(text: str) -> float | None:
    """Return the number that "80GB", "2GiB", "25 GB/s", "50T" or "1.5e9" is; None where it is none above 0."""
    found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?) ?([KMGTP]?)(i?)(?:B|FLOP)?(?:/s)?", text.strip(), re.IGNORECASE)
    try:
        value = float(found[1]) * (1024 if found[3] else 1000) ** PREFIXES[found[2].upper()] if found else 0.0
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def is_plain(text: str) -> bool:
    """Tell whether a terminal shows `text` as it is, on one line."""
    return not any(unicodedata.category(c) in UNPRINTABLE for c in text)


def printable(text: str) -> str:
    """Return `text` with escapes for all but its line ends that would control a terminal."""
    return "".join(c if c == "\n" or is_plain(c) else c.encode("unicode_escape").decode() for c in text)
