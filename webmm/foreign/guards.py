"""Guard elements after each buffer of a foreign text: NaN (or -1) after the operands, UNTOUCHED after the result.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Sequence

GUARD = 1024
UNTOUCHED = 77


def strays(beyond: Sequence[float], end: int, result: str) -> str:
    """Return a description of the guard elements that were written, those after the `end` of `result`; "" for none."""
    written = [i for i, element in enumerate(beyond) if element != UNTOUCHED]
    if not written:
        return ""
    first = written[0]
    return (
        f"{len(written):,} elements beyond the end of {result} were written, first element {end + first:,} of its "
        f"buffer: got {beyond[first]:g}"
    )
