"""What webmm says through `logging`, by topic: the logger `webmm.choice` tells what was chosen and why, and so on.

A library leaves logging to its program: nothing is shown, nor is the root logger touched, until the program configures
these loggers itself, or the setting `log` (WEBMM_LOG), or a call of `show()`, asks for them.
"""

from __future__ import annotations

import logging

from webmm.errors import ConfigError

TOPICS = {
    "compile": "pipelines that were compiled, and how long that took",
    "choice": "which kernel was taken for a problem, and why",
    "tune": "what a search tried, and what came out",
    "profile": "how long each product took; every one is waited for",
}
LEVELS = ("debug", "info", "warning", "error")

root = logging.getLogger("webmm")
compilation, choice, tuning, profile = (root.getChild(topic) for topic in TOPICS)


def parse(what: str) -> tuple[int | None, tuple[str, ...]]:
    """Return the level of all topics and the topics shown whole, of "choice,compile" or "info" or "info,tune".

    Raises ConfigError for any other word.
    """
    words = [word.strip().lower() for word in what.split(",") if word.strip()]
    for word in words:
        if word not in TOPICS and word not in LEVELS:
            raise ConfigError(f"{word!r} is neither a topic ({', '.join(TOPICS)}) nor a level ({', '.join(LEVELS)})")
    levels = [getattr(logging, word.upper()) for word in words if word in LEVELS]
    return min(levels, default=None), tuple(word for word in words if word in TOPICS)


def show(what: str) -> None:
    """Show topics, such as "choice,compile", or all from a level on, such as "info".

    The messages go where the program sends its own; to stderr where it has no handlers. Raises ConfigError for an
    unknown word.
    """
    level, topics = parse(what)
    if level is not None:
        root.setLevel(level)
    for topic in topics:
        root.getChild(topic).setLevel(logging.DEBUG)
    if not root.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        root.addHandler(handler)
