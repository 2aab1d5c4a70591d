"""Ops on matrices in files: the elements that a piece reads and writes in webmm.js, and what Python does alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webmm.arguments.arrays import element_of
from webmm.cut.arrays import Extents, array_pieces
from webmm.cut.pieces import Limits, Range
from webmm.errors import ProblemError

Shape = tuple[int, int]
LONGEST = 8  # bytes of an element of a result, at most


def side_of(axis: int) -> int:
    """Return the axis of a matrix, counted from the first; raises ProblemError for another one."""
    if axis not in (-2, -1, 0, 1):
        raise ProblemError(f"axis {axis} is out of range for a matrix; choose 0 or 1")
    return axis % 2


def letters_of(op: str, axis: int) -> list[str]:
    """Return the letters of the operands' axes: m and n are those of the result; k is summed, or the axis of the op."""
    return ["mk", "kn"] if op == "gemm" else ["mk" if axis else "kn"]


def check_inner(a: Shape, b: Shape, names: Sequence[object] = "AB") -> None:
    """Raise ProblemError unless matrices of these shapes, called `names`, have a product."""
    if a[1] != b[0]:
        raise ProblemError(f"{names[0]} has {a[1]} columns, {names[1]} has {b[0]} rows; they must be equal")


@dataclass(frozen=True)
class FilePiece:
    """The rows and columns that a piece reads of each operand, and the first element that it computes of the result.

    With `partial`, it is one of those that are added along k; the `last` of these completes the sum.
    """

    reads: list[tuple[Range, Range]]
    row: int
    column: int
    partial: bool
    last: bool


def result_shape(op: str, axis: int, operands: Sequence[Any]) -> Shape:
    """Return the shape of the result of an op on files; a reduction keeps its axis, with length 1.

    Raises ProblemError for operands that do not fit.
    """
    (m, k), (_, n) = operands[0].shape, operands[-1].shape
    if op.startswith("reduce:"):
        return (m, 1) if axis else (1, n)
    if op == "gemm":
        a, b = operands
        if a.dtype != b.dtype:
            raise ProblemError(f"A is {a.dtype}, B is {b.dtype}; cast one of them")
        check_inner((m, k), b.shape)
    return m, n


def file_pieces(op: str, axis: int, operands: Sequence[Any], limits: Limits) -> Iterator[FilePiece]:
    """Yield the pieces of an op on matrices in files, `fortran` ones by columns; those along k follow each other."""
    letters = letters_of(op, axis)
    result = Extents("mn", result_shape(op, axis, operands), LONGEST, moved=True)
    along, inner = "mnk" if op == "gemm" else "m" if axis else "n", operands[0].shape[1]
    arrays = [_extents(axes, x) for axes, x in zip(letters, operands, strict=True)]
    for piece in array_pieces([*arrays, result], along, "", limits, 0):
        at = piece.at
        reads = [_ranges(at, axes, x.shape) for axes, x in zip(letters, operands, strict=True)]
        (start, stop), row, column = at.get("k", (0, inner)), at.get("m", (0, 0))[0], at.get("n", (0, 0))[0]
        yield FilePiece(reads, row, column, stop - start < inner, stop == inner)


def _extents(axes: str, x: Any) -> Extents:
    """Return an operand in the order in which its file has its axes."""
    (m, n), itemsize = x.shape, element_of(x).itemsize
    return Extents(axes[1] + axes[0], (n, m), itemsize, True) if x.fortran else Extents(axes, (m, n), itemsize, True)


def _ranges(at: Mapping[str, Range], axes: str, shape: Shape) -> tuple[Range, Range]:
    """Return the rows and the columns that a piece needs of a matrix with these axes."""
    return at.get(axes[0], (0, shape[0])), at.get(axes[1], (0, shape[1]))
