"""Pictures of a product's tiles: what of A, B and C a workgroup and one of its invocations touch.

This module is in the translated subset (docs/page.md): the page draws the kernel that its sliders choose.
"""

from __future__ import annotations

import math
from typing import Any

from webmm.kernels.base import Kernel
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg
from webmm.text import figures

SPAN = 220.0  # side of the window on C, in units of the drawing
GAP = 14.0
LEAST = 3.0  # width of the tiles whose borders are drawn


@drawn
def tile(kernel: Kernel[Any]) -> Svg:
    """Return the picture of a kernel's tile with what its colours mean below it."""
    svg = pictured(kernel)
    rows, columns, inner = tile_of(kernel)
    top = svg.height + 10
    svg.height += 62
    legend = (("tile", f"{rows} × {columns} of C per workgroup"), ("mine", f"{share_of(kernel)} per invocation"))
    for i, (kind, words) in enumerate((*legend, ("slab", f"a step of {inner} along k"))):
        svg.rect(kind, 1, top + 17 * i, 11, 11)
        svg.text(18, top + 10 + 17 * i, words, css="small")
    return svg


def pictured(kernel: Kernel[Any], borders: bool = False) -> Svg:
    """Return A, B and C with the tile of one workgroup, what it reads in a step, and the elements of one invocation.

    With matrix units, these are the elements of one subgroup. With `borders`, C has those of all tiles.
    """
    rows, columns, inner = tile_of(kernel)
    extent = min(256, max(32, 2 ** math.ceil(math.log2(3 * max(rows, columns)))))
    unit, depth = SPAN / extent, extent // 2
    row0, col0 = (rows if rows * 2 <= extent else 0), (columns if columns * 2 <= extent else 0)
    left = depth * unit + GAP
    step = min(inner, depth)
    k0 = step if step * 2 <= depth else 0
    size = f"A tile of {rows} by {columns} elements of C for each workgroup of {kernel.invocations} invocations"
    alt = f"{size}, {share_of(kernel)} for each {owner_of(kernel)}, in steps of {inner} along k."
    svg = Svg(left + SPAN + 2, left + SPAN + 2, alt)

    def boxes(x: float, y: float, *of: tuple[str, float, float, float, float]) -> None:
        for kind, column, row, w, h in of:
            svg.rect(kind, x + column * unit, y + row * unit, max(w * unit, 1.2), max(h * unit, 1.2))

    boxes(1, left, ("faint", 0, 0, depth, extent), ("band", 0, row0, depth, rows), ("slab", k0, row0, step, rows))
    boxes(left, 1, ("faint", 0, 0, extent, depth), ("band", col0, 0, columns, depth), ("slab", col0, k0, columns, step))
    boxes(left, left, ("faint", 0, 0, extent, extent))
    end, inner_end = left + SPAN, left - GAP
    if borders:
        for at in range(rows, extent, rows) if rows * unit >= LEAST else ():
            svg.line("border", left, left + at * unit, end, left + at * unit)
        for at in range(columns, extent, columns) if columns * unit >= LEAST else ():
            svg.line("border", left + at * unit, left, left + at * unit, end)
    boxes(left, left, ("tile", col0, row0, columns, rows))
    boxes(left, left, *[("mine", col0 + c, row0 + r, w, h) for r, c, h, w in _owned(kernel)])
    for name, x, y in (("A", inner_end, end), ("B", end, inner_end), ("C", end, end)):  # in the corner far from tiles
        svg.text(x - 6, y - 6, name, anchor="end")
    return svg


def owner_of(kernel: Any) -> str:
    """Return whose elements a picture shows."""
    return "subgroup" if kernel.matrix_shape else "invocation"


def share_of(kernel: Any) -> str:
    """Return what one invocation computes, or one subgroup with matrix units, in words."""
    if fragment := kernel.matrix_shape:
        return f"{kernel.config['sm']} × {kernel.config['sn']} of C in fragments of {fragment.m} × {fragment.n}"
    count = len(own(kernel))
    return f"{count} element" + "s" * (count > 1)


def legend(kernel: Any, itemsize: int, loaded: float) -> list[tuple[str, str]]:
    """Return what the colours mean, by the last word of their names.

    `itemsize` is that of an element of A in bytes, `loaded` what the kernel computes in FLOP per byte that it loads.
    """
    rows, columns, inner = tile_of(kernel)
    once = 2 * rows * columns / ((rows + columns) * itemsize)
    workgroup = f"workgroup of {kernel.invocations} invocation" + "s" * (kernel.invocations > 1)
    memory = f"steps of {inner} along k, {kernel.workgroup_bytes:,} bytes of workgroup memory"
    needed = f"what the tile needs of A and B: {figures(loaded)} FLOP per byte as loaded"
    return [
        ("tile", f"{rows} × {columns} of C per {workgroup}"),
        ("mine", f"{share_of(kernel)} per {owner_of(kernel)}"),
        ("slab", memory if kernel.workgroup_bytes else "no workgroup memory"),
        ("band", needed + f", {figures(once)} if it loaded each element once per tile" * (once > 1.1 * loaded)),
    ]


def tile_of(kernel: Any) -> tuple[int, int, int]:
    """Return the rows and columns of C that a workgroup computes, and its step along k."""
    grid = kernel.grid
    if elements := getattr(grid, "elements", 0):
        return 1, min(elements, 256), 1
    return grid.tile_m, grid.tile_n, kernel.inner_step


def _owned(kernel: Any) -> list[tuple[int, int, int, int]]:
    """Return row, column, height and width of what the first invocation or subgroup computes, within the tile."""
    if kernel.matrix_shape:
        return [(0, 0, kernel.config["sm"], kernel.config["sn"])]
    return [(row, column, 1, 1) for row, column in own(kernel)]


def own(kernel: Any) -> list[tuple[int, int]]:
    """Return row and column, within the tile, of the elements that the first invocation computes."""
    rows, columns, _ = tile_of(kernel)
    config = kernel.config
    if "lanes" in config and "tm" in config:  # a subgroup of ly rows of lanes: a lane's rows and vec4 are spread, too
        ly = int(config.get("ly", 1))
        lx = int(config["lanes"]) // ly
        return [(i * ly, j // 4 * lx * 4 + j % 4) for i in range(config["tm"]) for j in range(config["tn"])]
    total = getattr(kernel.grid, "elements", 0) or rows * columns
    each = max(1, round(total / kernel.sharers if hasattr(kernel, "sharers") else total / kernel.invocations))
    tm = min(rows, int(config.get("tm", each // 4 if each >= 4 else 1)))
    tn = max(1, each // tm)
    spread = "bk" in config and "tm" in config  # register tiles: 4×4 fragments, spread over the tile
    stride_m, stride_n = (rows // tm * 4, columns // tn * 4) if spread else (4, 4)
    return [(i // 4 * stride_m + i % 4, j // 4 * stride_n + j % 4) for i in range(tm) for j in range(tn)]
