"""Pictures of reductions: which elements neighbouring invocations load at once, and how they add up their sums."""

from __future__ import annotations

from typing import Any

from webmm.kernels.base import Kernel
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg

SECTOR = 8  # floats in the 32 bytes that GPUs load at least
ROWS, LENGTH = 8, 32  # the window on the array
SHOWN = 8  # invocations
CELL = 15.0


@drawn
def reduce_reads(kernel: Kernel[Any]) -> Svg:
    """Return the elements that one load instruction of the first invocations reads, and the sectors that it needs."""
    loads = first_loads(kernel)
    cells = {place for place, _ in loads}
    sectors = {(line, at // SECTOR) for line, at in cells}
    used = len(cells) / (SECTOR * len(sectors))
    who = "one invocation" if len({i for _, i in loads}) == 1 else f"{SHOWN} neighbouring invocations"
    said = f"{len(cells)} element{'s' * (len(cells) > 1)} in {len(sectors)} piece{'s' * (len(sectors) > 1)}"
    words = f"A load of {who} reads {said} of 32 bytes: {used:.0%} of what memory delivers is used."
    svg = Svg(LENGTH * CELL + 2, ROWS * CELL + 62, words)
    for line in range(ROWS):
        for at in range(LENGTH):
            kind = "band" if (line, at // SECTOR) in sectors else "faint"
            svg.rect(kind, 1 + at * CELL, 1 + line * CELL, CELL - 1, CELL - 1)
    for (line, at), invocation in loads:
        svg.rect("slab" if invocation else "mine", 1 + at * CELL, 1 + line * CELL, CELL - 1, CELL - 1)
    y = ROWS * CELL + 12
    legend = (("mine", "first invocation"), ("slab", "its neighbours"), ("band", "loaded with them"))
    for i, (kind, label) in enumerate(legend):
        svg.rect(kind, 1 + 150 * i, y, 11, 11)
        svg.text(18 + 150 * i, y + 10, label, css="small")
    along = "lines: elements k of one matrix, from left to right j" if "wx" in kernel.config else "lines: rows of x"
    svg.text(1, y + 28, f"{along}; one square: 4 bytes", css="small")
    svg.text(1, y + 45, f"{said}: {used:.0%} used", css="small")
    return svg


def first_loads(kernel: Kernel[Any]) -> list[tuple[tuple[int, int], int]]:
    """Return ((line, place), invocation) of each element that the first load of the first invocations reads."""
    config = kernel.config
    width = 1 if kernel.name in ("serial", "per_row") else 4
    found = []
    for i in range(1 if kernel.name == "serial" else SHOWN):
        for c in range(width):
            if "size" in config:  # an invocation per row
                place = (i, c)
            elif "per_row" in config:
                place = (i // config["per_row"], i % config["per_row"] + c * config["per_row"])
            else:
                place = (0, i * width + c)
            found.append((place, i))
    return found


@drawn
def reduce_tree(kernel: Kernel[Any]) -> Svg:
    """Return how the invocations of a workgroup add up their partial results, and where they wait for each other.

    Subgroups are drawn with four lanes.
    """
    lanes, step, left, combine = int(kernel.config["lanes"]), 34.0, 12.0, str(getattr(kernel, "combine", "tree"))
    levels = lanes.bit_length()
    waits = {"tree": range(levels), "subgroup": (2,), "alone": ()}[combine]
    words = f"{lanes} partial results become one in {levels - 1} steps, with {len(waits)} barriers."
    svg = Svg(left + lanes * step + 130, levels * 46 + 8, words.replace("1 barriers", "one barrier"))
    for level in range(levels):
        y, distance = 22 + level * 46, lanes >> level if combine == "tree" else 1 << level >> 1
        for lane in range(lanes):
            x, active = left + lane * step + 10, lane < lanes >> level if combine == "tree" else not lane % (1 << level)
            if level and active:
                svg.line("line", x, y - 39, x, y - 7)
                svg.line("line", x + distance * step, y - 39, x, y - 7)
            svg.dot("mine" if active else "faint", x, y, 7 if active else 4)
        if level in waits:
            svg.line("bad", left - 6, y + 13, left + lanes * step, y + 13, 1.5)
            svg.text(left + lanes * step + 6, y + 17, "barrier", kind="bad", css="small")
    return svg
