"""Pictures of a product's tiles: what of A, B and C a workgroup and one of its invocations touch."""

from __future__ import annotations

import math
from typing import Any

from webmm.kernels.base import Kernel
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg

SPAN = 220.0  # side of the window on C, in units of the drawing
GAP = 14.0


@drawn
def tile(kernel: Kernel[Any]) -> Svg:
    """Return A, B and C with the tile of one workgroup, what it reads in a step, and the elements of one invocation."""
    rows, columns, inner = tile_of(kernel)
    extent = min(256, max(32, 2 ** math.ceil(math.log2(3 * max(rows, columns)))))
    unit, depth = SPAN / extent, extent // 2
    row0, col0 = (rows if rows * 2 <= extent else 0), (columns if columns * 2 <= extent else 0)
    left = depth * unit + GAP
    step = min(inner, depth)
    k0 = step if step * 2 <= depth else 0
    mine = own(kernel)
    each = f"{len(mine)} element" + "s" * (len(mine) > 1)
    size = f"A tile of {rows} by {columns} elements of C for each workgroup of {kernel.invocations} invocations"
    alt = f"{size}, {each} for each invocation, in steps of {inner} along k."
    svg = Svg(left + SPAN + 2, left + SPAN + 64, alt)

    def boxes(x: float, y: float, *of: tuple[str, float, float, float, float]) -> None:
        for kind, column, row, w, h in of:
            svg.rect(kind, x + column * unit, y + row * unit, max(w * unit, 1.2), max(h * unit, 1.2))

    boxes(1, left, ("faint", 0, 0, depth, extent), ("band", 0, row0, depth, rows), ("slab", k0, row0, step, rows))
    boxes(left, 1, ("faint", 0, 0, extent, depth), ("band", col0, 0, columns, depth), ("slab", col0, k0, columns, step))
    boxes(left, left, ("faint", 0, 0, extent, extent), ("tile", col0, row0, columns, rows))
    boxes(left, left, *(("mine", col0 + c, row0 + r, 1, 1) for r, c in mine))
    end, inner_end = left + SPAN, left - GAP
    for name, x, y in (("A", inner_end, end), ("B", end, inner_end), ("C", end, end)):  # in the corner far from tiles
        svg.text(x - 6, y - 6, name, anchor="end")
    legend = (("tile", f"{rows} × {columns} of C per workgroup"), ("mine", f"{each} per invocation"))
    for i, (kind, words) in enumerate((*legend, ("slab", f"a step of {inner} along k"))):
        svg.rect(kind, 1, left + SPAN + 12 + 17 * i, 11, 11)
        svg.text(18, left + SPAN + 22 + 17 * i, words, css="small")
    return svg


def tile_of(kernel: Any) -> tuple[int, int, int]:
    """Return the rows and columns of C that a workgroup computes, and its step along k."""
    grid = kernel.grid
    if elements := getattr(grid, "elements", 0):
        return 1, min(elements, 256), 1
    return grid.tile_m, grid.tile_n, kernel.inner_step


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
