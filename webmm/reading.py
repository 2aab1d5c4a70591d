"""The values of settings, read from text or TOML: each function returns one, or raises ValueError."""

from __future__ import annotations

import math
from pathlib import Path

from webmm import log

SUMMARY = "summary"  # the value of the setting `profile` that names no file
MAX_SECONDS = 1_000_000  # eleven days; the waiting functions do not accept much longer timeouts


def text(raw: object) -> str:
    """Return text; a number is text, too."""
    if isinstance(raw, bool) or not isinstance(raw, (str, int)):
        raise ValueError("must be text")
    if "\0" in str(raw):
        raise ValueError("must be text without NUL characters")
    return str(raw)


def folder(raw: object) -> Path:
    """Return a path; ~ is the user's home directory."""
    try:
        return Path(text(raw)).expanduser()
    except RuntimeError as error:
        raise ValueError("must start with the home directory of an existing user") from error


def file(raw: object) -> Path | None:
    """Return a path, or None for no text."""
    return folder(raw) if raw != "" else None


def switch(raw: object) -> bool:
    """Return whether it is on: on, true, yes and 1 are."""
    words = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
    if str(raw).lower() not in words:
        raise ValueError("must be on or off")
    return words[str(raw).lower()]


def seconds(raw: object) -> float:
    """Return a number of seconds."""
    try:
        number = math.nan if isinstance(raw, bool) else float(raw)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not number >= 1:
        raise ValueError("must be a number of seconds, at least 1")
    if number > MAX_SECONDS:
        raise ValueError(f"must be a number of seconds, at most {MAX_SECONDS:,}")
    return number


def profile(raw: object) -> Path | str:
    """Return a file for a trace, SUMMARY, or no text."""
    if (word := text(raw)) in ("", SUMMARY):
        return word
    if not word.endswith(".json"):
        raise ValueError(f"must be {SUMMARY}, or a file for the trace whose name ends in .json")
    return folder(word)


def topics(raw: object) -> str:
    """Return topics and levels of the log."""
    log.parse(words := text(raw))
    return words
