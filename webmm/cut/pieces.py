"""Pieces, the limits that they keep, and the loop that finds their lengths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from webmm.problems.base import ALIGNMENT

GRAIN = 64  # cut at multiples of this if sizes allow, so that operands stay aligned and tiles whole
GRAINS = (GRAIN, 4, 1)
ALIGNED = (ALIGNMENT, *GRAINS)  # for pieces that start a binding: their rows stay aligned for it
Lengths = dict[str, int]  # by the letters of axes
Range = tuple[int, int]  # first, and one past the last
Demand = Callable[[Lengths], str]  # the axis to halve next, longer than 1; "" if there is no need, or no way


@dataclass(frozen=True)
class Limits:
    """What a piece may need: bytes of a binding, operations of a dispatch, and bytes of memory for what is moved."""

    binding: int
    flops: float
    memory: float = math.inf


@dataclass(frozen=True)
class Piece:
    """A range of each axis that is cut, and what the piece is among those that are added along summed axes.

    They are added in order, from the `first` to the `last`: in the result or, with `apart`, all but the last in another
    buffer, whose sums the last adds to its own. `problem` is what a dispatch computes; `worker` is the index of the
    device that does.
    """

    at: dict[str, Range]
    problem: Any = None
    first: bool = True
    last: bool = True
    apart: bool = False
    worker: int = 0


def fitted(whole: Lengths, demand: Demand, grains: tuple[int, ...] = GRAINS) -> Lengths:
    """Return the lengths of a piece: those of `whole`, halved until the demand is met.

    A half is rounded up to a multiple of the first grain that is less than it.
    """
    lengths = dict(whole)
    while axis := demand(lengths):
        length = lengths[axis]
        grain = next(grain for grain in grains if length > 2 * grain or grain == 1)
        lengths[axis] = -(-length // (2 * grain)) * grain
    return lengths


def ranges(length: int, step: int, start: int = 0) -> list[Range]:
    """Return ranges of `step` that cover [start, start + length); the last may be shorter."""
    return [(at, min(at + step, start + length)) for at in range(start, start + length, step)]


def grid(whole: Lengths, lengths: Lengths) -> Iterator[Piece]:
    """Yield the pieces of these lengths that cover `whole`, in row-major order."""
    for at in itertools.product(*(ranges(length, lengths[axis]) for axis, length in whole.items())):
        yield Piece(dict(zip(whole, at, strict=True)))


# For programs in Python; methods of `Piece` would be translated.


def elements(piece: Piece, axes: str) -> tuple[slice, ...]:
    """Return the index of the piece's elements in an array with these axes."""
    return tuple(slice(*piece.at[axis]) if axis in piece.at else slice(None) for axis in axes)


def lengths_of(piece: Piece) -> Lengths:
    """Return the length along each axis."""
    return {axis: stop - start for axis, (start, stop) in piece.at.items()}


def moved(piece: Piece, whole: Piece) -> Piece:
    """Return a piece that is counted from the start of `whole` as one counted from where `whole` is."""
    at = piece.at.items()
    return replace(
        piece, at={axis: (start + whole.at[axis][0], stop + whole.at[axis][0]) for axis, (start, stop) in at}
    )
