"""What compilers say about a shader: the messages of naga and Tint in one form, with file, line and the line itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from webmm.errors import ShaderError

NAGA = re.compile(r"(?:error: (?P<words>.*)\n)?\s*┌─ .*:(?P<line>\d+):\d+ *$", re.MULTILINE)
TINT = re.compile(r":(?P<line>\d+):\d+ error: (?P<words>.*)")
NOTE = re.compile(r"^ *= (.*)$", re.MULTILINE)  # naga explains an error in such lines, from the outside in
UNSAID = re.compile(r"^\s*(?:- While .*|Caused by:)?$")  # lines that say nothing about the text


@dataclass(frozen=True)
class Place:
    """A line of a template: the name of its file, its number from 1, and its text."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}"


@dataclass(frozen=True)
class Complaint:
    """A compiler's message: one line that says what is wrong, the line of the text (0 if unknown), and all of it."""

    words: str
    line: int
    whole: str


def shown(file: str) -> str:
    """Return the path of a file, relative to the working directory if it is below that."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def complaint(message: str) -> Complaint:
    """Return the message of naga, Tint or an engine in parts."""
    lines = [line for line in message.splitlines() if not UNSAID.match(line)]
    found = TINT.search(message) or NAGA.search(message)
    if not found:  # an error of the pipeline: wgpu says it in the last line, Dawn in the first
        chained = bool(lines) and lines[0] == "Validation Error"
        return Complaint((lines or [""])[-1 if chained else 0].strip(), 0, "\n".join(lines))
    notes = NOTE.findall(message)
    lines = [line for line in lines if line.strip() not in notes]  # wgpu repeats them at the end
    first = next((i for i, line in enumerate(lines) if "error: " in line), 0)
    words = notes[-1] if notes else found["words"] or lines[first]
    return Complaint(words.strip(), int(found["line"]), "\n".join(lines[first:]))


def refused(what: str, message: str, wgsl: str, places: Sequence[Place | None] = ()) -> ShaderError:
    """Return the error for a text that a compiler refused: its message, with the place and the line that it means.

    `what` begins the first line; `places` are the places in templates of the text's lines, as far as they are known.
    """
    found, lines = complaint(message), wgsl.split("\n")
    where, quoted = "", []
    if 0 < found.line <= len(lines):
        rendered = lines[found.line - 1].strip()
        place = places[found.line - 1] if found.line <= len(places) else None
        where = f"{place or f'line {found.line}'}: "
        if place:
            quoted.append(f"  {place}: {place.text}")
        if not place or place.text != rendered:
            quoted.append(f"  line {found.line}{' as rendered' if place else ''}: {rendered}")
    whole = [f"    {line}" for line in found.whole.splitlines()]
    error = ShaderError("\n".join([f"{what}: {where}{found.words}", *quoted, *whole]))
    error.what, error.said, error.wgsl = what, message, wgsl
    return error
