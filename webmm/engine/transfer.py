"""Moving data through mapped staging buffers that are made once and reused.

Data goes in chunks. The calling thread alone talks to the device, while others copy between the caller's memory and the
staging buffers: a fresh result is paged in faster by several threads than by one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.engine.array import Storage
from webmm.engine.guard import Guard
from webmm.engine.wgpu import Mapped
from webmm.errors import FreedArrayError

CHUNK = 8 * 2**20  # bytes of a staging buffer
SMALL = 2**16  # bytes of one for data that no thread but the caller's copies
LEAST = 2**20  # bytes of a chunk of data that would not fill all buffers
THREADS = min(16, os.cpu_count() or 1)
DEPTH = max(4, THREADS)  # staging buffers that a transfer takes; there are twice as many each way, for two at once
DIRECT_WRITE = 2**18  # bytes up to which queue.write_buffer is quicker than mapping


class Staging:
    """The staging buffers of one device, made as they are needed; safe to share between threads."""

    def __init__(
        self,
        guard: Guard,
        chunk: int = CHUNK,
        threads: int = THREADS,
        depth: int = DEPTH,
    ) -> None:
        device, usage = guard.device, guard.engine.buffer_usage
        self._guard, self._device, self._engine, self._lock = guard, device, guard.engine, guard.lock
        self._chunk, self._depth = min(chunk, device.limits["max-buffer-size"] // 4 * 4), depth
        self._small = min(SMALL, self._chunk)
        self._pool = ThreadPoolExecutor(threads, "webmm-copy")
        self._writing = _Ring(device, self._chunk, usage.MAP_WRITE | usage.COPY_SRC, 2 * depth)
        self._reading, self._reading_little = (
            _Ring(device, size, usage.MAP_READ | usage.COPY_DST, 2 * depth) for size in (self._chunk, self._small)
        )

    def close(self) -> None:
        """Let the threads go, which have nothing to do any more; the buffers go with the device."""
        self._pool.shutdown(wait=False)

    def upload(self, data: NDArray[Any], dtype: np.dtype[Any], target: Storage, offset: int = 0) -> None:
        """Copy `data`, in row-major order and as `dtype`, to the buffer of `target` from byte `offset` on.

        The offset is a multiple of 4; up to three bytes behind the data become zero.
        """
        if not _in_words(data, dtype):
            data = np.ascontiguousarray(data)
        if data.size * dtype.itemsize <= DIRECT_WRITE:
            flat = np.ascontiguousarray(data, dtype).reshape(-1).view(np.uint8)
            flat = np.pad(flat, (0, -flat.size % 4)) if flat.size % 4 else flat
            with self._lock:
                self._device.queue.write_buffer(_living(target), offset, flat)
            return
        pieces = self._cut(data, dtype.itemsize)
        with self._writing.lent(min(len(pieces), self._depth)) as buffers, self._copies(pieces) as copies:
            filling: dict[int, tuple[Mapped, int, int]] = {}

            def send(turn: int) -> None:
                """Queue the copy to the device of what a buffer is filled with."""
                if turn not in filling:
                    return
                mapped, start, size = filling.pop(turn)
                copies.wait(turn)
                self._engine.unmap(mapped)
                with self._lock:
                    self._engine.copy(self._device, mapped.buffer, 0, _living(target), offset + start, size)

            for i, (piece, start) in enumerate(pieces):
                turn, nbytes = i % len(buffers), piece.size * dtype.itemsize
                send(turn)
                mapped = self._engine.map(buffers[turn], "WRITE", size := _round4(nbytes))
                filling[turn] = mapped, start, size
                host = self._engine.data(self._device, mapped)
                host[nbytes:] = 0
                copies.begin(turn, host[:nbytes].view(dtype).reshape(piece.shape), piece)
            for i in range(len(pieces), len(pieces) + len(buffers)):
                send(i % len(buffers))

    def download(self, source: Storage, offset: int, dtype: np.dtype[Any], data: NDArray[Any]) -> None:
        """Copy elements of `dtype` from byte `offset` of the buffer of `source` on to `data`, in row-major order.

        The offset is a multiple of 4. `data` may have any strides, and another dtype to convert to.
        """
        if not _in_words(data, dtype):
            whole = np.empty(data.shape, dtype)
            self.download(source, offset, dtype, whole)
            np.copyto(data, whole, casting="unsafe")
            return
        if data.size * dtype.itemsize <= self._small:
            self._download_little(source, offset, dtype, data)
            return
        pieces = self._cut(data, dtype.itemsize)
        with self._reading.lent(min(len(pieces), self._depth)) as buffers, self._copies(pieces) as copies:
            coming: dict[int, Mapped] = {}

            def ask(i: int) -> None:
                """Queue the copy from the device of piece `i`, to a buffer whose data is gone from it."""
                turn, (piece, start) = i % len(buffers), pieces[i]
                if turn in coming:
                    copies.wait(turn)
                    self._engine.unmap(coming.pop(turn))
                size = _round4(piece.size * dtype.itemsize)
                with self._lock:
                    self._engine.copy(self._device, _living(source), offset + start, buffers[turn], 0, size)
                coming[turn] = self._engine.map(buffers[turn], "READ", size)

            ahead = len(buffers) // 2  # half of the buffers are on their way while the others are copied from
            for i in range(min(ahead, len(pieces))):
                ask(i)
            for i, (piece, _) in enumerate(pieces):
                if i + ahead < len(pieces):
                    ask(i + ahead)
                turn, nbytes = i % len(buffers), piece.size * dtype.itemsize
                host = self._engine.data(self._device, coming[turn])
                copies.begin(turn, piece, host[:nbytes].view(dtype).reshape(piece.shape))
            for turn, mapped in coming.items():
                copies.wait(turn)
                self._engine.unmap(mapped)

    def _download_little(self, source: Storage, offset: int, dtype: np.dtype[Any], data: NDArray[Any]) -> None:
        """As `download()`, without threads or turns, whose cost is that of a small transfer."""
        nbytes = data.size * dtype.itemsize
        with self._reading_little.lent(1) as (buffer,):
            with self._lock:
                self._engine.copy(self._device, _living(source), offset, buffer, 0, size := _round4(nbytes))
            mapped = self._engine.map(buffer, "READ", size)
            host = self._engine.data(self._device, mapped)
            np.copyto(data, host[:nbytes].view(dtype).reshape(data.shape), casting="unsafe")
            self._engine.unmap(mapped)

    def _copies(self, pieces: list[Any]) -> _Copies:
        """Return who copies: threads, but the caller where nothing else is to be done meanwhile."""
        return _Copies(self._guard, self._pool if len(pieces) > 1 else None)

    def _cut(self, data: NDArray[Any], itemsize: int) -> list[tuple[NDArray[Any], int]]:
        """Return the pieces that fit a staging buffer, of data to move, each with its first byte."""
        nbytes = data.size * itemsize
        most = min(self._chunk, max(LEAST, _round4(-(-nbytes // self._depth))))
        flat = data.reshape(-1) if data.flags.c_contiguous else data
        return [(flat, 0)] if nbytes <= most else list(_pieces(flat, itemsize, most))


class _Copies:
    """Copies within host memory that threads make for the caller, one at a time for each turn; without a pool it does.

    It ends when all have ended, also where one failed: what they read and write is the caller's again afterwards.
    """

    def __init__(self, guard: Guard, pool: ThreadPoolExecutor | None) -> None:
        self._guard, self._pool = guard, pool
        self._under_way: dict[int, Future[None]] = {}

    def begin(self, turn: int, target: NDArray[Any], source: NDArray[Any]) -> None:
        """Copy in a thread of the pool, or at once."""
        if self._pool:
            self._under_way[turn] = self._pool.submit(self._copy, target, source)
        else:
            np.copyto(target, source, casting="unsafe")

    def wait(self, turn: int) -> None:
        """Wait for the copy of that turn, if there is one; raises what it raised."""
        if future := self._under_way.pop(turn, None):
            future.result()

    def _copy(self, target: NDArray[Any], source: NDArray[Any]) -> None:
        with self._guard.uses.one():  # each thread says for itself that it uses the device
            np.copyto(target, source, casting="unsafe")

    def __enter__(self) -> _Copies:
        return self

    def __exit__(self, *_: object) -> None:
        wait(self._under_way.values())


def _living(storage: Storage) -> Any:
    """Return the buffer; wgpu-native ends the process where work is submitted that needs a destroyed one."""
    if not storage.alive:
        raise FreedArrayError("the array was freed by another thread while it was moved")
    return storage.buffer


class _Ring:
    """Equal buffers, at most `most`, that transfers borrow."""

    def __init__(self, device: Any, size: int, usage: int, most: int) -> None:
        self._device, self._size, self._usage, self._left = device, size, usage, most
        self._free: list[Any] = []
        self._change = threading.Condition()

    @contextmanager
    def lent(self, count: int) -> Iterator[list[Any]]:
        """Lend up to `count` buffers, as soon as there is one; those that failed in use are not used again."""
        with self._change:
            self._change.wait_for(lambda: self._free or self._left)
            buffers = [self._free.pop() for _ in range(min(count, len(self._free)))]
            new = min(count - len(buffers), self._left)
            self._left -= new
        lent = len(buffers) + new
        try:
            buffers += [self._device.create_buffer(size=self._size, usage=self._usage) for _ in range(new)]
            yield buffers
        except BaseException:
            with self._change:
                self._left += lent
                self._change.notify_all()
            raise
        with self._change:
            self._free += buffers
            self._change.notify_all()


def _round4(size: int) -> int:
    return -(-size // 4) * 4


def _in_words(data: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether `data` can be cut between rows: copies between buffers move whole words."""
    return data.flags.c_contiguous or data.shape[-1] * dtype.itemsize % 4 == 0


def _pieces(data: NDArray[Any], itemsize: int, most: int, start: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
    """Cut `data` into pieces of at most so many bytes; yield each with its first byte in row-major order."""
    row = data[:1].size * itemsize
    if row > most:
        for i, each in enumerate(data):
            yield from _pieces(each, itemsize, most, start + i * row)
        return
    rows = most // row
    for i in range(0, len(data), rows):
        yield data[i : i + rows], start + i * row
