"""Minification of the page's scripts and styles, by tdewolff/minify where it is installed: `webmm[page]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

KINDS = {".js": "application/javascript", ".css": "text/css"}
UNDEFINED = re.compile(r"(?<![\w$.)\]])0\[0\]")  # how the library writes it: a property look-up, 12 % of a warm call
KEPT = ("sw.js",)  # the service worker, whose size does not matter, is edited afterwards


def library() -> Callable[[str, str], str] | None:
    """Return the library's function of a media type and a text, or None if it is not installed."""
    try:
        from minify import string
    except ImportError:
        return None
    return string  # type: ignore[no-any-return]


def minify_folder(folder: Path) -> None:
    """Minify the scripts and styles below `folder` in place; without the library, they stay as they are."""
    if (minified := library()) is None:
        return
    for path in sorted(folder.rglob("*")):
        if path.suffix in KINDS and path.name not in KEPT:
            text = minified(KINDS[path.suffix], path.read_text(encoding="utf-8"))
            path.write_text(UNDEFINED.sub("void 0", text), encoding="utf-8")
