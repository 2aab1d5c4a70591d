"""Logging by topic: for instance, the logger `webmm.choice` reports which kernel was chosen and why.

A library leaves logging to the program: nothing is shown until the program configures these loggers, or the setting
`log` (WEBMM_LOG) or a call of `show()` asks for them. The root logger is never changed.
"""

from __future__ import annotations

import logging
from pathlib import Path

from webmm.errors import ConfigError

TOPICS = {
    "compile": "each pipeline that is compiled, and how long that took",
    "choice": "the kernel chosen for a problem, and why",
    "tune": "the candidates that a search tried, and their times",
    "profile": "how long each product took; each product is waited for",
    "host": "each NumPy function that ran in host memory, since devices have none",
}
LEVELS = {  # trace also shows the WGSL of shaders
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
FORMAT = "%(name)s: %(message)s"

root = logging.getLogger("webmm")
compilation, choice, tuning, profile, host = (root.getChild(topic) for topic in TOPICS)


def parse(what: str) -> tuple[int | None, dict[str, int]]:
    """Return the level of all topics (or None) and of single topics in "choice,compile", "info" or "info,tune=debug".

    A topic without a level is shown from debug upwards. Raises ConfigError for any other word.
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
                f"{word!r} is neither a topic ({', '.join(TOPICS)}) nor a level ({', '.join(LEVELS)}) nor TOPIC=LEVEL"
            )
    return min(levels, default=None), topics


def show(what: str, file: Path | str | None = None) -> None:
    """Show messages of topics, such as "choice,compile=info", or of all topics from a level upwards, such as "info".

    The messages go to `file` if one is given, each with its time; otherwise to the program's logging handlers, or to
    stderr if there are none. Raises ConfigError for an unknown word, and for a file that cannot be written.
    """
    level, topics = parse(what)
    if level is not None:
        root.setLevel(level)
    for topic, minimum in topics.items():
        root.getChild(topic).setLevel(minimum)
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
