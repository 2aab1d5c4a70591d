"""Streaming products of large NumPy arrays and memory maps through a device, tile by tile.

A tile of C (all of C if it fits) stays on the device while slices of k are uploaded. A slice is multiplied into the
tile in strips of rows; each strip of A is uploaded just before its multiplication, together with a part of the next
panel of B. Everything goes through one queue in order, so steps are kept short: data in staging buffers waits for the
work that was queued before it. If C is one tile, each element is moved once. A complete strip of C is downloaded while
the next strips are computed.
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
from webmm.engine.device import Array, Device

LEAST_INNER = 256  # with a shorter slice of k, reading and writing the tile of C takes longer than multiplying
SLICE = 1024  # length of a slice of k at which accessing C takes a twentieth of the time on a large GPU
SLICES = 8  # slices of k; the first multiplication must wait for the first slice
STRIP = 2**24  # bytes of A in a strip: much less than the staging buffers, so that the host copies ahead of the device
C_STRIP = 2**27  # bytes of C in a strip, which is downloaded when it is complete
LEAST_STRIP = 512  # rows that keep a large GPU busy
BATCH_BYTES = 2**26  # bytes of small matrices to combine in a step
OVERLAP = 2**25  # bytes of operands and result from which overlapping transfers with compute pays off
LONG = 2**31  # bytes of all three matrices from which longer transfers pay off
PAGE = 4096  # bytes
PAGING_THREADS = 4  # threads that fault in the pages of a result
Progress = Callable[[int, int], object]
# multiply(a, b, c, beta, bias, kind of bias, last) queues c ← activation(alpha·a·b + bias) + beta·c; the activation is
# applied only for the last part of k.
Multiply = Callable[[Array, Array, Array, float, Array | None, str, bool], None]


@dataclass(frozen=True)
class StreamStep:
    """One multiplication: some matrices of the batch, a strip of rows of a tile of C, and a slice of k."""

    batch: tuple[slice, ...]
    tile: slice  # rows of the tile
    rows: slice  # rows of the strip, counted in C
    columns: slice
    inner: slice
    first: bool
    last: bool


def tile_shape(
    m: int, n: int, k: int, itemsize: int, out_itemsize: int, memory: int, largest: int, separate_sum: bool = True
) -> tuple[int, int, int]:
    """Return (rows, columns, inner) of tiles that take at most `memory` bytes in all and `largest` bytes each.

    Up to three quarters of the memory are for C (all of it, or two tiles) and, with `separate_sum`, for the partial
    sums, in float32 or the operands' longer type; the rest is for two panels of A and two of B. With `separate_sum`, k
    is cut only if the memory requires it.
    """
    sums = max(itemsize, F32.itemsize)
    rows, columns, inner = m, n, k if separate_sum else min(k, max(SLICE, _grains(k, SLICES)))

    def too_large() -> bool:
        c, tiles = rows * columns, 1 if (rows, columns) == (m, n) else 2
        return c * (tiles * out_itemsize + separate_sum * sums) > memory * 3 // 4 or c * sums > largest

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
    """Return the number of rows in a strip of a tile of (rows, columns, inner)."""
    strip, columns, inner = shape
    while strip > LEAST_STRIP and (strip * inner * itemsize > STRIP or strip * columns * out_itemsize > C_STRIP):
        strip = halved(strip)
    return strip


def steps(
    batch: tuple[int, ...], sizes: tuple[int, int, int], shape: tuple[int, int, int], strip: int, most: int
) -> list[StreamStep]:
    """Return the steps of products of `sizes` (m, n, k) in tiles of `shape`, with at most `most` matrices per step."""
    cuts = [_cut(slice(0, size), step) for size, step in zip(sizes, shape, strict=True)]
    whole = all(len(cut) == 1 for cut in cuts)
    return [
        StreamStep(group, tile, rows, columns, inner, inner.start == 0, inner.stop == sizes[2])
        for group in _groups(batch, most if whole else 1)
        for tile, columns, inner in itertools.product(*cuts)
        for rows in _cut(tile, sizes[0] if whole and most > 1 else strip)
    ]


def _cut(whole: slice, step: int) -> list[slice]:
    return [slice(start, min(start + step, whole.stop)) for start in range(whole.start, whole.stop, step)]


def _grains(length: int, parts: int) -> int:
    """Return the length of one of `parts` equal parts, rounded up to a multiple of GRAIN."""
    return -(-length // (parts * GRAIN)) * GRAIN


def _groups(batch: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield slices that cover the batch, with at most `most` matrices each."""
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


def part(x: NDArray[Any], step: StreamStep, rows: slice, columns: slice) -> NDArray[Any]:
    """Return the rows and columns of the step's matrices of a batch; batch axes of length 1 broadcast."""
    batch = (slice(None) if length == 1 else at for length, at in zip(x.shape[:-2], step.batch, strict=True))
    index = (*batch, rows, columns)
    return x[index]


def bias_kind(bias: Array | None) -> str:
    """Return the kind of bias in a `Gemm` for a bias of shape (n,) or (m, 1)."""
    return "" if bias is None else "column" if bias.ndim == 1 else "row"


def _address(host: NDArray[Any]) -> Any:
    """Return a key that identifies a part of an operand: its address, shape and strides."""
    return host.__array_interface__["data"][0], host.shape, host.strides


class _Downloads:
    """Downloads of strips of C to host memory in a separate thread."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pool, self._paging = (ThreadPoolExecutor(count, "webmm-stream") for count in (1, PAGING_THREADS))
        self._pending: deque[tuple[int, Future[None]]] = deque()
        self._paged: dict[Any, Future[None]] = {}

    def page_in(self, strips: list[NDArray[Any]]) -> None:
        """Fault in the pages of strips of a newly allocated array before they are needed."""
        for strip in (strip for strip in strips if strip.flags.c_contiguous):
            self._paged[_address(strip)] = self._paging.submit(_touch, strip)

    def begin(self, slot: int, strip: Array, host: NDArray[Any]) -> None:
        """Start to download a strip of the tile in that slot; waits while two downloads are pending.

        The device runs the work that is queued until the download starts first, so there should be little of it.
        """
        while len(self._pending) > 1:
            self._pending.popleft()[1].result()
        self._pending.append((slot, self._pool.submit(self._download, strip, host)))

    def wait(self, slot: int | None = None) -> None:
        """Wait for the downloads of a slot, or for all; raises the error of a failed download."""
        while any(slot in (None, of) for of, _ in self._pending):
            self._pending.popleft()[1].result()

    def close(self) -> None:
        """Wait for pending downloads, and end the threads."""
        for pool in (self._paging, self._pool):
            pool.shutdown()

    def _download(self, strip: Array, host: NDArray[Any]) -> None:
        if paged := self._paged.pop(_address(host), None):
            paged.result()
        self._device.download(strip, host)


def _touch(host: NDArray[Any]) -> None:
    host.reshape(-1).view(np.uint8)[::PAGE] = 0


@dataclass
class Stream:
    """A product of NumPy arrays A, (…, m, k), and B, (…, k, n), into C, (…, m, n), all with the same number of axes.

    `dtype` is the dtype of A and B, `out` that of C. Partial sums over k are float32, or float64 for float64 operands;
    they are kept in a separate buffer if C has another dtype, or if the epilogue `needs_whole_sum`. `fresh` says that C
    is dense and newly allocated, so that its pages are faulted in during the computation.
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
        """Compute C with at most `memory` bytes of device memory; after an error, C may be partly written."""
        long = self.a.nbytes + self.b.nbytes + self.c.nbytes >= LONG
        with self.device.staging.long() if long else contextlib.nullcontext():
            self._run(memory)

    def _run(self, memory: int) -> None:
        todo = self._steps(memory)
        self._separate_sum = not (todo[0].first and todo[0].last) and self._needs_separate_sum
        self._slots, self._downloads = Slots(self.device), _Downloads(self.device)
        try:
            if self.fresh and not todo[0].last:
                self._downloads.page_in([part(self.c, step, step.rows, step.columns) for step in todo if step.last])
            for done, _ in enumerate(self._queue_all(todo), 1):
                if self.progress and done < len(todo):
                    self.progress(done, len(todo))
            self._downloads.wait()
        finally:
            self._downloads.close()
            self._slots.free()
        if self.progress:
            self.progress(len(todo), len(todo))

    @property
    def _needs_separate_sum(self) -> bool:
        return self.needs_whole_sum or self.out != self.dtype.sums

    def _steps(self, memory: int) -> list[StreamStep]:
        m, n, k = self.c.shape[-2], self.c.shape[-1], self.a.shape[-1]
        size, out = self.dtype.itemsize, self.out.itemsize
        largest = min(map(self.device.capabilities.limit, ("max-storage-buffer-binding-size", "max-buffer-size")))
        shape = tile_shape(m, n, k, size, out, memory, largest, self._needs_separate_sum)
        matrices = (m * k * size, k * n * size, m * n * out)  # bytes of A, B and C
        per_step = max(1, min(min(memory // 2, BATCH_BYTES) // sum(matrices), largest // max(matrices)))
        strip = strip_of(shape, size, out)
        return steps(self.c.shape[:-2], (m, n, k), shape, strip, per_step)

    def _queue_all(self, todo: list[StreamStep]) -> Iterator[None]:
        """Queue the steps, one panel of B after another; the next panel is uploaded in parts between them."""
        panels = [list(group) for _, group in itertools.groupby(todo, lambda s: (s.batch, s.columns, s.inner))]
        following, rest = self._panel(panels[0][0], 1)
        for panel, then in itertools.zip_longest(panels, panels[1:]):
            deque(rest, maxlen=0)  # upload the remaining parts
            y, rest = following, iter(())
            if then:
                following, rest = self._panel(then[0], len(panel))
            for step in panel:
                if step.first and step.rows.start == step.tile.start:
                    self._next_tile(step)
                self._queue(step, y)
                next(rest, None)
                yield

    def _panel(self, step: StreamStep, parts: int) -> tuple[Array, Iterator[None]]:
        host = part(self.b, step, step.inner, step.columns)
        return self._slots.begin("b", _address(host), host, self.dtype, parts)

    def _next_tile(self, step: StreamStep) -> None:
        shape = part(self.c, step, step.tile, step.columns).shape
        self._slot = self._slots.turn("c")
        self._downloads.wait(self._slot)
        self._tile = self._slots.take("c", self._slot, shape, self.out)
        self._total = self._slots.take("sum", 0, shape, self.dtype.sums) if self._separate_sum else self._tile

    def _queue(self, step: StreamStep, y: Array) -> None:
        """Multiply a strip of A by a panel of B, and download the strip of C if it is complete."""
        strip = np.s_[..., step.rows.start - step.tile.start : step.rows.stop - step.tile.start, :]
        into, total = self._tile[strip], self._total[strip]
        if step.first and self.residual is not None:
            self.device.upload(part(self.residual, step, step.rows, step.columns), into)
        host = part(self.a, step, step.rows, step.inner)
        x = self._slots.load("a", _address(host), host, self.dtype)
        start = 0.0 if self.residual is None else 1.0  # the factor of the previous contents of C
        bias = self._bias(step) if step.first else None
        if not self._separate_sum:
            self.multiply(x, y, into, start if step.first else 1.0, bias, bias_kind(bias), step.last)
        elif step.last:
            self.multiply(x, y, into, start, total, "matrix", True)
        else:
            self.multiply(x, y, total, 0.0 if step.first else 1.0, bias, bias_kind(bias), False)
        if step.last:
            self._downloads.begin(self._slot, into, part(self.c, step, step.rows, step.columns))

    def _bias(self, step: StreamStep) -> Array | None:
        if self.bias is None:
            return None
        return self.device.array(self.bias[step.columns if self.bias.ndim == 1 else step.rows], self.dtype)
