"""Moving data through mapped staging buffers that are made once and reused.

Data goes in chunks. The calling thread alone talks to the device; others copy between the caller's memory and the
staging buffers meanwhile, several at one chunk where there are few: one thread copies 11 GB/s, or 4 to memory that is
new to the process. On an H200 512 MiB go up at 30 GB/s and come down at 29, to new memory at 17.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
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
# Likewise while gigabytes move, see `Staging.long()`. A product of 32768³ from NumPy to NumPy took 1.8 s on an H200 and
# 1.25 on two, in place of 2.6 and 2.2: with shorter ones, threads wait for Python's lock. But 4096³ took 21 ms for 15.
LONG_CHUNK = 32 * 2**20
SMALL = 2**16  # bytes of one for data that no thread but the caller's copies
LEAST = 2**20  # bytes of a copy that is worth a thread
THREADS = min(16, os.cpu_count() or 1)
WRITERS = 4  # of them that fill staging buffers: writing through the bus is not faster with more
DEPTH = max(4, THREADS)  # staging buffers that a transfer takes; there are twice as many each way, for two at once
LONG_DEPTH = 6  # of the long ones
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
        self._guard, self._device, self._engine, self._lock = guard, guard.device, guard.engine, guard.lock
        most = guard.device.limits["max-buffer-size"] // 4 * 4
        self._small = min(SMALL, chunk, most)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "webmm-copy")
        sizes = ((min(chunk, most), depth), (min(LONG_CHUNK, most), LONG_DEPTH))
        self._ways = [_Way(size, depth, self._new_to_write, self._is_ready, self._new_to_read) for size, depth in sizes]
        self._reading_little = _Ring(2 * depth, functools.partial(self._new_to_read, self._small))
        self._long = 0  # products under way that move gigabytes

    @contextmanager
    def long(self) -> Iterator[None]:
        """Move whatever comes in long pieces."""
        with self._lock:
            self._long += 1
        try:
            yield
        finally:
            with self._lock:
                self._long -= 1

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
        way = self._ways[self._long > 0]
        pieces = way.cut(data, dtype.itemsize)
        threads = max(1, min(WRITERS, self._threads) // len(pieces))
        with way.writing.lent(min(len(pieces), way.depth)) as buffers, self._copies(threads) as copies:
            filled: dict[int, tuple[int, int]] = {}

            def send(turn: int) -> None:
                """Queue the copy to the device of what a buffer is filled with, and ask for the buffer again."""
                if turn not in filled:
                    return
                copies.wait(turn)
                start, size = filled.pop(turn)
                buffer = buffers[turn].buffer
                self._engine.unmap(buffers[turn])
                with self._lock:
                    self._engine.copy(self._device, buffer, 0, _living(target), offset + start, size)
                buffers[turn] = self._engine.map(buffer, "WRITE", way.size)

            for i, (piece, start) in enumerate(pieces):
                turn, nbytes = i % len(buffers), piece.size * dtype.itemsize
                send(turn)
                filled[turn] = start, (size := _round4(nbytes))
                host = self._engine.data(self._device, buffers[turn])
                host[nbytes:size] = 0
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
        way = self._ways[self._long > 0]
        pieces = way.cut(data, dtype.itemsize)
        threads = max(1, self._threads // len(pieces))
        with way.reading.lent(min(len(pieces), way.depth)) as buffers, self._copies(threads) as copies:
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

            ahead = len(buffers) // 4  # of the buffers are on their way while the others are copied from
            for i in range(ahead):
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
        """As `download()`, without threads or turns, which would take as long as so small a transfer."""
        nbytes = data.size * dtype.itemsize
        with self._reading_little.lent(1) as (buffer,):
            with self._lock:
                self._engine.copy(self._device, _living(source), offset, buffer, 0, size := _round4(nbytes))
            mapped = self._engine.map(buffer, "READ", size)
            host = self._engine.data(self._device, mapped)
            np.copyto(data, host[:nbytes].view(dtype).reshape(data.shape), casting="unsafe")
            self._engine.unmap(mapped)

    def _copies(self, threads: int) -> _Copies:
        return _Copies(self._guard, self._pool, threads)

    def _new_to_read(self, size: int) -> Any:
        usage = self._engine.buffer_usage
        return self._device.create_buffer(size=size, usage=usage.MAP_READ | usage.COPY_DST)

    def _new_to_write(self, size: int) -> Mapped:
        usage = self._engine.buffer_usage
        buffer = self._device.create_buffer(size=size, usage=usage.MAP_WRITE | usage.COPY_SRC)
        return self._engine.map(buffer, "WRITE", size)

    def _is_ready(self, mapped: Mapped) -> bool:
        return self._engine.ready(self._device, mapped)


class _Copies:
    """Copies within host memory for each turn, one after the other, each by up to so many threads of a pool.

    It ends when all have ended, also where one failed: what they read and write is the caller's again afterwards.
    """

    def __init__(self, guard: Guard, pool: ThreadPoolExecutor, threads: int) -> None:
        self._guard, self._pool, self._threads = guard, pool, threads
        self._under_way: dict[int, list[Future[None]]] = {}

    def begin(self, turn: int, target: NDArray[Any], source: NDArray[Any]) -> None:
        """Begin to copy; a copy alone that is not worth a thread is made at once."""
        threads = min(self._threads, target.nbytes // LEAST)
        if threads == 0:
            np.copyto(target, source, casting="unsafe")
            return
        step = -(-len(target) // threads)
        parts = (slice(start, start + step) for start in range(0, len(target), step))
        self._under_way[turn] = [self._pool.submit(self._copy, target[part], source[part]) for part in parts]

    def wait(self, turn: int) -> None:
        """Wait for the copy of that turn, if there is one; raises what it raised."""
        for future in self._under_way.get(turn, ()):
            future.result()
        self._under_way.pop(turn, None)

    def _copy(self, target: NDArray[Any], source: NDArray[Any]) -> None:
        with self._guard.uses.one():  # each thread says for itself that it uses the device
            np.copyto(target, source, casting="unsafe")

    def __enter__(self) -> _Copies:
        return self

    def __exit__(self, *_: object) -> None:
        wait([future for futures in self._under_way.values() for future in futures])


def _living(storage: Storage) -> Any:
    """Return the buffer; wgpu-native ends the process where work is submitted that needs a destroyed one."""
    if not storage.alive:
        raise FreedArrayError("the array was freed by another thread while it was moved")
    return storage.buffer


class _Ring:
    """What transfers borrow, at most `most` equal things: made where all that are there are lent or not ready yet."""

    def __init__(self, most: int, make: Callable[[], Any], ready: Callable[[Any], bool] = lambda _: True) -> None:
        self._left, self._make, self._ready = most, make, ready
        self._free: deque[Any] = deque()  # the longest unused first
        self._change = threading.Condition()

    @contextmanager
    def lent(self, count: int) -> Iterator[list[Any]]:
        """Lend up to `count` things, as soon as there is one; those that failed in use are not used again."""
        with self._change:
            self._change.wait_for(lambda: self._free or self._left)
            ready = next((i for i, thing in enumerate(self._free) if not self._ready(thing)), len(self._free))
            new = min(max(0, count - ready), self._left)
            lent = [self._free.popleft() for _ in range(min(count - new, len(self._free)))]
            self._left -= new
        size = len(lent) + new
        try:
            lent += [self._make() for _ in range(new)]
            yield lent
        except BaseException:
            with self._change:
                self._left += size
                self._change.notify_all()
            raise
        with self._change:
            self._free += lent
            self._change.notify_all()


class _Way:
    """Staging buffers of one size, in both directions: `depth` for a transfer, twice as many in all."""

    def __init__(
        self,
        size: int,
        depth: int,
        to_write: Callable[[int], Mapped],
        ready: Callable[[Mapped], bool],
        to_read: Callable[[int], Any],
    ) -> None:
        self.size, self.depth = size, depth
        self.writing = _Ring(2 * depth, functools.partial(to_write, size), ready)
        self.reading = _Ring(2 * depth, functools.partial(to_read, size))

    def cut(self, data: NDArray[Any], itemsize: int) -> list[tuple[NDArray[Any], int]]:
        """Return the pieces that fit a buffer, of data to move, each with its first byte."""
        flat = data.reshape(-1) if data.flags.c_contiguous else data
        return list(_pieces(flat, itemsize, self.size))


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
