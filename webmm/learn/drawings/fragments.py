"""Pictures of matrix units: tiles of subgroups and their fragments; and of float64: which pairs of slices count."""

from __future__ import annotations

from typing import Any

from webmm.kernels.base import Kernel
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg

SPAN, GAP = 256.0, 14.0  # side of the tile of C in units of the drawing


@drawn
def fragments(kernel: Kernel[Any]) -> Svg:
    """Return a workgroup's tile of C, a subgroup's part of it, and the fragments that one instruction multiplies."""
    c: Any = kernel
    unit, left = SPAN / max(c.bm, c.bn), GAP + SPAN * c.bk / max(c.bm, c.bn)
    tile = f"{c.bm} × {c.bn} of C per workgroup, {c.bm // c.sm * (c.bn // c.sn)} subgroups"
    part = f"{c.sm} × {c.sn} of it per subgroup: {c.sm // c.fm * (c.sn // c.fn)} fragments of {c.fm} × {c.fn}"
    once = f"one instruction: {c.fm} × {c.fk} of A times {c.fk} × {c.fn} of B"
    svg = Svg(left + c.bn * unit + 2, left + c.bm * unit + 66, f"{tile}; {part}; {once}.")
    svg.rect("faint", 1, left, c.bk * unit, c.bm * unit)
    svg.rect("faint", left, 1, c.bn * unit, c.bk * unit)
    svg.rect("faint", left, left, c.bn * unit, c.bm * unit)
    svg.rect("band", 1, left, c.bk * unit, c.sm * unit)
    svg.rect("band", left, 1, c.sn * unit, c.bk * unit)
    svg.rect("tile", left, left, c.sn * unit, c.sm * unit)
    svg.rect("slab", 1, left, c.fk * unit, c.fm * unit)
    svg.rect("slab", left, 1, c.fn * unit, c.fk * unit)
    svg.rect("mine", left, left, c.fn * unit, c.fm * unit)
    for rows, columns, x, y, h, w in (
        (c.bm // c.fm, c.bk // c.fk, 1.0, left, c.fm, c.fk),
        (c.bk // c.fk, c.bn // c.fn, left, 1.0, c.fk, c.fn),
        (c.bm // c.fm, c.bn // c.fn, left, left, c.fm, c.fn),
    ):
        for i in range(rows + 1):
            svg.line("line", x, y + i * h * unit, x + columns * w * unit, y + i * h * unit, 0.5)
        for j in range(columns + 1):
            svg.line("line", x + j * w * unit, y, x + j * w * unit, y + rows * h * unit, 0.5)
    for i, (kind, words) in enumerate((("faint", tile), ("tile", part), ("mine", once))):
        svg.rect(kind, 1, left + c.bm * unit + 12 + 17 * i, 11, 11)
        svg.text(18, left + c.bm * unit + 22 + 17 * i, words, css="small")
    return svg


@drawn
def slice_pairs(kernel: Kernel[Any], kept: int = 8) -> Svg:
    """Return which pairs of slices of two doubles are multiplied, and the weight of each product."""
    del kernel
    side, left = 30.0, 60.0
    used = sum(s + t <= kept + 1 for s in range(1, kept + 1) for t in range(1, kept + 1))
    words = f"Of {kept * kept} pairs of slices, the {used} with s + t up to {kept + 1} are multiplied."
    svg = Svg(left + kept * side + 2, left + kept * side + 34, words)
    for s in range(1, kept + 1):
        svg.text(left + (s - 0.5) * side, left - 8, str(s), anchor="middle")
        svg.text(left - 8, left + (s - 0.5) * side + 5, str(s), anchor="end")
        for t in range(1, kept + 1):
            x, y, counted = left + (t - 1) * side, left + (s - 1) * side, s + t <= kept + 1
            svg.rect("slab" if counted else "faint", x, y, side - 1, side - 1)
            svg.text(x + side / 2, y + side / 2 + 5, str(s + t), anchor="middle")
    svg.text(left, 20, "slice t of an element of B", css="small")
    svg.text(2, 44, "slice s of A", css="small")
    svg.text(2, left + kept * side + 22, "in each square: s + t, weight 2^(-7(s + t))", css="small")
    return svg


@drawn
def phases(kernel: Kernel[Any]) -> Svg:
    """Return how a sum of positive terms goes through two phases, and in which direction truncation moves it."""
    del kernel
    words = "The sum grows from 0 to E, changes sign, and returns from -E to O - E: truncation moves it down, then up."
    svg = Svg(440, 232, words)
    svg.line("line", 30, 112, 420, 112)
    svg.line("line", 220, 14, 220, 206)
    svg.path("mine", [(30, 112), (215, 28)], 2.5)
    svg.path("slab", [(225, 196), (410, 116)], 2.5)
    for x, y, label, anchor in ((34, 130, "0", "start"), (212, 24, "E", "end"), (232, 206, "-E", "start")):
        svg.text(x, y, label, anchor=anchor)
    svg.text(412, 104, "O - E", anchor="end")
    svg.text(34, 28, "even steps: truncated down", css="small")
    svg.text(300, 190, "odd steps: truncated up", css="small")
    svg.text(30, 226, "first phase", css="small")
    svg.text(228, 226, "second phase, after a change of sign", css="small")
    return svg
