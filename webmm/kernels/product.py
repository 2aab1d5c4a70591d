"""Base classes of all product kernels: workgroups over tiles of C, and a loop over k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from webmm.kernels.base import LOOP_LIMIT, Kernel, P, ceil_div, fold
from webmm.kernels.sizes import Assumption, Condition, folded, multiples
from webmm.problems.product import Product

LONG_K_STEP = 16  # steps per iteration if a loop over single k would exceed LOOP_LIMIT

M = TypeVar("M", bound=Product)


@dataclass(frozen=True)
class Grid:
    """The workgroups that cover C, in tiles of (tile_m, tile_n), or in runs of `elements` of the flattened C.

    Workgroups are numbered along x, then y; z is the batch. With `at_most`, there are at most that many, and each
    computes several tiles.
    """

    tile_m: int = 1
    tile_n: int = 1
    elements: int = 0
    at_most: int = 0

    def tiles(self, problem: Product) -> int:
        """Return the number of tiles of one matrix of the batch."""
        if self.elements:
            return ceil_div(problem.m * problem.n, self.elements)
        return ceil_div(problem.m, self.tile_m) * ceil_div(problem.n, self.tile_n)

    def dispatch(self, problem: Product) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z), folded so that none exceeds 65,535."""
        count = self.tiles(problem)
        if self.at_most:
            count = min(count, self.at_most)
        return fold(count, problem.batch)

    def rule(self) -> dict[str, Any]:
        """Return the grid as data and in words, for hosts in other languages."""
        if self.elements:
            count, tile = f"ceil(m*n / {self.elements})", {"elements": self.elements}
        else:
            count = f"ceil(m / {self.tile_m}) * ceil(n / {self.tile_n})"
            tile = {"tile_m": self.tile_m, "tile_n": self.tile_n}
        if self.at_most:
            count = f"min({count}, {self.at_most})"
        return {**tile, "at_most": self.at_most or None, **folded(count, "batch")}

    def whole(self) -> Iterator[Assumption]:
        """Yield the sizes at which no tile is partial along the rows of C, and along its columns."""
        if not self.elements:  # runs of the flattened C are always guarded
            yield Assumption("edge_m", False, multiples(self.tile_m, "m"))
            yield Assumption("edge_n", False, multiples(self.tile_n, "n"))


class Tiled(Kernel[P]):
    """A kernel with the tunables bm, bn and bk: a (bm, bn) tile of C per workgroup, bk inner elements per step."""

    bm: int
    bn: int
    bk: int

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.bm, self.bn)

    @property
    def inner_step(self) -> int:
        """One tile."""
        return self.bk


@dataclass(frozen=True)
class ProductKernel(Kernel[M]):
    """A kernel whose workgroups compute tiles of C; subclasses define their size."""

    single_k: ClassVar[bool] = True  # whether it runs `matrix.k_loop` over single k, if its inner step is 1

    @property
    def grid(self) -> Grid:
        """The grid of workgroups over C."""
        return Grid()

    def grid_rule(self, spec: Any) -> dict[str, Any] | None:
        """Return the rule of `dispatch`, as data and in words for hosts in other languages."""
        del spec
        return self.grid.rule()

    def assumptions(self, choices: Any) -> Iterator[Assumption]:
        """Yield the sizes at which no tile is partial, and those at which no loop over single k is too long."""
        yield from self.grid.whole()
        yield Assumption("edge_k", False, multiples(self.whole_k(choices), "k"))
        loops = self.single_k and self.inner_step == 1
        yield Assumption("long_k", False, (Condition("k", at_most=LOOP_LIMIT),) if loops else ())

    def whole_k(self, choices: Any) -> int:
        """Return the number of which k must be a multiple for the last step to be whole."""
        del choices
        return self.inner_step

    def dispatch(self, problem: M) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z)."""
        return self.grid.dispatch(problem)

    @property
    def inner_step(self) -> int:
        """Inner elements per step of the loop over k."""
        return 1

    @property
    def least_k(self) -> int:
        """Inner elements with which every workgroup has one step."""
        return self.inner_step

    def iterations(self, problem: M) -> int:
        """Return how many iterations the loop over k runs."""
        step = LONG_K_STEP if self.inner_step == 1 and problem.k > LOOP_LIMIT else self.inner_step
        return ceil_div(problem.k, step)


def aligned(operand: str, contiguous: str, to: int, *strides: str) -> tuple[Condition, ...]:
    """Return the conditions that every `to` adjacent elements of an operand can be loaded at once.

    `contiguous` is the size along which it is contiguous; `strides` are its other strides, besides ld and offset.
    """
    return multiples(to, contiguous, f"ld{operand}", f"{operand}_offset", *strides)


def by_fours(operands: int, stored: tuple[Condition, ...]) -> Iterator[Assumption]:
    """Yield the sizes at which C, for which those are `stored`, and so many operands of its function are vec4."""
    yield Assumption("vec_c", True, stored)
    places = [
        each
        for y in (f"y{i}" for i in range(operands))
        for each in (*multiples(4, f"{y}.x", f"{y}.y", f"{y}.z"), Condition(f"{y}.w", equals=1))
    ]
    if places:
        yield Assumption("vec_y", True, (*stored, *places))


def place(
    operand: str,
    rows: str,
    columns: str,
    transposed: bool = False,
    *,
    batched: bool = False,
    ld: str = "",
    offset: bool = True,
) -> tuple[str, str]:
    """Return the place of an operand's element (row, column) of matrix z, and the number of its elements, as formulas.

    `ld` is its row stride as stored, by default the member of that name.
    """
    stride = ld or f"ld{operand}"
    outer, inner = ("column", "row") if transposed else ("row", "column")
    lines, length = (columns, rows) if transposed else (rows, columns)
    first = [f"{operand}_offset"] if offset else []
    where = [*first, *([f"z * {operand}_batch_stride"] if batched else []), f"{outer} * {stride}", inner]
    matrices = [f"(batch - 1) * {operand}_batch_stride"] if batched else []
    return " + ".join(where), " + ".join([*first, *matrices, f"({lines} - 1) * {stride}", length])
