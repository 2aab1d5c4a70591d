"""The pieces of products whose operands stay in host memory, and are uploaded while the device multiplies.

A piece of C (all of C if it fits) is held on the device while pieces along k are uploaded and multiplied into it, a few
of its rows at a time.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Iterator

from webmm.cut.pieces import GRAIN, Lengths, Piece, Range, fitted, ranges
from webmm.dtypes import F32

LEAST_INNER = 256  # with a shorter piece of k, reading and writing the piece of C takes longer than multiplying
INNER = 1024  # length of a piece of k at which accessing C takes a twentieth of the time on a large GPU
INNERS = 8  # pieces of k; the first multiplication must wait for the first of them
MOVED = 2**24  # bytes of A in a piece: much less than the staging buffers, so that the host copies ahead of the device
FINISHED = 2**27  # bytes of C in a piece, which is downloaded when it is complete
LEAST_ROWS = 512  # rows that keep a large GPU busy
BATCH = string.ascii_uppercase  # the letters of a batch's axes
HELD = "held"  # the axis of a piece that says which rows of C the device holds
Sizes = tuple[int, int, int]  # m, n, k


def held_lengths(
    sizes: Sizes, itemsize: int, out_itemsize: int, memory: int, largest: int, separate_sum: bool = True
) -> Sizes:
    """Return (m, n, k) of pieces whose C is held on the device: `memory` bytes in all, and `largest` bytes each.

    Up to three quarters of the memory are for C (all of it, or two pieces) and, with `separate_sum`, for the partial
    sums, in float32 or the operands' longer type; the rest is for two pieces of A and two of B. With `separate_sum`, k
    is cut only if the memory requires it.
    """
    m, n, k = sizes
    sums = max(itemsize, F32.itemsize)

    def longer(of: Lengths) -> str:
        return "" if max(of["m"], of["n"]) == 1 else "m" if of["m"] > of["n"] else "n"

    def c_too_large(of: Lengths) -> str:
        c, slots = of["m"] * of["n"], 1 if (of["m"], of["n"]) == (m, n) else 2
        fits = c * (slots * out_itemsize + separate_sum * sums) <= memory * 3 // 4 and c * sums <= largest
        return "" if fits else longer(of)

    def operands_too_large(of: Lengths) -> str:
        moved, longest = (of["m"] + of["n"]) * of["k"] * itemsize, max(of["m"], of["n"]) * of["k"] * itemsize
        if 2 * moved <= memory // 4 and longest <= largest:
            return ""
        return "k" if of["k"] > (LEAST_INNER if longer(of) else 1) else longer(of)

    inner = k if separate_sum else min(k, max(INNER, -(-k // (INNERS * GRAIN)) * GRAIN))
    found = fitted({"m": m, "n": n, "k": inner}, lambda of: c_too_large(of) or operands_too_large(of))
    return found["m"], found["n"], found["k"]


def rows_at_a_time(held: Sizes, itemsize: int, out_itemsize: int) -> int:
    """Return how many rows of a held piece of C are computed at a time."""
    m, n, k = held

    def too_many(of: Lengths) -> str:
        rows = of["m"]
        return "m" if rows > LEAST_ROWS and (rows * k * itemsize > MOVED or rows * n * out_itemsize > FINISHED) else ""

    return fitted({"m": m}, too_many)["m"]


def streamed(
    batch: tuple[int, ...], sizes: Sizes, held: Sizes, rows: int, most: int, separate_sum: bool = False
) -> list[Piece]:
    """Return the pieces of a batch of products, in order, with at most `most` matrices each.

    The axes of the batch have the `BATCH` letters; `HELD` are the rows of C on the device.
    """
    cuts = [ranges(size, length) for size, length in zip(sizes, held, strict=True)]
    whole = all(len(cut) == 1 for cut in cuts)
    return [
        Piece(
            {**dict(zip(BATCH, group, strict=False)), HELD: kept, "m": at, "n": across, "k": inner},
            first=inner[0] == 0,
            last=inner[1] == sizes[2],
            apart=separate_sum and len(cuts[2]) > 1,
        )
        for group in _groups(batch, most if whole else 1)
        for kept, across, inner in itertools.product(*cuts)
        for at in ranges(kept[1] - kept[0], sizes[0] if whole and most > 1 else rows, kept[0])
    ]


def _groups(batch: tuple[int, ...], most: int) -> Iterator[tuple[Range, ...]]:
    """Yield ranges that cover the batch, with at most `most` matrices each."""
    if not batch:
        yield ()
        return
    within = math.prod(batch[1:])
    if within > most:
        for i in range(batch[0]):
            for rest in _groups(batch[1:], most):
                yield ((i, i + 1), *rest)
        return
    for at in ranges(batch[0], most // within):
        yield (at, *((0, length) for length in batch[1:]))
