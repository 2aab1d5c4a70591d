"""What the invocations of the first stages do step by step on a small product, for the page to show one at a time.

Everything follows from the kernel's own grid, workgroup and tile. Rectangles of elements are (row, column, rows,
columns). This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.tile_1d import Tile1D
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.workgroup_1d import Workgroup1D
from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.learn.drawings.svg import Svg
from webmm.problems.gemm import Gemm, gemm
from webmm.text import figures

Rectangle = tuple[int, int, int, int]
Reads = tuple[Rectangle, Rectangle]  # of A and of B
Matrix = list[list[int]]

SIDE = 200.0  # of a matrix, in units of the drawing
GAP = 18.0
KINDS = {
    "load": "loads from storage, and adds the products of",
    "share": "copies from storage to workgroup memory",
    "read": "reads from workgroup memory, and adds the products of",
}


class Invocation(NamedTuple):
    """An invocation: its workgroup, its place in it, and the elements of C that it computes."""

    workgroup: int
    x: int
    y: int
    tile: Rectangle


def shown() -> Iterator[tuple[GemmKernel, Gemm]]:
    """Yield the kernels that can be stepped through, with tiles that divide a small product into several workgroups."""
    for kernel in (Naive(), Workgroup1D(16), Workgroup2D(4, 4), Tile1D(wy=4, wx=1), Tile2D(wy=1, wx=2, tm=4)):
        yield kernel, gemm(8, 8, 8)
    yield Shared(8), gemm(16, 16, 16)


class Step(NamedTuple):
    """A step of all invocations at an inner index, by its kind: one of KINDS."""

    kind: str
    k: int
    reads: list[Reads]  # of each invocation


@dataclass(frozen=True)
class Walk:
    """The operands, the invocations, and what they do step by step."""

    kernel: str
    a: Matrix
    b: Matrix
    invocations: list[Invocation]
    steps: list[Step]

    @property
    def title(self) -> str:
        """The kernel and the sizes of the product."""
        return f"{self.kernel} on {len(self.a)}×{len(self.b[0])}×{len(self.b)}, step by step"

    def words(self, at: int, who: int) -> str:
        """Return what an invocation does in a step, and what it has done so far."""
        kind, _, reads = self.steps[at]
        workgroup, _, _, tile = self.invocations[who]
        a, b = reads[who]
        loads, fmas = self.work(at, who)
        only = f": {_named('C', tile)} = {self.sums(at, who)[0]}" * (_area(tile) == 1 and kind != "share")
        rate = f": {figures(loads / fmas)} per FMA" if fmas else ""
        barrier = " A barrier follows: the tiles are complete before anyone reads them." * (kind == "share")
        place = f"invocation {who} of {len(self.invocations)}, in workgroup {workgroup}"
        return (
            f"Step {at + 1} of {len(self.steps)}: {place}, {KINDS[kind]} {_named('A', a)} and {_named('B', b)}{only}. "
            f"So far it made {loads} loads from storage for {fmas} FMA{'' if fmas == 1 else 's'}{rate}.{barrier}"
        )

    def work(self, at: int, who: int) -> tuple[int, int]:
        """Return the loads from storage and the FMAs of an invocation up to a step."""
        done = [(each.kind, *each.reads[who]) for each in self.steps[: at + 1]]
        loads = sum(_area(a) + _area(b) for kind, a, b in done if kind != "read")
        return loads, sum(_area(a) * _area(b) for kind, a, b in done if kind != "share")

    def sums(self, at: int, who: int) -> list[int]:
        """Return the sums of an invocation's elements after a step, row by row."""
        row, column, rows, columns = self.invocations[who].tile
        inner = [each.k for each in self.steps[: at + 1] if each.kind != "share"]
        return [
            sum(self.a[i][k] * self.b[k][j] for k in inner)
            for i in range(row, row + rows)
            for j in range(column, column + columns)
        ]

    def picture(self, at: int, who: int) -> Svg:
        """Return A and B with what an invocation and its workgroup read in a step, and C with its sums."""
        kind, _, reads = self.steps[at]
        mine = self.invocations[who]
        mates = [i for i, each in enumerate(self.invocations) if each.workgroup == mine.workgroup]
        held = reads
        for each in self.steps[:at] if kind == "read" else ():  # what was copied last is in workgroup memory
            held = each.reads if each.kind == "share" else held
        svg = Svg(2 * SIDE + GAP + 2, 2 * SIDE + 2 * GAP, "A, B and C")
        far = SIDE + GAP
        for name, x, y, values, side in (("A", 1.0, far, self.a, 0), ("B", far, 1.0, self.b, 1)):
            marked = [*(("band", held[i][side]) for i in mates), ("slab", reads[who][side])]
            numbers = [(i, j, value) for i, row in enumerate(values) for j, value in enumerate(row)]
            _draw(svg, name, (x, y, SIDE / len(values)), len(values), marked, numbers)
        first, column, _, columns = mine.tile
        sums = [(first + i // columns, column + i % columns, each) for i, each in enumerate(self.sums(at, who))]
        tiles = [*(("tile", self.invocations[i].tile) for i in mates), ("mine", mine.tile)]
        _draw(svg, "C", (far, far, SIDE / len(self.a)), len(self.a), tiles, sums)
        return svg


def _draw(
    svg: Svg,
    name: str,
    at: tuple[float, float, float],
    count: int,
    marked: list[tuple[str, Rectangle]],
    numbers: list[tuple[int, int, int]],
) -> None:
    """Add a square matrix at `at`, (x, y, unit): rectangles by their kinds, and numbers by row and column."""
    x, y, unit = at
    for kind, (row, column, rows, columns) in [("faint", (0, 0, count, count)), *marked]:
        svg.rect(kind, x + column * unit, y + row * unit, columns * unit, rows * unit)
    for row, column, value in numbers:
        place = x + (column + 0.5) * unit, y + (row + 0.5) * unit + unit / 6
        svg.text(place[0], place[1], f"{value}", kind="cell", anchor="middle", size=unit / 2.2)
    if name == "B":
        svg.text(x - 13, y + SIDE / 2, name)
    else:
        svg.text(x + SIDE / 2, y + SIDE + 14, name)


def _area(rectangle: Rectangle) -> int:
    _, _, rows, columns = rectangle
    return rows * columns


def _named(name: str, rectangle: Rectangle) -> str:
    """Return the elements of a matrix in words, such as A[0–3, 2]."""
    row, column, rows, columns = rectangle
    return f"{name}[{_range(row, rows)}, {_range(column, columns)}]"


def _range(first: int, count: int) -> str:
    return f"{first}–{first + count - 1}" if count > 1 else f"{first}"


def walk(kernel: GemmKernel, problem: Gemm) -> Walk:
    """Return the steps of a kernel on a problem.

    A step has the rectangles of A and of B that each invocation reads in it, and a kind: `load` from storage and add
    the products, `share`: copy from storage to workgroup memory, or `read`: from there, and add the products.
    """
    each = list(invocations(kernel, problem))
    return Walk(
        str(kernel),
        [[(3 * i + 5 * j) % 7 - 3 for j in range(problem.k)] for i in range(problem.m)],
        [[(2 * i + 3 * j) % 5 - 2 for j in range(problem.n)] for i in range(problem.k)],
        each,
        [Step(kind, k, [_reads(kind, k, one) for one in each]) for kind, k in _steps(kernel, problem)],
    )


def walked(op: str, stage: str) -> Walk | None:
    """Return the steps of a stage, or None if it cannot be stepped through."""
    for kernel, problem in shown():
        if (kernel.op, kernel.name) == (op, stage):
            return walk(kernel, problem)
    return None


def invocations(kernel: GemmKernel, problem: Gemm) -> Iterator[Invocation]:
    """Yield the invocations, in the order of workgroups and of their index there; the tiles must divide C."""
    width = kernel.workgroup_size[0]
    rows, columns = kernel.register_tile or (1, 1)
    grid = kernel.grid
    across = 1 if grid.elements else problem.n // grid.tile_n
    workgroups = problem.m * problem.n // (kernel.invocations * rows * columns)
    for at in range(workgroups * kernel.invocations):
        workgroup, index = divmod(at, kernel.invocations)
        y, x = divmod(index, width)
        if grid.elements:
            row, column = divmod(at, problem.n)
        else:
            row = workgroup // across * grid.tile_m + y * rows
            column = workgroup % across * grid.tile_n + x * columns
        yield Invocation(workgroup, x, y, (row, column, rows, columns))


def _steps(kernel: GemmKernel, problem: Gemm) -> Iterator[tuple[str, int]]:
    """Yield kind and first inner index of each step."""
    if not kernel.workgroup_bytes:
        yield from (("load", k) for k in range(problem.k))
        return
    for first in range(0, problem.k, kernel.inner_step):
        yield "share", first
        yield from (("read", first + k) for k in range(kernel.inner_step))


def _reads(kind: str, k: int, one: Invocation) -> tuple[Rectangle, Rectangle]:
    row, column, rows, columns = one.tile
    if kind == "share":
        return (row, k + one.x, 1, 1), (k + one.y, column, 1, 1)
    return (row, k, rows, 1), (k, column, 1, columns)
