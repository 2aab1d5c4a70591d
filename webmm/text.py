"""Untrusted text from files, settings and commands: parsing numbers, and escaping control characters.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import math
import re
import unicodedata

MAX_DIGITS = 18
PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
# Unicode categories: control and formatting characters (which include changes of direction), surrogates, line ends.
UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def whole(text: str) -> int | None:
    """Return the whole number in `text`, or None unless it consists of 1 to MAX_DIGITS digits."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def amount(text: str) -> float | None:
    """Return the number in "80GB", "2GiB", "25 GB/s", "50T" or "1.5e9"; None if `text` holds no number above 0."""
    found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?) ?([KMGTP]?)(i?)(?:B|FLOP)?(?:/s)?", text.strip(), re.IGNORECASE)
    try:
        value = float(found[1]) * (1024 if found[3] else 1000) ** PREFIXES[found[2].upper()] if found else 0.0
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def figures(value: float | None) -> str:
    """Return a number from 0 on with three figures, or as a whole number from 1,000 on; – without a finite one."""
    if value is None or not math.isfinite(value):
        return "–"
    if value and value < 0.001:
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def exponent(value: float | None) -> str:
    """Return an error, or its bound, with two figures and an exponent."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "∞"
    return f"{value:.1e}" if value else "0"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent, with two figures below a tenth."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def nbytes(count: float) -> str:
    """Return a number of bytes in the largest unit, up to GiB, of which there is one."""
    unit = min(3, math.floor(math.log2(max(1, count)) / 10))
    return f"{figures(count / 1024**unit)} {('bytes', 'KiB', 'MiB', 'GiB')[unit]}"


def is_plain(text: str) -> bool:
    """Return whether `text` is one line without control characters."""
    plain = re.fullmatch("[ -~]*", text) is not None  # as most texts of records are: a third of the time
    return plain or not any(unicodedata.category(c) in UNPRINTABLE for c in text)


def printable(text: str) -> str:
    """Return `text` with control characters other than newlines replaced by escapes such as \\x1b."""
    return "".join(c if c == "\n" or is_plain(c) else c.encode("unicode_escape").decode() for c in text)
