"""HTML for notebooks: a table, a heat map of a matrix, and a time line of events. Nothing else is needed to show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

CELLS = 32  # rows and columns of a heat map, at most
SIDE = 5  # pixels of its cells
WIDTH, LINE = 640, 14  # pixels of a time line, and of each of its tracks
BARS = 2000  # of a time line, at most: the longest ones


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a table; all texts are escaped. The first column is text, the others are numbers."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(each))}</td>' for each in row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        if heads
        else (f"<table>{title}<tbody>{body}</tbody></table>")
    )


def places(length: int) -> list[int]:
    """Return the positions along an axis that a heat map shows."""
    return [i * length // CELLS for i in range(CELLS)] if length > CELLS else list(range(length))


def heat_map(values: NDArray[Any]) -> str:
    """Return a picture of a matrix of at most CELLS × CELLS: from white, the least, to dark; NaN and infinities red."""
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    cells = []
    for (i, j), value in np.ndenumerate(wide):
        share = (value - low) / (high - low) if high > low else 0.0
        colour = f"hsl(215 60% {95 - 75 * share:.0f}%)" if np.isfinite(value) else "#d33"
        cells.append(f'<rect x="{j * SIDE}" y="{i * SIDE}" width="{SIDE}" height="{SIDE}" fill="{colour}"/>')
    size = f'width="{wide.shape[1] * SIDE}" height="{wide.shape[0] * SIDE}"'
    title = f"<title>from {low:.4g} (light) to {high:.4g} (dark)</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{title}{"".join(cells)}</svg>'


def time_line(bars: Sequence[tuple[str, str, float, float]]) -> str:
    """Return a picture of bars, each a track, a name, a start and a duration in seconds; each track is a line."""
    tracks = list(dict.fromkeys(track for track, *_ in bars))
    end = max((start + duration for *_, start, duration in bars), default=0.0) or 1.0
    shown = sorted(bars, key=lambda bar: -bar[3])[:BARS]  # long ones first, so that short ones lie on them
    rects = [
        f'<rect x="{start / end * WIDTH:.2f}" y="{tracks.index(track) * LINE}" height="{LINE - 2}" '
        f'width="{max(duration / end * WIDTH, 0.5):.2f}" fill="hsl({sum(name.encode()) % 360} 55% 60%)">'
        f"<title>{escape(name)}: {duration * 1e3:,.3f} ms</title></rect>"
        for track, name, start, duration in shown
    ]
    size = f'width="{WIDTH}" height="{len(tracks) * LINE}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{"".join(rects)}</svg>'
