"""Logarithmic axes, and the roofline on them: of the course's records, and on the page of this device's.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from webmm.learn.drawings.svg import Svg
from webmm.text import figures

Range = tuple[float, float]
TOLERANCE = 1e-9  # of the logarithm of a range's end


@dataclass(frozen=True)
class Axes:
    """The ranges of a drawing's two axes."""

    svg: Svg
    across: Range
    up: Range

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """The drawing's area: left, right, top, bottom."""
        return 50.0, self.svg.width - 24, 10.0, self.svg.height - 48

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is in the drawing."""
        left, right, top, bottom = self.frame
        return left + (right - left) * _part(x, self.across), bottom - (bottom - top) * _part(y, self.up)

    def within(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is in the drawing; one beyond a range at its end."""
        return self.place(_clipped(x, self.across), _clipped(y, self.up))

    def draw(self, under: str, over: str, width: float = 0.3) -> None:
        """Add lines of this width at powers of ten, their numbers, and the names of the axes."""
        svg = self.svg
        left, right, top, bottom = self.frame
        for tick in _ticks(self.across):
            x, _ = self.place(tick, self.up[0])
            svg.line("line", x, top, x, bottom, width)
            svg.text(x, bottom + 14, figures(tick), anchor="middle", css="small")
        for tick in _ticks(self.up):
            _, y = self.place(self.across[0], tick)
            svg.line("line", left, y, right, y, width)
            svg.text(left - 4, y + 4, figures(tick), anchor="end", css="small")
        svg.text((left + right) / 2, bottom + 30, under, anchor="middle", css="small")
        svg.text(left + 4, top + 12, over, css="small")


def _part(value: float, ends: Range) -> float:
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def _clipped(value: float, ends: Range) -> float:
    return min(max(value, ends[0]), ends[1])


def _ticks(ends: Range) -> list[float]:
    """Return the powers of ten in a range, or those of four if fewer than three."""
    tens = _powers(10.0, ends)
    return tens if len(tens) >= 3 else _powers(4.0, ends)


def _powers(base: float, ends: Range) -> list[float]:
    first, last = (math.log(end) / math.log(base) for end in ends)
    return [base**e for e in range(math.ceil(first - TOLERANCE), math.floor(last + TOLERANCE) + 1)]


@dataclass(frozen=True)
class Point:
    """A kernel's speed under the roofline, and what is said of it."""

    name: str
    intensity: float  # FLOP per byte
    gflops: float
    words: str


def roofed(gflops: float, gbytes: float, across: Range, up: Range, under: str, told: str = "") -> Axes:
    """Return axes of FLOP per byte (called `under`) and GFLOP/s with the roofs of a device, without points.

    `told` is what the text of the drawing says besides.
    """
    alt = f"Roofline: this device computes at most {figures(gflops)} GFLOP/s and moves {figures(gbytes)} GB/s{told}"
    axes = Axes(Svg(480, 400, alt), across, up)
    _, right, top, _ = axes.frame
    axes.draw(under, "GFLOP/s", 1)
    ridge = _clipped(gflops / gbytes, across)
    sloped = max(across[0], up[0] / gbytes)
    path = [axes.place(sloped, sloped * gbytes), axes.place(ridge, ridge * gbytes), axes.place(across[1], gflops)]
    axes.svg.path("text", path, 2)
    _, y = axes.place(across[1], gflops)
    axes.svg.text(right - 4, y - 8, f"peak: {figures(gflops)} GFLOP/s", anchor="end", css="small")
    axes.svg.text(54, top + 28, f"memory: {figures(gbytes)} GB/s", css="small")
    return axes


def roofline(gflops: float, gbytes: float, points: list[Point]) -> Svg:
    """Return the roofline of a device with points; their names are shifted so that they do not overlap."""
    ridge = gflops / gbytes
    xs = [ridge / 4, ridge * 4, *(p.intensity / 1.6 for p in points), *(p.intensity * 2.4 for p in points)]
    ys = [gflops * 2, gflops / 50, *(p.gflops / 1.8 for p in points), *(p.gflops * 1.8 for p in points)]
    ordered = sorted(points, key=lambda p: -p.gflops)
    told = "".join(f"; the fastest kernel, {p.name}, reached {figures(p.gflops)} GFLOP/s" for p in ordered[:1])
    axes = roofed(gflops, gbytes, (min(xs), max(xs)), (min(ys), max(ys)), "FLOP per byte of A, B and C", told)
    svg = axes.svg
    last = -math.inf
    for i, p in enumerate(ordered):
        best = " best" * (i == 0)
        x, y = axes.place(p.intensity, p.gflops)
        svg.dot(f"dot{best}", x, y, 4.5 if i else 6.5, p.words)
        last = max(y + 4, last + 13)
        left = x > svg.width * 0.72
        svg.text(x - 11 if left else x + 11, last, p.name, anchor="end" if left else "start", kind=f"name{best}")
    return svg
