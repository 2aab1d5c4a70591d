"""The pieces of a product that is divided among devices, and their predicted time; for runs and for predictions.

C is cut into columns of rectangles, one rectangle per device, with an area proportional to the device's speed. Each
device receives rows of A and columns of B, so that nearly square rectangles move the fewest bytes. If the rectangles
would be long and narrow, k is cut as well, and its partial sums are added in a tree.

The time is a model: operations by rate and bytes by bandwidth, with operands uploaded during multiplications, and
the last held piece of C downloaded when it is complete. docs/scaling.md compares it with measurements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webmm.cut.pieces import GRAIN, Piece, Range, lengths_of
from webmm.cut.streams import Sizes, held_lengths
from webmm.dtypes import F32

START = 2e-3  # overhead (seconds) of doubling the number of devices: threads, buffers, first transfers


@dataclass(frozen=True)
class Worker:
    """A device, or a machine with one: operations/s, memory for pieces (bytes), bandwidth each way (bytes/s)."""

    rate: float
    memory: int = 2**31
    bandwidth: float = math.inf
    largest: int = 2**31 - 4  # bytes of the largest buffer


@dataclass(frozen=True)
class Division:
    """The pieces of all workers, one each, and their predicted cost."""

    pieces: tuple[Piece, ...]
    splits: int  # pieces of k whose results are summed
    seconds: float
    moved: int  # bytes uploaded to and downloaded from the devices
    efficiency: float  # achieved fraction of the total rate of all workers, idle ones included


@dataclass(frozen=True)
class Types:
    """The element size (bytes) of the operands and of the result."""

    itemsize: int = F32.itemsize
    out: int = F32.itemsize


def divided(
    sizes: Sizes,
    workers: Sequence[Worker],
    types: Types = Types(),
    *,
    splits: bool = False,
    host: float = math.inf,
) -> Division:
    """Return the fastest division of an (m, k) by (k, n) product among all workers, or the fastest of them.

    With `splits`, k may be cut. `host` is the total bandwidth to all workers, in bytes/s.
    """
    order = sorted(range(len(workers)), key=lambda i: -workers[i].rate)
    total = sum(worker.rate for worker in workers)
    best: Division | None = None
    m, n, k = sizes
    for count, splits_of_k in _choices(len(workers), k if splits else 1):
        pieces = tuple(_pieces(sizes, workers, order[:count], splits_of_k))
        costs = [cost(piece, workers[piece.worker], types, splits_of_k) for piece in pieces]
        moved = sum(bytes for _, bytes in costs)
        seconds = max(max(seconds for seconds, _ in costs), moved / host) + START * math.log2(count)
        if best is None or seconds < best.seconds:
            best = Division(pieces, splits_of_k, seconds, moved, 2 * m * n * k / total / seconds)
    assert best is not None, "at least one worker is required"
    return best


def _choices(workers: int, k: int) -> Iterator[tuple[int, int]]:
    """Yield (number of workers, pieces of k): powers of two and all workers, with every useful number of pieces."""
    counts = sorted({workers, *(2**i for i in range(workers.bit_length()) if 2**i <= workers)})
    for count in counts:
        for splits in (2**i for i in range(count.bit_length())):
            if splits == 1 or (splits <= count and k // splits >= GRAIN):
                yield count, splits


def cost(piece: Piece, worker: Worker, types: Types, splits: int = 1) -> tuple[float, int]:
    """Return the seconds and bytes of a worker's piece, including its part in summing `splits` pieces of k."""
    m, n, k = sizes = sizes_of(piece)
    out = types.out if splits == 1 else F32.itemsize
    rows, columns, inner = held_lengths(
        sizes, types.itemsize, out, worker.memory, worker.largest, separate_sum=out != F32.itemsize
    )
    down, across = math.ceil(m / rows), math.ceil(n / columns)
    steps = down * across * math.ceil(k / inner)
    arriving = (m * across + n * down) * k * types.itemsize
    leaving = m * n * out
    sums = 2 * leaving * (splits - 1) // splits  # tree sum: each pair uploads and downloads one partial sum
    compute, come = 2 * m * n * k / worker.rate, arriving / worker.bandwidth
    seconds = max(compute, come) + min(compute, come) / steps + leaving / (down * across) / worker.bandwidth
    seconds += sums * math.ceil(math.log2(splits) + 1) / worker.bandwidth if splits > 1 else 0.0
    return seconds, arriving + leaving + sums


def sizes_of(piece: Piece) -> Sizes:
    """Return the lengths of a product's piece: m, n and k."""
    lengths = lengths_of(piece)
    return lengths["m"], lengths["n"], lengths["k"]


def _pieces(sizes: Sizes, workers: Sequence[Worker], chosen: Sequence[int], splits: int) -> Iterator[Piece]:
    """Yield the pieces of the `chosen` workers, assigned to the pieces of k round-robin."""
    m, n, k = sizes
    teams = [chosen[i::splits] for i in range(splits)]
    rates = [sum(workers[i].rate for i in team) for team in teams]
    for team, inner in zip(teams, proportional(k, rates), strict=True):
        for worker, rows, columns in rectangles(m, n, [(i, workers[i].rate) for i in team]):
            if inner[1] > inner[0]:
                yield Piece({"m": rows, "n": columns, "k": inner}, worker=worker)


def rectangles(m: int, n: int, rates: Sequence[tuple[int, float]]) -> Iterator[tuple[int, Range, Range]]:
    """Yield (worker, rows, columns): an (m, n) matrix divided by rate, fastest first, with the least perimeter."""
    by_columns, by_rows = _groups([rate for _, rate in rates], m, n), _groups([rate for _, rate in rates], n, m)
    transposed = by_rows[0] < by_columns[0]
    first = iter(rates)
    groups = [list(itertools.islice(first, size)) for size in (by_rows if transposed else by_columns)[1]]
    widths = proportional(m if transposed else n, [sum(rate for _, rate in group) for group in groups])
    for group, across in zip(groups, widths, strict=True):
        for (worker, _), along in zip(
            group, proportional(n if transposed else m, [rate for _, rate in group]), strict=True
        ):
            rows, columns = (across, along) if transposed else (along, across)
            if rows[1] > rows[0] and columns[1] > columns[0]:
                yield worker, rows, columns


def _groups(rates: Sequence[float], m: int, n: int) -> tuple[float, list[int]]:
    """Return the half perimeter of all rectangles, and how many rectangles are in each column, at its minimum.

    A column of g rectangles contributes m for its rows, and g times its width.
    """
    total = sum(rates)
    before = [0.0, *itertools.accumulate(rate / total for rate in rates)]
    least: list[tuple[float, int]] = [
        (0.0, 0)
    ]  # for the first i workers: the minimum, and the start of its last column
    longest = math.ceil(4 * math.sqrt(len(rates) * m / n)) + 1  # the longest column to try
    for end in range(1, len(rates) + 1):
        least.append(
            min(
                (least[start][0] + (end - start) * (before[end] - before[start]) * n + m, start)
                for start in range(max(0, end - longest), end)
            )
        )
    sizes, end = [], len(rates)
    while end:
        start = least[end][1]
        sizes.append(end - start)
        end = start
    return least[-1][0], sizes[::-1]


def proportional(length: int, weights: Sequence[float]) -> list[Range]:
    """Return ranges that divide `length` in proportion to `weights`, at multiples of GRAIN if it is long enough."""
    grain = GRAIN if length >= 2 * GRAIN * len(weights) else 1
    total = sum(weights)
    ends = [round(length * end / total / grain) * grain for end in itertools.accumulate(weights)]
    ends[-1] = length
    return list(itertools.pairwise([0, *ends]))
