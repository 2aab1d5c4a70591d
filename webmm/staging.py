"""Moving data through mapped staging buffers that are made once and reused.

Data goes in chunks, each in a thread of its own, so that the device copies one while the host copies others; a fresh
result is also paged in faster by several threads than by one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

CHUNK = 8 * 2**20  # bytes of a staging buffer
LEAST = 2**20  # bytes of a chunk of data that would not fill all buffers
THREADS = min(4, os.cpu_count() or 1)
DEPTH = 2 * THREADS  # staging buffers each way: as many as threads fill are with the device
DIRECT_WRITE = 2**18  # bytes up to which queue.write_buffer is quicker than mapping

Bytes = NDArray[np.uint8]


class Staging:
    """The staging buffers of one device, made as they are needed; safe to share between threads."""

    def __init__(self, device: Any, chunk: int = CHUNK, threads: int = THREADS, depth: int = DEPTH) -> None:
        self._device = device
        self._chunk, self._depth = chunk, depth
        self._pool = ThreadPoolExecutor(threads, "webmm-copy")
        self._writing = _Ring(device, chunk, wgpu.BufferUsage.MAP_WRITE | wgpu.BufferUsage.COPY_SRC)
        self._reading = _Ring(device, chunk, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)

    def close(self) -> None:
        """Let the threads go; the buffers go with the device."""
        self._pool.shutdown()

    def upload(self, data: Bytes, target: Any, offset: int = 0) -> None:
        """Copy `data` to the wgpu buffer `target` from byte `offset`, a multiple of 4, on."""
        if data.nbytes <= DIRECT_WRITE:
            self._device.queue.write_buffer(target, offset, _padded(data))
            return

        def move(start: int, stop: int, buffers: int) -> None:
            piece = _padded(data[start:stop])
            with self._writing.buffer(buffers) as buffer:
                np.copyto(self._mapped(buffer, "WRITE", piece.nbytes), piece)
                buffer.unmap()
                self._copy(buffer, 0, target, offset + start, piece.nbytes)

        self._each_chunk(data.nbytes, move)

    def download(self, source: Any, offset: int, data: Bytes) -> None:
        """Copy bytes of the wgpu buffer `source` from `offset`, a multiple of 4, on to `data`."""

        def move(start: int, stop: int, buffers: int) -> None:
            size = _round4(stop - start)
            with self._reading.buffer(buffers) as buffer:
                self._copy(source, offset + start, buffer, 0, size)
                np.copyto(data[start:stop], self._mapped(buffer, "READ_NOSYNC", size)[: stop - start])
                buffer.unmap()

        self._each_chunk(data.nbytes, move)

    def _each_chunk(self, nbytes: int, move: Callable[[int, int, int], None]) -> None:
        """Call move(start, stop, buffers to use) for each chunk, from several threads where there are several."""
        step = min(self._chunk, max(LEAST, _round4(-(-nbytes // self._depth))))
        starts = range(0, nbytes, step)
        if len(starts) == 1:
            move(0, nbytes, 1)
            return
        buffers = min(self._depth, len(starts))
        for _ in self._pool.map(lambda start: move(start, min(start + step, nbytes), buffers), starts):
            pass  # raises what a thread raised

    def _mapped(self, buffer: Any, mode: str, size: int) -> Bytes:
        """Return the mapped start of `buffer`, once the device is done with it."""
        mapped = buffer.map_async(mode, 0, size)
        self._device._poll()  # maps an idle buffer at once; wgpu's own thread would wait for the queue first
        mapped.sync_wait()
        return np.frombuffer(buffer._experimental_get_mapped_range(0, size), np.uint8)

    def _copy(self, source: Any, source_offset: int, target: Any, target_offset: int, size: int) -> None:
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(source, source_offset, target, target_offset, size)
        self._device.queue.submit([encoder.finish()])


class _Ring:
    """Equal buffers that are used in turn, the longest unused first."""

    def __init__(self, device: Any, size: int, usage: int) -> None:
        self._device, self._size, self._usage = device, size, usage
        self._free: deque[Any] = deque()
        self._made = 0
        self._change = threading.Condition()

    @contextmanager
    def buffer(self, at_most: int) -> Iterator[Any]:
        """Lend a buffer, a new one where there are fewer than `at_most`; one that failed in use is not used again."""
        with self._change:
            if self._made < at_most:
                self._free.appendleft(self._device.create_buffer(size=self._size, usage=self._usage))
                self._made += 1
            self._change.wait_for(lambda: self._free)
            buffer = self._free.popleft()
        try:
            yield buffer
        except BaseException:
            with self._change:
                self._made -= 1
            raise
        with self._change:
            self._free.append(buffer)
            self._change.notify()


def _round4(size: int) -> int:
    return -(-size // 4) * 4


def _padded(data: Bytes) -> Bytes:
    missing = -data.nbytes % 4
    return np.concatenate([data, np.zeros(missing, np.uint8)]) if missing else data
