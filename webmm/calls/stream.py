"""Products of NumPy arrays and memory maps that take long to move, or are larger than a device's memory: tile by tile.

A tile of C, all of it where there is room, stays on the device while slices of k come in. A slice is multiplied into it
strip by strip of rows: the strip of A comes right before, and with it a part of the next panel of B. All goes through
one queue, in order, so that steps are short: what the host puts into staging buffers waits for what was queued before.
Each element is moved once where C is one tile. A strip of C that is complete leaves while the next ones are worked at.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.calls.parts import GRAIN, halved
from webmm.calls.slots import Slots
from webmm.dtypes import F32, DType
from webmm.engine.array import Array
from webmm.engine.device import Device

LEAST_INNER = 256  # below it, reading and writing the tile of C takes longer than multiplying
SLICE = 1024  # of k: so long, this takes a twentieth of the time on a large GPU
SLICES = 8  # of k: nothing is multiplied before the first of them has come
STRIP = 2**24  # bytes of A in a strip: far less than staging buffers hold, so that the host copies ahead of the device
LEAVING = 2**27  # bytes of C in a strip: it leaves when it is whole
LEAST_STRIP = 512  # rows that keep a large GPU busy
TOGETHER = 2**26  # bytes of small matrices in a step
OVERLAP = 2**25  # bytes that take so long to move that a GPU had better multiply meanwhile
LONG = 2**31  # bytes of all three matrices that had better move in long pieces
PAGE = 4096  # bytes
TOUCHING = 4  # threads that page a result in
Progress = Callable[[int, int], object]
# multiply(a, b, c, beta, bias, kind of bias, last) queues c ← activation(alpha·a·b + bias) + beta·c, with an activation
# only for the last part of k.
Multiply = Callable[[Array, Array, Array, float, Array | None, str, bool], None]


@dataclass(frozen=True)
class Step:
    """What is multiplied at a time: which matrices of the batch, a strip of rows of a tile of C, and a slice of k."""

    batch: tuple[slice, ...]
    tile: slice  # of rows
    rows: slice  # the strip's, of C
    columns: slice
    inner: slice
    first: bool
    last: bool


def tile_shape(
    m: int, n: int, k: int, itemsize: int, out_itemsize: int, memory: int, largest: int, beside: bool = True
) -> tuple[int, int, int]:
    """Return (rows, columns, inner) of tiles that take at most `memory` bytes in all and `largest` bytes each.

    All of C, or two tiles of it, and with `beside` a sum, of float32 or the operands' longer type, take up to three
    quarters, two panels of A and of B the rest. Where k that is cut takes a sum, it is cut for want of room only.
    """
    sums = max(itemsize, F32.itemsize)
    rows, columns, inner = m, n, k if beside else min(k, max(SLICE, _grains(k, SLICES)))

    def too_large() -> bool:
        c, tiles = rows * columns, 1 if (rows, columns) == (m, n) else 2
        return c * (tiles * out_itemsize + beside * sums) > memory * 3 // 4 or c * sums > largest

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


def strip_of(shape: tuple[int, int, int], itemsize: int, out_itemsize: int) -> int:
    """Return how many rows of a tile of (rows, columns, inner) a step takes."""
    strip, columns, inner = shape
    while strip > LEAST_STRIP and (strip * inner * itemsize > STRIP or strip * columns * out_itemsize > LEAVING):
        strip = halved(strip)
    return strip


def steps(
    batch: tuple[int, ...], sizes: tuple[int, int, int], shape: tuple[int, int, int], strip: int, most: int
) -> list[Step]:
    """Return the steps through products of (m, n, k) = `sizes` by tiles of `shape`, at most `most` matrices in each."""
    cuts = [_cut(slice(0, size), step) for size, step in zip(sizes, shape, strict=True)]
    whole = all(len(cut) == 1 for cut in cuts)
    return [
        Step(group, tile, rows, columns, inner, inner.start == 0, inner.stop == sizes[2])
        for group in _groups(batch, most if whole else 1)
        for tile, columns, inner in itertools.product(*cuts)
        for rows in _cut(tile, sizes[0] if whole and most > 1 else strip)
    ]


def _cut(whole: slice, step: int) -> list[slice]:
    return [slice(start, min(start + step, whole.stop)) for start in range(whole.start, whole.stop, step)]


def _grains(length: int, parts: int) -> int:
    """Return the length of one of so many parts, in whole grains."""
    return -(-length // (parts * GRAIN)) * GRAIN


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


def part(x: NDArray[Any], step: Step, rows: slice, columns: slice) -> NDArray[Any]:
    """Return what a step needs of a batch of matrices, whose unit axes are the same for all of the batch."""
    batch = (slice(None) if length == 1 else at for length, at in zip(x.shape[:-2], step.batch, strict=True))
    index = (*batch, rows, columns)
    return x[index]


def kind_of(bias: Array | None) -> str:
    """Return what a `Gemm` calls a bias of shape (n,) or (m, 1)."""
    return "" if bias is None else "column" if bias.ndim == 1 else "row"


def _place(host: NDArray[Any]) -> Any:
    """Return what a part of an operand is known by: where it lies."""
    return host.__array_interface__["data"][0], host.shape, host.strides


class _Leaving:
    """Strips of C on their way into host memory, brought there by a thread of their own."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pool, self._paging = (ThreadPoolExecutor(count, "webmm-stream") for count in (1, TOUCHING))
        self._under_way: deque[tuple[int, Future[None]]] = deque()
        self._paged: dict[Any, Future[None]] = {}

    def page_in(self, strips: list[NDArray[Any]]) -> None:
        """Have the system find memory for strips of an array that nothing was written to, before they are needed."""
        for strip in (strip for strip in strips if strip.flags.c_contiguous):
            self._paged[_place(strip)] = self._paging.submit(_touch, strip)

    def begin(self, slot: int, strip: Array, host: NDArray[Any]) -> None:
        """Bring a strip, of the tile in that slot, to host memory; wait where two are under way already.

        What is queued meanwhile comes first on the device: not much may.
        """
        while len(self._under_way) > 1:
            self._under_way.popleft()[1].result()
        self._under_way.append((slot, self._pool.submit(self._bring, strip, host)))

    def wait(self, slot: int | None = None) -> None:
        """Wait for the strips of a slot, or for all; raises what went wrong."""
        while any(slot in (None, of) for of, _ in self._under_way):
            self._under_way.popleft()[1].result()

    def close(self) -> None:
        """Wait for what is under way, and let the threads go."""
        for pool in (self._paging, self._pool):
            pool.shutdown()

    def _bring(self, strip: Array, host: NDArray[Any]) -> None:
        if paged := self._paged.pop(_place(host), None):
            paged.result()
        self._device.download(strip, host)


def _touch(fresh: NDArray[Any]) -> None:
    fresh.reshape(-1).view(np.uint8)[::PAGE] = 0


@dataclass
class Stream:
    """A product of NumPy arrays A, (…, m, k), and B, (…, k, n), of equal numbers of axes, into C, (…, m, n).

    `dtype` is that of the operands. Where k is cut and C cannot take sums, which are float32, or float64 as the
    operands, and come before what the epilogue does to whole ones, they are kept beside it. C is `fresh` where it is
    dense and nothing was written to it yet: then it is paged in meanwhile.
    """

    device: Device
    multiply: Multiply
    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]
    dtype: DType
    out: DType
    bias: NDArray[Any] | None
    residual: NDArray[Any] | None
    needs_whole_sum: bool
    progress: Progress | None
    fresh: bool = False

    def run(self, memory: int) -> None:
        """Compute C in `memory` bytes of the device's; on an error, part of C may have been written."""
        long = self.a.nbytes + self.b.nbytes + self.c.nbytes >= LONG
        with self.device.staging.long() if long else contextlib.nullcontext():
            self._run(memory)

    def _run(self, memory: int) -> None:
        todo = self._steps(memory)
        self._beside = not (todo[0].first and todo[0].last) and (self.needs_whole_sum or self.out != self.dtype.sums)
        self._slots, self._leaving = Slots(self.device), _Leaving(self.device)
        try:
            if self.fresh and not todo[0].last:
                self._leaving.page_in([part(self.c, step, step.rows, step.columns) for step in todo if step.last])
            for done, _ in enumerate(self._go(todo), 1):
                if self.progress and done < len(todo):
                    self.progress(done, len(todo))
            self._leaving.wait()
        finally:
            self._leaving.close()
            self._slots.free()
        if self.progress:
            self.progress(len(todo), len(todo))

    def _steps(self, memory: int) -> list[Step]:
        m, n, k = self.c.shape[-2], self.c.shape[-1], self.a.shape[-1]
        size, out = self.dtype.itemsize, self.out.itemsize
        largest = min(map(self.device.capabilities.limit, ("max-storage-buffer-binding-size", "max-buffer-size")))
        shape = tile_shape(
            m, n, k, size, out, memory, largest, beside=self.needs_whole_sum or self.out != self.dtype.sums
        )
        of_one = (m * k * size, k * n * size, m * n * out)
        together = max(1, min(min(memory // 2, TOGETHER) // sum(of_one), largest // max(of_one)))
        strip = strip_of(shape, size, out)
        return steps(self.c.shape[:-2], (m, n, k), shape, strip, together)

    def _go(self, todo: list[Step]) -> Iterator[None]:
        """Queue the steps, panel of B by panel, the next of which comes part by part meanwhile."""
        panels = [list(group) for _, group in itertools.groupby(todo, lambda s: (s.batch, s.columns, s.inner))]
        following, rest = self._panel(panels[0][0], 1)
        for panel, then in itertools.zip_longest(panels, panels[1:]):
            deque(rest, maxlen=0)  # moves what is left to be moved
            y, rest = following, iter(())
            if then:
                following, rest = self._panel(then[0], len(panel))
            for step in panel:
                if step.first and step.rows.start == step.tile.start:
                    self._next_tile(step)
                self._queue(step, y)
                next(rest, None)
                yield

    def _panel(self, step: Step, parts: int) -> tuple[Array, Iterator[None]]:
        host = part(self.b, step, step.inner, step.columns)
        return self._slots.begin("b", _place(host), host, self.dtype, parts)

    def _next_tile(self, step: Step) -> None:
        shape = part(self.c, step, step.tile, step.columns).shape
        self._slot = self._slots.turn("c")
        self._leaving.wait(self._slot)
        self._tile = self._slots.take("c", self._slot, shape, self.out)
        self._total = self._slots.take("sum", 0, shape, self.dtype.sums) if self._beside else self._tile

    def _queue(self, step: Step, y: Array) -> None:
        """Multiply a strip of A and a panel of B, and have the strip of C leave that becomes complete."""
        strip = np.s_[..., step.rows.start - step.tile.start : step.rows.stop - step.tile.start, :]
        into, total = self._tile[strip], self._total[strip]
        if step.first and self.residual is not None:
            self.device.upload(part(self.residual, step, step.rows, step.columns), into)
        host = part(self.a, step, step.rows, step.inner)
        x = self._slots.load("a", _place(host), host, self.dtype)
        start = 0.0 if self.residual is None else 1.0  # how much of what C holds is added
        bias = self._bias(step) if step.first else None
        if not self._beside:
            self.multiply(x, y, into, start if step.first else 1.0, bias, kind_of(bias), step.last)
        elif step.last:
            self.multiply(x, y, into, start, total, "matrix", True)
        else:
            self.multiply(x, y, total, 0.0 if step.first else 1.0, bias, kind_of(bias), False)
        if step.last:
            self._leaving.begin(self._slot, into, part(self.c, step, step.rows, step.columns))

    def _bias(self, step: Step) -> Array | None:
        if self.bias is None:
            return None
        return self.device.array(self.bias[step.columns if self.bias.ndim == 1 else step.rows], self.dtype)
