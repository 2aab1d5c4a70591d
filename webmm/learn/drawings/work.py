"""Pictures of who computes what, and when: steps of a loop, turns of a grid, parts of k, and reads of a matrix."""

from __future__ import annotations

from typing import Any

from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg

STEPS = 3  # of the loop over k, in a picture of its time
TILES = 2048  # the side of the product whose tiles are shown
VECTORS = 8  # of a line of a matrix that a picture shows


@drawn
def schedule(*kernels: Any) -> Svg:
    """Return what memory and FMA units do during the first steps of kernels' loops along k."""
    svg = Svg(600, 24 + 84 * len(kernels), "")
    words = []
    for row, kernel in enumerate(kernels):
        ahead = "prefetch" in kernel.config
        words.append(f"{kernel.name} loads {'the next tiles while it multiplies' if ahead else 'and then multiplies'}")
        y = 8 + 84 * row
        svg.text(0, y + 12, kernel.name, css="code")
        svg.text(0, y + 36, "loads", css="small")
        svg.text(0, y + 58, "FMA units", css="small")
        for what, step, start, length in _times(ahead):
            x, kind = 70 + 40 * start, "slab" if what == "load" else "mine"
            top = y + (22 if what == "load" else 44)
            svg.rect(kind, x, top, 40 * length - 2, 18)
            svg.text(x + 20 * length, top + 13, f"tile {step}", anchor="middle", css="small")
    svg.text(70, svg.height - 6, "time →", css="small")
    svg.alt = f"Loads and FMAs over time: {'; '.join(words)}."
    return svg


def _times(ahead: bool) -> list[tuple[str, int, float, float]]:
    """Return (what, tile, start, length) for loads and multiplications of the first tiles."""
    load, multiply, found, now = 1.7, 2.2, [], 0.0
    for step in range(STEPS):
        if step == 0 or not ahead:
            found.append(("load", step, now, load))
            now += load
        if ahead:
            found.append(("load", step + 1, now, load))
        found.append(("multiply", step, now, multiply))
        now += multiply
    return found


@drawn
def turns(kernel: Any) -> Svg:
    """Return the tiles of a square C by the turn in which a workgroup of a fixed grid computes them."""
    rows, columns = TILES // kernel.bm, TILES // kernel.bn
    total, count = rows * columns, kernel.workgroups
    kinds = ("band", "tile", "slab", "faint")
    svg = Svg(330, 8 * rows + 62, "")
    for tile in range(total):
        row, column = place(tile, rows, columns, kernel.group)
        mine = tile % count == 0
        svg.rect("mine" if mine else kinds[tile // count % len(kinds)], 20 * column, 8 * row, 18.5, 6.5)
    y = 8 * rows + 8
    last = total - total // count * count
    for i, (kind, words) in enumerate(
        (("band", f"first turn: {min(count, total)} tiles"), ("tile", f"second: {last}"), ("mine", "of workgroup 0"))
    ):
        svg.rect(kind, 1, y + 17 * i, 11, 11)
        svg.text(18, y + 10 + 17 * i, words, css="small")
    svg.alt = (
        f"C of {TILES} by {TILES} is {total} tiles of {kernel.bm} by {kernel.bn}. {count} workgroups compute one each, "
        f"then {last} of them compute another."
    )
    return svg


def place(tile: int, rows: int, columns: int, group: int) -> tuple[int, int]:
    """Return the row and column of a tile by its number, as `locate_tile()` of the register tiles' layout does."""
    first = tile // (group * columns) * group
    height = min(rows - first, group)
    within = tile % (group * columns)
    return first + within % height, within // height


@drawn
def parts(kernel: Any) -> Svg:
    """Return the parts of k that slices and splits of a tile add up, and how they come together."""
    splits, slices = kernel.splits, kernel.slices
    kinds = ("slab", "band")
    width = 480.0 / splits
    svg = Svg(600, 150, "")
    svg.text(0, 34, "k of one tile", css="small")
    for split in range(splits):
        x, steps = 100 + width * split, 2 * slices
        for step in range(steps):
            svg.rect(kinds[step % slices % 2], x + step * (width - 8) / steps, 20, (width - 8) / steps - 1.5, 22)
        svg.text(x + width / 2 - 4, 12, f"workgroup {split}", anchor="middle", css="small")
        svg.line("line", x + width / 2 - 4, 46, x + width / 2 - 4, 64)
        svg.rect("tile", x + width / 2 - 24, 66, 40, 26)
        svg.line("line", x + width / 2 - 4, 94, 336, 116)
    svg.text(0, 83, "partial sums", css="small")
    svg.rect("mine", 316, 118, 40, 26)
    svg.text(0, 135, "tile of C", css="small")
    svg.text(366, 135, "added by a second dispatch", css="small")
    inner = f", {slices} slices in turn within each" if slices > 1 else ""
    svg.alt = (
        f"k is cut into {splits} parts, one for each workgroup{inner}; their partial sums are added to a tile of C."
    )
    return svg


@drawn
def reads(kernel: Any) -> Svg:
    """Return what neighbouring invocations read of a matrix that is contiguous along k, and of one that is not."""
    svg = Svg(600, 172, "")
    for panel, (title, sums) in enumerate(
        (
            ("contiguous along k: lanes", "all lanes add to one element of C"),
            ("contiguous along n: lanes", "a lane has four elements of C"),
        )
    ):
        left = 310 * panel
        svg.text(left, 12, title)
        for row in range(4):
            for vector in range(VECTORS):
                read = row == 0 if panel == 0 else True
                kind = "mine" if read and vector == 0 else "slab" if read else "faint"
                svg.rect(kind, left + 34 * vector, 34 + 20 * row, 32, 17)
                if row == 0:
                    svg.text(left + 34 * vector + 16, 28, f"{vector}", anchor="middle", css="small")
        svg.text(left, 130, "k →" if panel == 0 else "n →, k ↓", css="small")
        svg.text(left, 148, sums, css="small")
        parts = kernel.lanes if panel == 0 else kernel.groups
        svg.text(left, 166, f"{parts} partial sums of each element of C", css="small")
    svg.alt = (
        f"Contiguous along k: {kernel.lanes} lanes read neighbouring groups of four of a row, and add to one element. "
        f"Otherwise: they read neighbouring groups of four of four rows, and each has four elements of C; "
        f"{kernel.groups} groups take other rows."
    )
    return svg
