"""Small SVG drawings that are readable in light and dark, without scripts."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

# Colours of what a drawing shows, in light and in dark: matrices, tiles, what one invocation has, bands, warnings.
COLOURS = {
    "line": ("#8a94a6", "#6b7688"),
    "text": ("#1d2433", "#e4e8f0"),
    "faint": ("#e9edf4", "#232b3a"),
    "band": ("#cfe3ff", "#1f3a5f"),
    "slab": ("#7fb2ff", "#3f78c9"),
    "tile": ("#ffd9a8", "#6b4a1d"),
    "mine": ("#e8590c", "#ff922b"),
    "good": ("#2b8a3e", "#51cf66"),
    "bad": ("#c92a2a", "#ff6b6b"),
}


def _style() -> str:
    def rules(dark: int) -> str:
        return "".join(
            f".{name}{{fill:{pair[dark]}}}.{name}-line{{stroke:{pair[dark]};fill:none}}"
            for name, pair in COLOURS.items()
        )

    font = "text{font:13px system-ui,sans-serif}.small{font-size:11px}.code{font-family:ui-monospace,monospace}"
    return f"<style>{font}{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}</style>"


@dataclass
class Svg:
    """A drawing of `width` × `height` units with a text for those who do not see it."""

    width: float
    height: float
    alt: str
    parts: list[str] = field(default_factory=list)

    def rect(self, kind: str, x: float, y: float, w: float, h: float, *, outline: bool = False) -> None:
        """Add a rectangle in a colour of COLOURS; with `outline`, its border alone."""
        name = f"{kind}-line" if outline else kind
        self.parts.append(f'<rect class="{name}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}"/>')

    def line(self, kind: str, x1: float, y1: float, x2: float, y2: float, width: float = 1) -> None:
        """Add a line."""
        at = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
        self.parts.append(f'<line class="{kind}-line" stroke-width="{width:g}" {at}/>')

    def path(self, kind: str, points: list[tuple[float, float]], width: float = 1.5) -> None:
        """Add a line through points."""
        d = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path class="{kind}-line" stroke-width="{width:g}" d="{d}"/>')

    def dot(self, kind: str, x: float, y: float, r: float = 4) -> None:
        """Add a filled circle."""
        self.parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{r:g}"/>')

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = "text", css: str = "") -> None:
        """Add a line of text whose base line starts, has its middle or ends at (x, y)."""
        classes = f"{kind} {css}".strip()
        self.parts.append(
            f'<text class="{classes}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{html.escape(words)}</text>'
        )

    def __str__(self) -> str:
        label = html.escape(self.alt, quote=True)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}"'  # else it would fill any column
        head += f' viewBox="0 0 {self.width:g} {self.height:g}" role="img"'
        return f'{head} aria-label="{label}">{_style()}{"".join(self.parts)}</svg>\n'
