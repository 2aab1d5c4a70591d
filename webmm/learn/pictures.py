"""The directive of drawings: it names the file that is made, and links it with its alternative text."""

from __future__ import annotations

from typing import Any

from webmm.errors import ConfigError
from webmm.learn.directives import directive
from webmm.learn.drawings import find
from webmm.learn.kernels import stage_of

MADE: dict[str, str] = {}  # the drawings that chapters have asked for, by their file names


@directive
def drawing(name: str, *stages: str, **tunables: Any) -> str:
    """Return the link of a drawing, of stages if some are given; its file is made with the chapters.

    Links are written from a chapter one folder down, and corrected by the writer of the files.
    """
    if name not in find():
        raise ConfigError(f"there is no drawing {name!r}; choose from {', '.join(sorted(find()))}")
    svg = find()[name](*(stage_of(stage, **tunables) for stage in stages))
    words = [name, *(stage.replace("/", "-") for stage in stages), *(f"{k}{v}" for k, v in tunables.items())]
    file = f"{'-'.join(words)}.svg"
    MADE[file] = str(svg)
    return f"![{svg.alt}](DRAWINGS/{file})"
