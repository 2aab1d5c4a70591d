"""What the invocations of the first stages do step by step on a small product, for the page to show one at a time.

Everything follows from the kernel's own grid, workgroup and tile. Rectangles of elements are [row, column, rows,
columns].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.tile_1d import Tile1D
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.workgroup_1d import Workgroup1D
from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.problems.gemm import Gemm, gemm

Rectangle = tuple[int, int, int, int]


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


def walk(kernel: GemmKernel, problem: Gemm) -> dict[str, Any]:
    """Return the operands, the invocations, and the steps of each.

    A step has the rectangles of A and of B that each invocation reads in it, and a kind: `load` from storage and add
    the products, `share`: copy from storage to workgroup memory, or `read`: from there, and add the products.
    """
    each = list(invocations(kernel, problem))
    return {
        "kernel": str(kernel),
        "a": [[(3 * i + 5 * j) % 7 - 3 for j in range(problem.k)] for i in range(problem.m)],
        "b": [[(2 * i + 3 * j) % 5 - 2 for j in range(problem.n)] for i in range(problem.k)],
        "invocations": [(one.workgroup, one.tile) for one in each],
        "steps": [
            {"kind": kind, "k": k, "reads": [_reads(kind, k, one) for one in each]}
            for kind, k in _steps(kernel, problem)
        ],
    }


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
