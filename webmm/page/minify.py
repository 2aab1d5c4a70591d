"""Minification of the page's scripts and styles, by tdewolff/minify where it is installed: `webmm[page]`."""

from __future__ import annotations

import re
from pathlib import Path

KINDS = {".js": "application/javascript", ".css": "text/css"}
UNDEFINED = re.compile(r"(?<![\w$.)\]])0\[0\]")  # how the library writes it: a property look-up, 12 % of a warm call
KEPT = ("sw.js",)  # the service worker, whose size does not matter, is edited afterwards


def is_installed() -> bool:
    """Return whether the library can be imported."""
    try:
        import minify  # noqa: F401
    except ImportError:
        return False
    return True


def minify_folder(folder: Path) -> None:
    """Minify the scripts and styles below `folder` in place; without the library, they stay as they are."""
    if not is_installed():
        return
    import minify

    for path in sorted(folder.rglob("*")):
        if path.suffix in KINDS and path.name not in KEPT:
            text = path.read_text(encoding="utf-8")
            short = minify.string(KINDS[path.suffix], text)
            path.write_text(UNDEFINED.sub("void 0", short), encoding="utf-8")
