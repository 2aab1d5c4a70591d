"""Options of calls."""

from __future__ import annotations


def spelled(option: str) -> str:
    """Return the name of an option as the language of the caller spells it; JavaScript provides its own function."""
    return option
