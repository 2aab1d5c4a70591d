"""The dispatches of a float matrix product: a piece for each, within the limits of one.

Along the batch, m and n, pieces are independent products; along k, they are partial products that are added.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from webmm.cut.pieces import GRAIN, Limits, Piece, fitted, ranges
from webmm.kernels.base import INDEX_LIMIT
from webmm.problems.base import ALIGNMENT
from webmm.problems.gemm import Gemm
from webmm.problems.product import Operand, spread_extents
from webmm.wgsl.epilogues import OF_WHOLE_SUMS

Asked = Callable[[Gemm, Limits], str]  # what a kernel asks of a cut: the axis along which it needs one, or ""


@functools.lru_cache(maxsize=1024)
def dispatches(problem: Gemm, limits: Limits, asked: Asked) -> tuple[Piece, ...]:
    """Return the dispatches that compute `problem`, in order; one, unless it exceeds the limits.

    A piece that cannot be cut further may exceed them; the kernels' check() gives the reason.
    """
    return tuple(_cut(Piece({axis: (0, getattr(problem, axis)) for axis in Gemm.cuttable}, problem), limits, asked))


def _cut(piece: Piece, limits: Limits, asked: Asked) -> list[Piece]:
    axis = _next(piece.problem, limits, asked)
    pieces = _along(piece, axis, limits, asked) if axis else []
    if len(pieces) <= 1:
        return [piece]
    return _summed(piece.problem, pieces) if axis == "k" else [x for each in pieces for x in _cut(each, limits, asked)]


def _along(piece: Piece, axis: str, limits: Limits, asked: Asked) -> list[Piece]:
    """Cut a piece along `axis` into equal pieces (the last may be shorter) that need no further cut along it."""
    start, stop = piece.at[axis]

    def pieces(length: int) -> list[Piece]:
        return [
            replace(
                piece, at={**piece.at, axis: (first, end)}, problem=piece.problem.cut(axis, first - start, end - first)
            )
            for first, end in ranges(stop - start, length, start)
        ]

    def named(lengths: dict[str, int]) -> str:
        more = lengths[axis] > 1 and any(_next(x.problem, limits, asked) == axis for x in pieces(lengths[axis]))
        return axis if more else ""

    return pieces(fitted({axis: stop - start}, named)[axis])


def _summed(whole: Gemm, pieces: list[Piece]) -> list[Piece]:
    """Return the pieces along k, which are added: in C, or, if C cannot hold partial sums, in a separate buffer."""
    found = []
    for i, piece in enumerate(pieces):
        first, last = i == 0, i == len(pieces) - 1
        problem = replace(piece.problem, **_terms(whole, first, last))
        found.append(replace(piece, problem=problem, first=first, last=last, apart=whole.sums_apart))
    return found


def _terms(whole: Gemm, first: bool, last: bool) -> dict[str, Any]:
    """Return what differs from the whole product in the terms of a piece along k."""
    if whole.sums_apart and last:
        return {"bias": "matrix", "bias_offset": 0}
    terms: dict[str, Any] = {} if first else {"beta": 1.0, "bias": ""}
    if not whole.sums_apart:
        return terms
    return {"beta": 0.0, **terms, "out_dtype": whole.dtype.sums, "c": Operand(whole.n), **OF_WHOLE_SUMS}


def longest(p: Gemm) -> str:
    """Return m or n, the longer one; m if the rows of a bias depend on n."""
    return "m" if p.bias == "matrix" or p.m >= p.n else "n"


def _next(p: Gemm, limits: Limits, asked: Asked) -> str:
    """Return the axis along which `p` must be cut next, or ""; k comes last, since its pieces must be added."""
    axes = _too_large(p, limits) or {asked(p, limits) or _too_long(p, limits)}
    if axes == {"k"}:
        if p.batch > 1:
            return "batch"
        row = p.n * p.dtype.sums.itemsize
        if p.sums_apart and p.m * row > limits.binding:
            return "m" if row <= limits.binding else "n"
    return next((axis for axis in Gemm.cuttable if axis in axes), "")


def _too_large(p: Gemm, limits: Limits) -> set[str]:
    """Return the axes to cut for operands that exceed a binding or an index.

    An operand is cut between its stored rows, or along them if a single row is too large.
    """
    axes = set()
    for extent, (_, operand, *_), (outer, inner) in zip(p.buffers(), p.operands(), p.axes, strict=False):
        if extent.nbytes <= limits.binding and extent.end - extent.first <= INDEX_LIMIT:
            continue
        if p.batch > 1 and operand.batch_stride:
            axes.add("batch")
        else:
            row = getattr(p, inner) * extent.dtype.itemsize + 2 * ALIGNMENT
            within = getattr(p, outer) == 1 or (outer == "k" and row > limits.binding)
            axes.add(inner if within else outer)
    return axes | _too_spread(p, limits)


def _too_spread(p: Gemm, limits: Limits) -> set[str]:
    """Return the axes to cut for operands of the epilogue that exceed a binding or an index."""
    axes = set()
    for extent, spread in zip(spread_extents(p), p.spreads, strict=True):
        if extent.nbytes > limits.binding or extent.end - extent.first > INDEX_LIMIT:
            reach = {"batch": (p.batch - 1) * spread.batch, "m": (p.m - 1) * spread.row, "n": (p.n - 1) * spread.column}
            axes.add(max([(reach[axis], axis) for axis in reach])[1])
    return axes


def _too_long(p: Gemm, limits: Limits) -> str:
    """Return the axis to cut for a dispatch that would take too long, or ""."""
    if p.flops <= limits.flops:
        return ""
    axis = longest(p)
    return "batch" if p.batch > 1 else axis if getattr(p, axis) > 4 * GRAIN or p.k == 1 else "k"
