"""A picture of one step of one invocation: what it loads, and the sums that it adds to."""

from __future__ import annotations

from typing import Any

from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg

CELL = 34.0
GAP = 12.0


@drawn
def step(kernel: Any) -> Svg:
    """Return the elements of A, B and C that an invocation has in registers in a step of k, and how many loads and FMAs
    that is; of a stage with a `register_tile`.
    """
    rows, columns = kernel.register_tile
    loads, fmas = rows + columns, rows * columns
    left = top = CELL + GAP
    words = f"{loads} loads, {fmas} FMA{'s' if fmas > 1 else ''}"
    alt = f"In a step of k, an invocation loads {rows} of A and {columns} of B for {fmas} of C: {words}."
    svg = Svg(left + columns * CELL + 130, top + rows * CELL + 24, alt)

    def cell(kind: str, x: float, y: float) -> None:
        svg.rect(kind, x, y, CELL - 2, CELL - 2)

    for row in range(rows):
        cell("slab", 0, top + row * CELL)
        for column in range(columns):
            cell("mine", left + column * CELL, top + row * CELL)
    for column in range(columns):
        cell("slab", left + column * CELL, 0)
    right = left + columns * CELL + GAP
    svg.text(right, CELL / 2 + 4, f"{columns} of B[k, …]")
    svg.text(right, top + rows * CELL / 2, f"{fmas} of C: sums")
    svg.text(0, top + rows * CELL + 18, f"{rows} of A[…, k]  ·  {words}")
    return svg
