"""How a product is divided among devices, and what that takes: one function, for real runs and for plans on paper.

C is cut into a rectangle for each device, in columns of rectangles, as large as the device is fast. What then moves is
a panel of A and one of B to each, so that squarish rectangles move least. Where they would be few and long, k is cut as
well, and what its parts give is added up, two by two.

Time is modelled, not known: operations by rate, bytes by bandwidth, panels on their way while others are multiplied,
and the last tile of C leaving when it is whole. docs/scaling.md says how that compares with what was measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webmm.calls.parts import GRAIN
from webmm.calls.stream import tile_shape
from webmm.dtypes import F32

START = 2e-3  # seconds that twice as many devices cost: threads, their buffers, the first bytes


@dataclass(frozen=True)
class Worker:
    """A device, or a machine with one: operations per second, bytes that tiles may take, bytes per second each way."""

    rate: float
    memory: int = 2**31
    bandwidth: float = math.inf
    largest: int = 2**31 - 4  # bytes of one buffer


@dataclass(frozen=True)
class Share:
    """What a worker, by its number, computes: a rectangle of C, over a part of k."""

    worker: int
    rows: slice
    columns: slice
    inner: slice

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and length of k."""
        m, n, k = (each.stop - each.start for each in (self.rows, self.columns, self.inner))
        return m, n, k

    @property
    def flops(self) -> int:
        """Operations."""
        return 2 * math.prod(self.sizes)


@dataclass(frozen=True)
class Plan:
    """Who computes what, and the model's word on it."""

    shares: tuple[Share, ...]
    splits: int  # parts of k that are added up
    seconds: float
    moved: int  # bytes, to the devices and from them
    efficiency: float  # of all workers' rates, those included that have nothing to do


@dataclass(frozen=True)
class Types:
    """Bytes of an element of the operands, and of the result."""

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
) -> Plan:
    """Return the plan of least time for an (m, k) times a (k, n) matrix: by all workers, or by the fastest of them.

    With `splits` k may be cut. `host` is how many bytes per second all workers together can be sent.
    """
    order = sorted(range(len(workers)), key=lambda i: -workers[i].rate)
    total = sum(worker.rate for worker in workers)
    best: Plan | None = None
    for count, parts in _choices(len(workers), k if splits else 1):
        shares = tuple(_divided((m, n, k), workers, order[:count], parts))
        costs = [cost(share, workers[share.worker], types, parts) for share in shares]
        moved = sum(bytes for _, bytes in costs)
        seconds = max(max(seconds for seconds, _ in costs), moved / host) + START * math.log2(count)
        if best is None or seconds < best.seconds:
            best = Plan(shares, parts, seconds, moved, 2 * m * n * k / total / seconds)
    assert best is not None, "there is a worker at least"
    return best


def _choices(workers: int, k: int) -> Iterator[tuple[int, int]]:
    """Yield how many workers, and among how many parts of k: one alone, then twice as many, and all."""
    counts = sorted({workers, *(2**i for i in range(workers.bit_length()) if 2**i <= workers)})
    for count in counts:
        for parts in (2**i for i in range(count.bit_length())):
            if parts == 1 or (parts <= count and k // parts >= GRAIN):
                yield count, parts


def cost(share: Share, worker: Worker, types: Types, parts: int = 1) -> tuple[float, int]:
    """Return seconds and bytes of what one worker does, its part in adding up `parts` of k included."""
    m, n, k = share.sizes
    out = types.out if parts == 1 else F32.itemsize
    rows, columns, inner = tile_shape(m, n, k, types.itemsize, out, worker.memory, worker.largest, out != F32.itemsize)
    down, across = math.ceil(m / rows), math.ceil(n / columns)
    slices = down * across * math.ceil(k / inner)
    arriving = (m * across + n * down) * k * types.itemsize
    leaving = m * n * out
    sums = 2 * leaving * (parts - 1) // parts  # of a tree: a sum comes and goes for each pair
    compute, come = share.flops / worker.rate, arriving / worker.bandwidth
    seconds = max(compute, come) + min(compute, come) / slices + leaving / (down * across) / worker.bandwidth
    seconds += sums * math.ceil(math.log2(parts) + 1) / worker.bandwidth if parts > 1 else 0.0
    return seconds, arriving + leaving + sums


def _divided(
    sizes: tuple[int, int, int], workers: Sequence[Worker], chosen: Sequence[int], parts: int
) -> Iterator[Share]:
    """Yield the shares of the `chosen` workers, dealt out to parts of k in turn."""
    m, n, k = sizes
    teams = [chosen[i::parts] for i in range(parts)]
    rates = [sum(workers[i].rate for i in team) for team in teams]
    for team, inner in zip(teams, cuts(k, rates), strict=True):
        for worker, rows, columns in rectangles(m, n, [(i, workers[i].rate) for i in team]):
            if inner.stop > inner.start:
                yield Share(worker, rows, columns, inner)


def rectangles(m: int, n: int, rates: Sequence[tuple[int, float]]) -> Iterator[tuple[int, slice, slice]]:
    """Yield (worker, rows, columns): an (m, n) matrix divided by rate, fastest first, with the least perimeter."""
    upright, lying = _groups([rate for _, rate in rates], m, n), _groups([rate for _, rate in rates], n, m)
    turned = lying[0] < upright[0]
    first = iter(rates)
    groups = [list(itertools.islice(first, size)) for size in (lying if turned else upright)[1]]
    widths = cuts(m if turned else n, [sum(rate for _, rate in group) for group in groups])
    for group, across in zip(groups, widths, strict=True):
        for (worker, _), along in zip(group, cuts(n if turned else m, [rate for _, rate in group]), strict=True):
            rows, columns = (across, along) if turned else (along, across)
            if rows.stop > rows.start and columns.stop > columns.start:
                yield worker, rows, columns


def _groups(rates: Sequence[float], m: int, n: int) -> tuple[float, list[int]]:
    """Return the sizes of groups, each a column of rectangles, and the sum of rows and columns of all rectangles.

    A column of g rectangles has m rows in all, and its width g times.
    """
    total = sum(rates)
    before = [0.0, *itertools.accumulate(rate / total for rate in rates)]
    least: list[tuple[float, int]] = [(0.0, 0)]  # for so many of the workers, and where the last column begins
    longest = math.ceil(4 * math.sqrt(len(rates) * m / n)) + 1  # columns that are worth a look
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
    """Return `length` cut in proportion to `weights`, between whole grains where it is long enough for that."""
    grain = GRAIN if length >= 2 * GRAIN * len(weights) else 1
    total = sum(weights)
    ends = [round(length * end / total / grain) * grain for end in itertools.accumulate(weights)]
    ends[-1] = length
    return [slice(start, end) for start, end in itertools.pairwise([0, *ends])]
