"""Plans for dividing a product among devices, and their predicted cost; used for real runs and for predictions.

C is cut into columns of rectangles, one rectangle per device, with an area proportional to the device's speed. Each
device receives a panel of A and one of B, so that nearly square rectangles move the fewest bytes. If the rectangles
would be long and narrow, k is cut as well, and its partial sums are added in a tree.

The time is a model: operations by rate and bytes by bandwidth, with panels uploaded during multiplications, and the
last tile of C downloaded when it is complete. docs/scaling.md compares it with measurements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webmm.calls.parts import GRAIN
from webmm.calls.stream import tile_shape
from webmm.dtypes import F32

START = 2e-3  # overhead (seconds) of doubling the number of devices: threads, buffers, first transfers


@dataclass(frozen=True)
class Worker:
    """A device, or a machine with one: operations/s, memory for tiles (bytes), bandwidth each way (bytes/s)."""

    rate: float
    memory: int = 2**31
    bandwidth: float = math.inf
    largest: int = 2**31 - 4  # bytes of the largest buffer


@dataclass(frozen=True)
class Share:
    """The work of one worker, given by its index: a rectangle of C, over a part of k."""

    worker: int
    rows: slice
    columns: slice
    inner: slice

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of rows and columns, and the length along k."""
        m, n, k = (each.stop - each.start for each in (self.rows, self.columns, self.inner))
        return m, n, k

    @property
    def flops(self) -> int:
        """The number of operations."""
        return 2 * math.prod(self.sizes)


@dataclass(frozen=True)
class Division:
    """The shares of all workers, and their predicted cost."""

    shares: tuple[Share, ...]
    splits: int  # parts of k whose results are summed
    seconds: float
    moved: int  # bytes uploaded to and downloaded from the devices
    efficiency: float  # achieved fraction of the total rate of all workers, idle ones included


@dataclass(frozen=True)
class Types:
    """The element size (bytes) of the operands and of the result."""

    itemsize: int = F32.itemsize
    out: int = F32.itemsize


def plan(
    m: int,
    n: int,
    k: int,
    workers: Sequence[Worker],
    types: Types = Types(),
    *,
    splits: bool = False,
    host: float = math.inf,
) -> Division:
    """Return the fastest plan for the product of an (m, k) and a (k, n) matrix, on all workers or the fastest of them.

    With `splits`, k may be cut. `host` is the total bandwidth to all workers, in bytes/s.
    """
    order = sorted(range(len(workers)), key=lambda i: -workers[i].rate)
    total = sum(worker.rate for worker in workers)
    best: Division | None = None
    for count, parts in _choices(len(workers), k if splits else 1):
        shares = tuple(_divided((m, n, k), workers, order[:count], parts))
        costs = [cost(share, workers[share.worker], types, parts) for share in shares]
        moved = sum(bytes for _, bytes in costs)
        seconds = max(max(seconds for seconds, _ in costs), moved / host) + START * math.log2(count)
        if best is None or seconds < best.seconds:
            best = Division(shares, parts, seconds, moved, 2 * m * n * k / total / seconds)
    assert best is not None, "at least one worker is required"
    return best


def _choices(workers: int, k: int) -> Iterator[tuple[int, int]]:
    """Yield (number of workers, parts of k): powers of two and all workers, each with every useful number of parts."""
    counts = sorted({workers, *(2**i for i in range(workers.bit_length()) if 2**i <= workers)})
    for count in counts:
        for parts in (2**i for i in range(count.bit_length())):
            if parts == 1 or (parts <= count and k // parts >= GRAIN):
                yield count, parts


def cost(share: Share, worker: Worker, types: Types, parts: int = 1) -> tuple[float, int]:
    """Return the seconds and bytes of one worker's share, including its part in summing `parts` parts of k."""
    m, n, k = share.sizes
    out = types.out if parts == 1 else F32.itemsize
    rows, columns, inner = tile_shape(m, n, k, types.itemsize, out, worker.memory, worker.largest, out != F32.itemsize)
    down, across = math.ceil(m / rows), math.ceil(n / columns)
    slices = down * across * math.ceil(k / inner)
    arriving = (m * across + n * down) * k * types.itemsize
    leaving = m * n * out
    sums = 2 * leaving * (parts - 1) // parts  # tree sum: each pair uploads and downloads one partial sum
    compute, come = share.flops / worker.rate, arriving / worker.bandwidth
    seconds = max(compute, come) + min(compute, come) / slices + leaving / (down * across) / worker.bandwidth
    seconds += sums * math.ceil(math.log2(parts) + 1) / worker.bandwidth if parts > 1 else 0.0
    return seconds, arriving + leaving + sums


def _divided(
    sizes: tuple[int, int, int], workers: Sequence[Worker], chosen: Sequence[int], parts: int
) -> Iterator[Share]:
    """Yield the shares of the `chosen` workers, assigned to the parts of k round-robin."""
    m, n, k = sizes
    teams = [chosen[i::parts] for i in range(parts)]
    rates = [sum(workers[i].rate for i in team) for team in teams]
    for team, inner in zip(teams, cuts(k, rates), strict=True):
        for worker, rows, columns in rectangles(m, n, [(i, workers[i].rate) for i in team]):
            if inner.stop > inner.start:
                yield Share(worker, rows, columns, inner)


def rectangles(m: int, n: int, rates: Sequence[tuple[int, float]]) -> Iterator[tuple[int, slice, slice]]:
    """Yield (worker, rows, columns): an (m, n) matrix divided by rate, fastest first, with the least perimeter."""
    by_columns, by_rows = _groups([rate for _, rate in rates], m, n), _groups([rate for _, rate in rates], n, m)
    transposed = by_rows[0] < by_columns[0]
    first = iter(rates)
    groups = [list(itertools.islice(first, size)) for size in (by_rows if transposed else by_columns)[1]]
    widths = cuts(m if transposed else n, [sum(rate for _, rate in group) for group in groups])
    for group, across in zip(groups, widths, strict=True):
        for (worker, _), along in zip(group, cuts(n if transposed else m, [rate for _, rate in group]), strict=True):
            rows, columns = (across, along) if transposed else (along, across)
            if rows.stop > rows.start and columns.stop > columns.start:
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


def cuts(length: int, weights: Sequence[float]) -> list[slice]:
    """Return slices that divide `length` in proportion to `weights`, at multiples of GRAIN if it is long enough."""
    grain = GRAIN if length >= 2 * GRAIN * len(weights) else 1
    total = sum(weights)
    ends = [round(length * end / total / grain) * grain for end in itertools.accumulate(weights)]
    ends[-1] = length
    return [slice(start, end) for start, end in itertools.pairwise([0, *ends])]
