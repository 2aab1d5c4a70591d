"""Products of NumPy arrays and memory maps that are larger than a device's memory: tile by tile.

A tile of C stays on the device while panels of A and B come in and are multiplied into it; then it leaves, while the
next one is worked at. Of each there are two, so that the host copies one while the device reads or writes the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from webmm.calls.parts import halved
from webmm.calls.slots import Slots
from webmm.dtypes import DType
from webmm.engine.array import Array
from webmm.engine.device import Device

LEAST_INNER = 256  # below it, reading and writing the tile of C takes longer than multiplying
Progress = Callable[[int, int], object]
# multiply(a, b, c, beta, bias, kind of bias, last) queues c ← activation(alpha·a·b + bias) + beta·c, with an activation
# only for the last part of k.
Multiply = Callable[[Array, Array, Array, float, Array | None, str, bool], None]


@dataclass(frozen=True)
class Tile:
    """A step: which matrices of the batch, which rows and columns of C, and which part of k."""

    batch: tuple[slice, ...]
    rows: slice
    columns: slice
    inner: slice
    first: bool
    last: bool


def tile_shape(
    m: int, n: int, k: int, itemsize: int, out_itemsize: int, memory: int, largest: int, sum_itemsize: int = 4
) -> tuple[int, int, int]:
    """Return (rows, columns, inner) of tiles that take at most `memory` bytes in all and `largest` bytes each.

    Two tiles of C and a sum take up to three quarters, two panels each of A and B the rest.
    """
    rows, columns, inner = m, n, k

    def too_large() -> bool:
        c = rows * columns
        return c * (2 * out_itemsize + sum_itemsize) > memory * 3 // 4 or c * sum_itemsize > largest

    def too_long() -> bool:
        panels = (rows + columns) * inner * itemsize
        return 2 * panels > memory // 4 or max(rows, columns) * inner * itemsize > largest

    while too_large() and max(rows, columns) > 1:
        rows, columns = (halved(rows), columns) if rows > columns else (rows, halved(columns))
    while too_long() and max(rows, columns, inner) > 1:
        if inner > LEAST_INNER or max(rows, columns) == 1:
            inner = halved(inner)
        else:
            rows, columns = (halved(rows), columns) if rows > columns else (rows, halved(columns))
    return rows, columns, inner


def tiles(batch: tuple[int, ...], sizes: tuple[int, int, int], shape: tuple[int, int, int], most: int) -> list[Tile]:
    """Return the steps through products of (m, n, k) = `sizes` by tiles of `shape`, at most `most` matrices in each."""
    cuts = [
        [slice(start, min(start + step, size)) for start in range(0, size, step)]
        for size, step in zip(sizes, shape, strict=True)
    ]
    whole = all(len(cut) == 1 for cut in cuts)
    return [
        Tile(group, rows, columns, inner, inner.start == 0, inner.stop == sizes[2])
        for group in _groups(batch, most if whole else 1)
        for rows, columns, inner in itertools.product(*cuts)
    ]


def _groups(batch: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield slices that cover the batch, of at most so many matrices each."""
    if not batch:
        yield ()
        return
    within = math.prod(batch[1:])
    if within > most:
        for i in range(batch[0]):
            for rest in _groups(batch[1:], most):
                yield (slice(i, i + 1), *rest)
        return
    step = most // within
    for i in range(0, batch[0], step):
        yield (slice(i, min(i + step, batch[0])), *(slice(0, length) for length in batch[1:]))


def part(x: NDArray[Any], tile: Tile, rows: slice, columns: slice) -> NDArray[Any]:
    """Return what a step needs of a batch of matrices, whose unit axes are the same for all of the batch."""
    batch = (slice(None) if length == 1 else at for length, at in zip(x.shape[:-2], tile.batch, strict=True))
    index = (*batch, rows, columns)
    return x[index]


def kind_of(bias: Array | None) -> str:
    """Return what a `Gemm` calls a bias of shape (n,) or (m, 1)."""
    return "" if bias is None else "column" if bias.ndim == 1 else "row"


def _load(slots: Slots, name: str, host: NDArray[Any], dtype: DType) -> Array:
    """Return a panel, which is known by where it lies."""
    return slots.load(name, (host.__array_interface__["data"][0], host.shape, host.strides), host, dtype)


def stream(
    device: Device,
    multiply: Multiply,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    dtypes: tuple[DType, DType],
    *,
    bias: NDArray[Any] | None,
    residual: NDArray[Any] | None,
    needs_whole_sum: bool,
    memory: int,
    progress: Progress | None,
) -> None:
    """Compute C, (…, m, n), from A, (…, m, k), and B, (…, k, n), of equal numbers of axes, in `memory` bytes.

    `dtypes` are those of the operands and of C. Where k is cut and C cannot take sums, which are of a type of their own
    and come before what the epilogue does to whole ones, they are kept beside it. On an error,
    part of C may have been written.
    """
    dtype, out = dtypes
    sizes = (a.shape[-2], b.shape[-1], a.shape[-1])
    m, n, k = sizes
    parts_of_one = (m * k * dtype.itemsize, k * n * dtype.itemsize, m * n * out.itemsize)
    largest = min(map(device.capabilities.limit, ("max-storage-buffer-binding-size", "max-buffer-size")))
    shape = tile_shape(*sizes, dtype.itemsize, out.itemsize, memory, largest, dtype.sums.itemsize)
    together = min(memory // 2 // sum(parts_of_one), largest // max(parts_of_one))
    steps = tiles(c.shape[:-2], sizes, shape, max(1, together))
    beside = shape[2] < k and (needs_whole_sum or out != dtype.sums)
    slots, leaving = Slots(device), dict[int, Future[Any]]()
    pool = ThreadPoolExecutor(1, "webmm-stream")
    try:
        for done, tile in enumerate(steps):
            host = part(c, tile, tile.rows, tile.columns)
            if tile.first:
                turn = slots.turn("c")
                if turn in leaving:
                    leaving.pop(turn).result()
                into = slots.take("c", turn, host.shape, out)
                added = (
                    None if bias is None else device.array(bias[tile.columns if bias.ndim == 1 else tile.rows], dtype)
                )
                if residual is not None:
                    device.upload(part(residual, tile, tile.rows, tile.columns), into)
                total = slots.take("sum", 0, host.shape, dtype.sums) if beside else into
            x = _load(slots, "a", part(a, tile, tile.rows, tile.inner), dtype)
            y = _load(slots, "b", part(b, tile, tile.inner, tile.columns), dtype)
            start = 0.0 if residual is None else 1.0  # how much of what C holds is added
            now = added if tile.first else None
            if not beside:
                multiply(x, y, into, start if tile.first else 1.0, now, kind_of(now), tile.last)
            elif tile.last:
                multiply(x, y, into, start, total, "matrix", True)
            else:
                multiply(x, y, total, 0.0 if tile.first else 1.0, now, kind_of(now), False)
            if tile.last:
                leaving[turn] = pool.submit(device.download, into, host)
            if progress and done + 1 < len(steps):
                progress(done + 1, len(steps))
        for future in leaving.values():
            future.result()
    finally:
        pool.shutdown()
        slots.free()
    if progress:
        progress(len(steps), len(steps))
