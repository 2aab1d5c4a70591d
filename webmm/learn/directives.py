"""Directives: comments in chapters, behind which stands what a kernel or a record knows.

    It is <!-- gain gemm/tile_1d h200-f32 4096 -->3.4<!-- end --> times as fast.

A directive is a function of this package that returns Markdown. Its arguments are words; those with `=` are tunables or
other settings. One that is alone on its line is a block, whose text stands on lines of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from webmm.errors import ConfigError

Directive = Callable[..., str]
DIRECTIVES: dict[str, Directive] = {}
PLACE = re.compile(
    r"<!-- (?P<name>(?!here |end )[a-z_]+)(?P<words>(?: [^ >]+)*) -->(?P<body>.*?)<!-- end -->", re.DOTALL
)
OPEN = re.compile(r"<!-- ([a-z_]+)(?: [^ >]+)* -->")
LINE = re.compile(r" *<!-- (?!here |end )[a-z_]+(?: [^ >]+)* -->.*<!-- end -->")  # that begins with a directive
LAST = re.compile(
    r"(?<=[^\s*-]) (?!\S*-->)(\S+)$"
)  # the last word of a line, neither its first nor the end of a directive
LONE = ("here", "end")  # marks that have no text of their own


def directive(function: Directive) -> Directive:
    """Make a function a directive of its name."""
    DIRECTIVES[function.__name__] = function
    return function


def filled(text: str) -> str:
    """Return a chapter's text with what its directives stand for; raises ConfigError for one that is not understood."""
    unknown = set(OPEN.findall(text)) - {*DIRECTIVES, *LONE}
    if unknown:
        known = ", ".join(sorted(DIRECTIVES))
        raise ConfigError(f"there is no directive {min(unknown)!r}; choose from {known}")
    opened = sum(name in DIRECTIVES for name in OPEN.findall(text))
    if opened != len(PLACE.findall(text)) or opened != text.count("<!-- end -->"):
        raise ConfigError("a directive is not ended by <!-- end -->, or an end has no directive")
    return flowing(PLACE.sub(lambda match: _written(match, text), text))


def flowing(text: str) -> str:
    """Return a text in which no line of a paragraph begins with a directive: Markdown would take it for HTML."""
    lines: list[str] = []
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        if LINE.match(line) and before.strip() and not OPEN.fullmatch(before):
            word = LAST.search(before)
            if word is None:
                lines[-1] = f"{before} {line.strip()}"
                continue
            indent = line[: len(line) - len(line.lstrip())]
            lines[-1], line = before[: word.start()], f"{indent}{word[1]} {line.strip()}"
        lines.append(line)
    return "\n".join(lines)


def _written(match: re.Match[str], text: str) -> str:
    words = match["words"].split()
    try:
        made = DIRECTIVES[match["name"]](*_positional(words), **_settings(words)).strip()
    except (TypeError, ValueError, LookupError, ConfigError) as error:
        why = f"{error} is not known" if isinstance(error, LookupError) else error
        raise ConfigError(f"<!-- {match['name']}{match['words']} -->: {why}") from error
    start, end = match.span()
    alone = text[:start].endswith("\n") and text[end : end + 1] in ("\n", "")
    around = "\n" if alone else ""
    return f"<!-- {match['name']}{match['words']} -->{around}{made}{around}<!-- end -->"


def _positional(words: list[str]) -> list[str]:
    return [word for word in words if "=" not in word]


def _settings(words: list[str]) -> dict[str, Any]:
    """Return the words of the form NAME=VALUE; numbers are integers."""
    pairs = [word.split("=", 1) for word in words if "=" in word]
    return {name: int(value) if value.isdecimal() else value for name, value in pairs}
