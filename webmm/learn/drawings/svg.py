"""Small SVG drawings that are readable in light and dark, without scripts.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

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

    def dot(self, kind: str, x: float, y: float, r: float = 4, words: str = "") -> None:
        """Add a filled circle, and words that a pointer over it shows."""
        circle = f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{r:g}"'
        self.parts.append(f"{circle}><title>{escaped(words)}</title></circle>" if words else f"{circle}/>")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        kind: str = "text",
        css: str = "",
        size: float = 0,
    ) -> None:
        """Add a line of text whose base line starts, has its middle or ends at (x, y)."""
        at = f'class="{f"{kind} {css}".strip()}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        sized = f' font-size="{size:g}"' if size else ""
        self.parts.append(f"<text {at}{sized}>{escaped(words)}</text>")

    def plain(self, kind: str = "") -> str:
        """Return the drawing, of a class, without styles of its own, for a page that has them."""
        box = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img"' + (f' class="{kind}"' if kind else "")
        return f'{head} aria-label="{escaped(self.alt)}">{"".join(self.parts)}</svg>'

    def __str__(self) -> str:
        sized = self.plain().replace(" viewBox", f' width="{self.width:g}" viewBox', 1)  # else it would fill any column
        return f"{sized.replace('>', f'>{_style()}', 1)}\n"


def escaped(text: str) -> str:
    """Return `text` as part of an element or of an attribute in quotes."""
    for plain, reference in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(plain, reference)
    return text
