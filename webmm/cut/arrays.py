"""The pieces of a call's operands and results, which are moved to a device and back or read and written in place."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from webmm.cut.pieces import ALIGNED, Lengths, Limits, Piece, fitted, grid
from webmm.errors import UnsupportedError
from webmm.problems.base import ALIGNMENT


@dataclass(frozen=True)
class Extents:
    """The shape of an operand or a result, with a letter for each axis; arrays are cut together along equal letters.

    `moved` says that its pieces are copied between the host and the device.
    """

    axes: str
    shape: tuple[int, ...]
    itemsize: int
    moved: bool

    def nbytes(self, lengths: Lengths) -> int:
        """Return the bytes of a piece of these lengths."""
        axes = zip(self.axes, self.shape, strict=True)
        return math.prod([lengths.get(letter, length) for letter, length in axes]) * self.itemsize

    def bound(self, lengths: Lengths, whole: Lengths) -> int:
        """Return the bytes of a binding for a piece, which may have to start before its data."""
        found = self.nbytes(lengths)
        return found + (2 * ALIGNMENT if found < self.nbytes(whole) and not self.moved else 0)


def array_pieces(arrays: list[Extents], along: str, each: str, limits: Limits, flops: float) -> Iterable[Piece]:
    """Return the pieces of a call of `flops` operations: cut along the axes `along` if it must be, to 1 along `each`.

    Each array is cut along its outermost axis that can be cut, so that its pieces are contiguous. Raises
    UnsupportedError if the smallest piece exceeds a binding.
    """
    known = {letter: length for one in arrays for letter, length in zip(one.axes, one.shape, strict=True)}
    whole = {letter: known[letter] for letter in each + along}

    def asked(lengths: Lengths) -> str:
        large = [one for one in arrays if one.bound(lengths, whole) > limits.binding]
        moved = sorted([one for one in arrays if one.moved], key=lambda one: -one.nbytes(lengths))
        slots = 1 if lengths == whole else 2  # two pieces may be on the device at a time
        if not large and slots * sum([one.nbytes(lengths) for one in moved]) > limits.memory:
            large = moved
        letters = [letter for one in large for letter in one.axes]
        if not large and flops / limits.flops * math.prod([lengths[x] / whole[x] for x in whole]) > 1:
            letters = [*[x for x in lengths if lengths[x] > ALIGNMENT], *lengths]
        return next((x for x in letters if lengths.get(x, 1) > 1), "")

    lengths = fitted({x: 1 if x in each else whole[x] for x in whole}, asked, ALIGNED)
    largest = max([one.nbytes(lengths) for one in arrays])
    if largest > limits.binding:
        raise UnsupportedError(
            f"the smallest piece takes {largest:,} bytes, a binding and a buffer hold {limits.binding:,} "
            "(max-storage-buffer-binding-size, max-buffer-size)"
        )
    return [Piece({})] if lengths == whole else grid(whole, lengths)
