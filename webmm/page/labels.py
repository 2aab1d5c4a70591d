"""How the page tells what a record is of: the unit of its op, its speed in that unit, and its sizes.

This module is in the translated subset (docs/page.md): records, and the tasks that they are of, are JavaScript's there.
"""

from __future__ import annotations

from typing import Any

from webmm.dtypes import DTYPES
from webmm.page.rows import DATA

UNKNOWN: list[Any] = ["GFLOP/s", 3]


def _row(record: Any) -> list[Any]:
    """Return the data of a record's op: its unit, `axes`, and a and b of its rate; records may be of unknown ops."""
    return DATA.get(getattr(record, "op", "gemm"), UNKNOWN)


def unit_of(record: Any) -> str:
    """Return the unit of a record's speed."""
    unit: str = _row(record)[0]
    return unit


def speed_of(record: Any) -> float:
    """Return a record's speed in its unit; GB/s count elements read and results written."""
    return _speed(record, record.gflops or 0)


def _speed(record: Any, gflops: float) -> float:
    """Return the speed of 10⁹ operations/s in the unit of a record, or of a task."""
    _, _, *rate = _row(record)
    if not rate:
        return gflops
    dtype = DTYPES.get(record.dtype)
    a, b = rate
    bytes_each = dtype.itemsize if dtype else 1
    return float(gflops * bytes_each * (a + b / record.n))


def too_slow(task: Any, gflops: float, limit: float) -> str | None:
    """Return why a kernel is skipped at the rate of a smaller run, or None if it takes at most `limit` seconds."""
    seconds = task.flops / (1e9 * gflops)
    if seconds <= limit:
        return None
    speed = f"{_speed(task, gflops):.2g} {unit_of(task)}"
    return f"one run would take about {seconds:.1f} s at the {speed} of a smaller run; the limit is {limit:g} s"


def size_of(record: Any) -> str:
    """Return the sizes of a record: as many of m, n, k as its op has, and as are not 1."""
    m, n, k = record.m, record.n, record.k
    axes = _row(record)[1]
    if axes == 3 and m == n == k:
        return f"{m}³"
    sizes = [m, n, k][: max(axes, 3 if k > 1 else 1 + (n > 1))]
    return f"{m} elements" if len(sizes) == 1 else "×".join(map(str, sizes))
