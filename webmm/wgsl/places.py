"""Where the lines of a rendered shader come from: the template's file and line, which compilers do not know.

Only an error needs this, so it is found by rendering the shader once more, with a mark before each line of the
templates. If marks change what a template does, no place is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from webmm.errors import WebmmError
from webmm.wgsl.compilers import Place
from webmm.wgsl.render import Shader, environment, filled_in, finished
from webmm.wgsl.subgroups import sized

MARK = re.compile("\ue000(.*?):(\\d+)\ue001")  # characters of private use, around a template's name and a line number
OWN_EPILOGUE = "the epilogue"


class _Marks(Extension):
    """Puts a mark before each line of a template's text."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Yield the tokens, those of text with marks."""
        for token in stream:
            if token.type == "data":
                lines = token.value.split("\n")
                marked = (f"\ue000{stream.name}:{token.lineno + i}\ue001{line}" for i, line in enumerate(lines))
                yield Token(token.lineno, "data", "\n".join(marked))
            else:
                yield token


def places(shader: Shader) -> list[Place | None]:
    """Return the place of each line of a shader's text, None for blank lines; [] if they cannot be found."""
    marked = environment().overlay(extensions=[_Marks], bytecode_cache=None)  # the code that is kept has no marks
    try:
        text = filled_in(shader.kernel, shader.values, marked)
        text = sized(text, shader.kernel, shader.dialect, shader.values["pinned"])
    except WebmmError:
        return []
    found: list[tuple[str, Place]] = []
    current, sources = ("", 0), dict[str, list[str]]()
    for line in text.split("\n"):
        current, plain = _unmarked(line, current)
        if kept := finished(f"{plain}\n", shader.values["tags"]).strip():
            found.append((kept, _place(marked, *current, sources)))
    lines = list(map(str.strip, shader.wgsl.split("\n")))
    if [line for line in lines if line] != [line for line, _ in found]:
        return []
    following = (place for _, place in found)
    return [next(following) if line else None for line in lines]


def _unmarked(line: str, current: tuple[str, int]) -> tuple[tuple[str, int], str]:
    """Return the mark before the first visible character of a line, `current` if there is none, and the plain line."""
    before, *rest = MARK.split(line)
    visible = bool(before.strip())
    for name, number, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if not visible:
            current = (name, int(number))
        visible = visible or bool(text.strip())
    return current, MARK.sub("", line)


def _place(environment: jinja2.Environment, name: str, line: int, sources: dict[str, list[str]]) -> Place:
    if name not in sources:
        loader: Any = environment.loader
        source, path, _ = loader.get_source(environment, name)
        text = source.removeprefix("{% raw %}").removesuffix("{% endraw %}") if path is None else source
        sources[name] = [path or OWN_EPILOGUE, *text.split("\n")]
    file, *lines = sources[name]
    return Place(file, line, lines[line - 1].strip() if 0 < line <= len(lines) else "")
