"""What webmm says through `logging`, by topic: the logger `webmm.choice` tells what was chosen and why, and so on.

A library leaves logging to its program: nothing is shown, nor is the root logger touched, until the program configures
these loggers itself, or the setting `log` (WEBMM_LOG), or a call of `show()`, asks for them.
"""

from __future__ import annotations

import logging
from pathlib import Path

from webmm.errors import ConfigError

TOPICS = {
    "compile": "pipelines that were compiled, and how long that took",
    "choice": "which kernel was taken for a problem, and why",
    "tune": "what a search tried, and what came out",
    "profile": "how long each product took; every one is waited for",
}
LEVELS = {  # the first shows texts of shaders, too
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
FORMAT = "%(name)s: %(message)s"

root = logging.getLogger("webmm")
compilation, choice, tuning, profile = (root.getChild(topic) for topic in TOPICS)


def parse(what: str) -> tuple[int | None, dict[str, int]]:
    """Return the level of all topics, and of single ones, of "choice,compile" or "info" or "info,tune=debug".

    A topic without a level is shown from debug on. Raises ConfigError for any other word.
    """
    words = [word.strip().lower() for word in what.split(",") if word.strip()]
    levels, topics = [], {}
    for word in words:
        topic, equals, level = (part.strip() for part in word.partition("="))
        if topic in TOPICS and (level in LEVELS or not equals):
            topics[topic] = LEVELS[level or "debug"]
        elif word in LEVELS:
            levels.append(LEVELS[word])
        else:
            raise ConfigError(
                f"{word!r} is neither a topic ({', '.join(TOPICS)}) nor a level ({', '.join(LEVELS)}), nor TOPIC=LEVEL"
            )
    return min(levels, default=None), topics


def show(what: str, file: Path | str | None = None) -> None:
    """Show topics, such as "choice,compile=info", or all from a level on, such as "info".

    The messages go to `file`, where one is given, with the time of each; else where the program sends its own, and to
    stderr where it has no handlers. Raises ConfigError for an unknown word, and for a file that cannot be written.
    """
    level, topics = parse(what)
    if level is not None:
        root.setLevel(level)
    for topic, least in topics.items():
        root.getChild(topic).setLevel(least)
    if file:
        _write_to(Path(file).absolute())
    elif not root.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        root.addHandler(handler)


def _write_to(file: Path) -> None:
    if any(isinstance(known, logging.FileHandler) and known.baseFilename == str(file) for known in root.handlers):
        return
    try:
        handler = logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the log to {file}: {error.strerror or error}") from error
    handler.setFormatter(logging.Formatter("%(asctime)s " + FORMAT))
    root.addHandler(handler)
