"""Uploads and downloads through a cache of mapped staging buffers.

Data is transferred in chunks. Only the calling thread uses the device; a pool of threads copies between the caller's
memory and the staging buffers meanwhile, with several threads per chunk if there are few chunks: one thread copies
11 GB/s, or 4 GB/s to memory that is new to the process. On an H200, 512 MiB are uploaded at 30 GB/s and downloaded at
29 GB/s (17 GB/s to new memory).
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webmm.engine.engine import Mapped
from webmm.engine.guard import Guard, frameless
from webmm.engine.pool import AnyStorage
from webmm.engine.submissions import Submissions
from webmm.errors import FreedArrayError

# Bytes of a staging buffer. With 4 MiB, uploads reach 25 GB/s and downloads 22, as each chunk costs the calling thread
# about 150 µs; 16 MiB are as fast as 8. With half as many buffers, downloads reach 22.
CHUNK = 8 * 2**20
# Bytes of a staging buffer while gigabytes are transferred, see `Staging.long()`. A product of 32768³ of NumPy arrays
# took 1.8 s on one H200 and 1.25 s on two, instead of 2.6 s and 2.2 s with CHUNK, where threads wait for the GIL.
# But 4096³ took 21 ms instead of 15 ms.
LONG_CHUNK = 32 * 2**20
SMALL = 2**16  # bytes of a staging buffer for data that the calling thread copies itself
LEAST = 2**20  # bytes of the smallest copy that is worth a thread
THREADS = min(16, os.cpu_count() or 1)
WRITERS = 4  # threads that fill staging buffers: writing over the bus is not faster with more
DEPTH = max(4, THREADS)  # staging buffers per transfer; each direction has twice as many, for two transfers at once
LONG_DEPTH = 6  # the same for long chunks
DIRECT_WRITE = 2**18  # bytes up to which queue.write_buffer is faster than mapping


class Upload(NamedTuple):
    """A transfer of `data`, in row-major order and converted to `dtype`, to the buffer of `target` from a byte on.

    The offset is a multiple of 4; up to three bytes after the data become zero.
    """

    data: NDArray[Any]
    dtype: np.dtype[Any]
    target: AnyStorage
    offset: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.data.size * self.dtype.itemsize


class Staging:
    """The staging buffers of one device, created on demand; threads may share it."""

    def __init__(
        self,
        guard: Guard,
        submissions: Submissions,
        chunk: int = CHUNK,
        threads: int = THREADS,
        depth: int = DEPTH,
    ) -> None:
        self._guard, self._device, self._engine, self._lock = guard, guard.device, guard.engine, guard.lock
        self._submissions = submissions
        most = guard.device.limits["max-buffer-size"] // 4 * 4
        self._small = min(SMALL, chunk, most)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "webmm-copy")
        sizes = ((min(chunk, most), depth), (min(LONG_CHUNK, most), LONG_DEPTH))
        self._sets = [
            _StagingSet(size, depth, self._new_to_write, self._is_ready, self._new_to_read) for size, depth in sizes
        ]
        self._small_reads = _Ring(2 * depth, functools.partial(self._new_to_read, self._small))
        self._long = 0  # products under way that transfer gigabytes

    @contextmanager
    def long(self) -> Iterator[None]:
        """Return a context in which transfers use long chunks."""
        with self._lock:
            self._long += 1
        try:
            yield
        finally:
            with self._lock:
                self._long -= 1

    def close(self) -> None:
        """Stop the idle threads; the buffers are destroyed with the device."""
        self._pool.shutdown(wait=False)

    def upload(self, *uploads: Upload) -> None:
        """Copy host arrays to buffers; the copies of several arrays overlap."""
        large = [upload for upload in uploads if upload.nbytes > DIRECT_WRITE]
        for upload in uploads:
            if upload.nbytes <= DIRECT_WRITE:
                flat = np.ascontiguousarray(upload.data, upload.dtype).reshape(-1).view(np.uint8)
                flat = np.pad(flat, (0, -flat.size % 4)) if flat.size % 4 else flat
                with self._lock:
                    frameless(self._device.queue.write_buffer, _live_buffer(upload.target), upload.offset, flat)
        if large:
            self._upload_staged(large)

    def _upload_staged(self, uploads: Sequence[Upload]) -> None:
        staging = self._sets[self._long > 0]
        chunks = [
            (chunk, dtype, target, offset + start)
            for data, dtype, target, offset in uploads
            for chunk, start in staging.cut(
                data if _in_words(data, dtype) else np.ascontiguousarray(data), dtype.itemsize
            )
        ]
        threads = max(1, min(WRITERS, self._threads) // len(chunks))
        with staging.writing.lent(min(len(chunks), staging.depth)) as buffers, self._copies(threads) as copies:
            filled: dict[int, tuple[AnyStorage, int, int]] = {}

            def send(slot: int) -> None:
                """Queue the copy of a filled staging buffer to the device, and map the staging buffer again."""
                if slot not in filled:
                    return
                copies.wait(slot)
                target, start, size = filled.pop(slot)
                buffer = buffers[slot].buffer
                self._engine.unmap(buffers[slot])
                with self._lock:
                    self._engine.submit(self._device, (), (buffer, 0, _live_buffer(target), start, size))
                buffers[slot] = self._engine.map(buffer, "WRITE", staging.size)

            for i, (chunk, dtype, target, start) in enumerate(chunks):
                slot, nbytes = i % len(buffers), chunk.size * dtype.itemsize
                send(slot)
                filled[slot] = target, start, (size := _round4(nbytes))
                host = self._engine.data(self._device, buffers[slot])
                host[nbytes:size] = 0
                copies.begin(slot, host[:nbytes].view(dtype).reshape(chunk.shape), chunk)
            for i in range(len(chunks), len(chunks) + len(buffers)):
                send(i % len(buffers))

    def download(self, source: AnyStorage, offset: int, dtype: np.dtype[Any], data: NDArray[Any]) -> None:
        """Fill `data`, in row-major order, with elements of `dtype` from byte `offset` of the buffer of `source` on.

        The offset is a multiple of 4. `data` may have any strides, and another dtype, to which they are converted.
        """
        if not _in_words(data, dtype):
            whole = np.empty(data.shape, dtype)
            self.download(source, offset, dtype, whole)
            np.copyto(data, whole, casting="unsafe")
            return
        if data.size * dtype.itemsize <= self._small:
            self._download_small(source, offset, dtype, data)
            return
        staging = self._sets[self._long > 0]
        chunks = staging.cut(data, dtype.itemsize)
        threads = max(1, self._threads // len(chunks))
        with staging.reading.lent(min(len(chunks), staging.depth)) as buffers, self._copies(threads) as copies:
            coming: dict[int, Mapped] = {}

            def request(i: int) -> None:
                """Queue the copy of chunk `i` from the device, once the previous data of its buffer is copied."""
                slot, (chunk, start) = i % len(buffers), chunks[i]
                if slot in coming:
                    copies.wait(slot)
                    self._engine.unmap(coming.pop(slot))
                size = _round4(chunk.size * dtype.itemsize)
                self._read(source, offset + start, buffers[slot], size)
                coming[slot] = self._engine.map(buffers[slot], "READ", size)

            ahead = len(buffers) // 4  # chunks requested ahead, while others are copied to `data`
            for i in range(ahead):
                request(i)
            for i, (chunk, _) in enumerate(chunks):
                if i + ahead < len(chunks):
                    request(i + ahead)
                slot, nbytes = i % len(buffers), chunk.size * dtype.itemsize
                host = self._engine.data(self._device, coming[slot])
                copies.begin(slot, chunk, host[:nbytes].view(dtype).reshape(chunk.shape))
            for slot, mapped in coming.items():
                copies.wait(slot)
                self._engine.unmap(mapped)

    def _download_small(self, source: AnyStorage, offset: int, dtype: np.dtype[Any], data: NDArray[Any]) -> None:
        """As `download()`, without threads and rotation, whose overhead would be as long as the transfer."""
        nbytes = data.size * dtype.itemsize
        with self._small_reads.lent(1) as (buffer,):
            self._read(source, offset, buffer, size := _round4(nbytes))
            mapped = self._engine.map(buffer, "READ", size)
            host = self._engine.data(self._device, mapped)
            np.copyto(data, host[:nbytes].view(dtype).reshape(data.shape), casting="unsafe")
            self._engine.unmap(mapped)

    def _read(self, source: AnyStorage, offset: int, buffer: Any, size: int) -> None:
        """Submit the pending launches, and the copy of `source`, from byte `offset` on, to a staging buffer."""
        self._submissions.submit_with(lambda: (_live_buffer(source), offset, buffer, 0, size))

    def _copies(self, threads: int) -> _Copies:
        return _Copies(self._guard, self._pool, threads)

    def _new_to_read(self, size: int) -> Any:
        usage = self._engine.api.BufferUsage
        return self._device.create_buffer(size=size, usage=usage.MAP_READ | usage.COPY_DST)

    def _new_to_write(self, size: int) -> Mapped:
        usage = self._engine.api.BufferUsage
        buffer = self._device.create_buffer(size=size, usage=usage.MAP_WRITE | usage.COPY_SRC)
        return self._engine.map(buffer, "WRITE", size)

    def _is_ready(self, mapped: Mapped) -> bool:
        return self._engine.ready(self._device, mapped)


class _Copies:
    """Copies within host memory, one at a time for each slot, each split over up to `threads` threads of a pool.

    The context exits after all copies have ended, even if one failed: then the caller may reuse the memory.
    """

    def __init__(self, guard: Guard, pool: ThreadPoolExecutor, threads: int) -> None:
        self._guard, self._pool, self._threads = guard, pool, threads
        self._futures: dict[int, list[Future[None]]] = {}

    def begin(self, slot: int, target: NDArray[Any], source: NDArray[Any]) -> None:
        """Start a copy; one too small for a thread is made at once by the caller."""
        threads = min(self._threads, target.nbytes // LEAST)
        if threads == 0:
            np.copyto(target, source, casting="unsafe")
            return
        step = -(-len(target) // threads)
        parts = (slice(start, start + step) for start in range(0, len(target), step))
        self._futures[slot] = [self._pool.submit(self._copy, target[part], source[part]) for part in parts]

    def wait(self, slot: int) -> None:
        """Wait for the copy of that slot, if there is one; raises its error."""
        for future in self._futures.get(slot, ()):
            future.result()
        self._futures.pop(slot, None)

    def _copy(self, target: NDArray[Any], source: NDArray[Any]) -> None:
        with self._guard.uses.use():  # uses are counted per thread
            np.copyto(target, source, casting="unsafe")

    def __enter__(self) -> _Copies:
        return self

    def __exit__(self, *_: object) -> None:
        wait([future for futures in self._futures.values() for future in futures])


def _live_buffer(storage: AnyStorage) -> Any:
    """Return the buffer, if it is not freed: wgpu-native aborts the process if submitted work needs a destroyed one.

    Raises the error of the launch that was to write the buffer, if the engine rejected it.
    """
    block = storage.block
    if block is None:
        raise FreedArrayError("the array was freed by another thread during its transfer")
    if block.refused is not None:
        raise block.refused
    return block.buffer


class _Ring:
    """At most `most` equal buffers that transfers borrow; a new one is made if all others are lent or not ready."""

    def __init__(self, most: int, make: Callable[[], Any], ready: Callable[[Any], bool] = lambda _: True) -> None:
        self._left, self._make, self._ready = most, make, ready
        self._free: deque[Any] = deque()  # the least recently used first
        self._change = threading.Condition()

    @contextmanager
    def lent(self, count: int) -> Iterator[list[Any]]:
        """Lend up to `count` buffers, as soon as one is available; after an error they are not used again."""
        with self._change:
            self._change.wait_for(lambda: self._free or self._left)
            ready = next((i for i, buffer in enumerate(self._free) if not self._ready(buffer)), len(self._free))
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


class _StagingSet:
    """Staging buffers of one size for both directions: `depth` per transfer, twice as many in total."""

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
        """Split `data` into chunks that fit a staging buffer; return each with the offset of its first byte."""
        flat = data.reshape(-1) if data.flags.c_contiguous else data
        return list(_chunks(flat, itemsize, self.size))


def _round4(size: int) -> int:
    return -(-size // 4) * 4


def _in_words(data: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether `data` can be split between rows: copies between buffers need whole 4-byte words."""
    return data.flags.c_contiguous or data.shape[-1] * dtype.itemsize % 4 == 0


def _chunks(data: NDArray[Any], itemsize: int, most: int, start: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
    """Split `data` into chunks of at most `most` bytes; yield each with its offset in bytes in row-major order."""
    row = data[:1].size * itemsize
    if row > most:
        for i, each in enumerate(data):
            yield from _chunks(each, itemsize, most, start + i * row)
        return
    rows = most // row
    for i in range(0, len(data), rows):
        yield data[i : i + rows], start + i * row
