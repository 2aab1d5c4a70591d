"""Output of `webmm plan`: the division of a product among devices, its transfers and its predicted time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from webmm.cut.devices import Division, Types, Worker, divided, sizes_of
from webmm.dtypes import DType, dtype_of
from webmm.errors import ConfigError, ProblemError
from webmm.problems.base import check_floats
from webmm.text import amount, whole

AXES = {"m": "rows", "n": "columns", "k": "inner"}


def describe(
    size: tuple[str, str, str], devices: int, dtype: str, amounts: Mapping[str, str | None], as_json: bool
) -> str:
    """Return the plan for an M×N×K product on `devices` equal devices.

    `amounts` holds each device's `rate`, `memory` and `bandwidth`, and the `host`'s bandwidth or None, as texts such as
    "80GB". Raises ProblemError for an invalid size or dtype, ConfigError for an invalid amount.
    """
    m, n, k = (_length(text) for text in size)
    given = {name: _amount(name, text) for name, text in amounts.items() if text is not None}
    worker, element = Worker(given["rate"], int(given["memory"]), given["bandwidth"]), dtype_of(dtype)
    check_floats("float matrix products", element)
    types = Types(element.itemsize, element.itemsize)
    host = {"host": given["host"]} if "host" in given else {}
    found = divided((m, n, k), [worker] * devices, types, splits=True, **host)
    return json.dumps(_data(found), indent=1) if as_json else _words((m, n, k), element, worker, devices, found)


def _length(text: str) -> int:
    length = whole(text)
    if not length:
        raise ProblemError(f"a size is three whole numbers of at least 1, M N K, not {text!r}")
    return length


def _amount(name: str, text: str) -> float:
    value = amount(text)
    if value is None or value < 1:
        raise ConfigError(f"--{name} is an amount such as 80GB or 1.5e9, not {text!r}")
    return value


def _data(found: Division) -> dict[str, object]:
    pieces = [
        {"worker": piece.worker, **{name: piece.at[axis] for axis, name in AXES.items()}} for piece in found.pieces
    ]
    return {**{name: getattr(found, name) for name in ("seconds", "moved", "efficiency", "splits")}, "pieces": pieces}


def _words(sizes: tuple[int, int, int], dtype: DType, worker: Worker, devices: int, found: Division) -> str:
    m, n, k = sizes
    operands = (m * k + k * n + m * n) * dtype.itemsize
    rows, columns, inner = max(map(sizes_of, found.pieces), key=lambda lengths: lengths[0] * lengths[1])
    used = len(found.pieces)
    each = f"{worker.rate / 1e12:,.3g} TFLOP/s, {worker.bandwidth / 1e9:,.3g} GB/s"
    lines = [
        f"{m}×{n}×{k} {dtype.name} on {devices} × {each}",
        f"devices     {used} of {devices}" + ("" if used == devices else ": more would not be faster"),
        f"each        up to {rows}×{columns} of C over {inner} of k"
        + (f", with k split into {found.splits} pieces" if found.splits > 1 else ""),
        f"transfers   {_bytes(found.moved)}, {found.moved / operands:.2f} × the matrices' size",
        f"time        {_seconds(found.seconds)}",
        f"efficiency  {found.efficiency:.1%} of the devices' combined rate",
    ]
    return "\n".join(lines)


def _bytes(count: int) -> str:
    unit, size = next(
        (u, s) for u, s in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if count >= s or u == "MB"
    )
    return f"{count / size:,.3g} {unit}"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{1e3 * seconds:,.3g} ms"
    return f"{seconds:,.3g} s" if seconds < 600 else f"{seconds / 3600:,.3g} h"
