"""Buffers of arrays, used again: engines clear a new one before its first use, which takes longer than most kernels.

A queue runs what it is given in order, so that a buffer may be written again as soon as those who read it are queued.
Buffers that nobody uses are kept up to a bound; the sizes that were not asked for longest go first.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webmm.engine.guard import Guard
from webmm.errors import MemoryLimitError, UnsupportedError
from webmm.kernels.base import Capabilities

if TYPE_CHECKING:
    from webmm.engine.array import Storage

MOST = {"discrete": 2**31, "integrated": 2**28, "other": 2**28, "cpu": 2**27}  # bytes that are kept for later
STEPS = 8  # sizes per power of two
LARGE = 2**20  # bytes of a buffer for which a destructor looks whether too much is kept
EXACT = 2**12  # bytes up to which sizes are multiples of 16
TURNS, SMALL = 4, 2**24  # so many buffers of up to so many bytes take turns: neighbouring results then do not wait
_uids = itertools.count()


class Block:
    """A GPU buffer that storages own one after the other, with the keys of the launches that bind it.

    `refused` is why it holds no result, where the engine refused the dispatch that was to write it.
    """

    __slots__ = ("buffer", "launches", "owned", "refused", "size", "uid")

    def __init__(self, buffer: Any, size: int, owned: bool = True) -> None:
        self.buffer, self.size, self.owned = buffer, size, owned
        self.uid = next(_uids)
        self.launches: set[Any] = set()
        self.refused: Exception | None = None


class Pool:
    """The buffers of one device; whoever calls it holds the lock, within a use where memory is made or destroyed.
    `give_back()` and `drop()` see to that themselves.

    `destroying` is called before a buffer goes, with the keys of its launches: work that needs it must be submitted.
    """

    def __init__(
        self, guard: Guard, capabilities: Capabilities, kind: str, destroying: Callable[[set[Any]], None]
    ) -> None:
        self._guard, self._capabilities, self._destroying = guard, capabilities, destroying
        self._idle: OrderedDict[int, deque[Block]] = OrderedDict()  # by size
        self.returned: deque[Block] = deque()  # by destructors, which take no lock
        # Were they in garbage with their storages only, the collector would finalise both, and a buffer with its device
        # still there would come back empty.
        self._lent: set[Block] = set()
        self.most = MOST[kind]
        self.idle_bytes = 0
        self.lent_bytes = 0

    def size(self, nbytes: int) -> int:
        """Return the size of a buffer for so many bytes: whole vec4, and in steps, so that buffers fit again."""
        size = max(16, -(-nbytes // 16) * 16)
        if size <= EXACT:
            return size
        step = 2 ** (size.bit_length() - 1) // STEPS
        stepped = -(-size // step) * step
        limits = ("max-storage-buffer-binding-size", "max-buffer-size")
        return size if any(size <= self._capabilities.limit(each) < stepped for each in limits) else stepped

    def pick(self, size: int) -> Block | None:
        """Return an idle buffer of just this size, None where a new one is better."""
        if self.returned:
            self.collect()
        idle = self._idle.get(size)
        if not idle or (size <= SMALL and len(idle) < TURNS):
            return None
        self._idle.move_to_end(size)
        self.idle_bytes -= size
        self.lent_bytes += size
        block = idle.popleft()
        block.refused = None  # which a launch may have been after its result was dropped
        self._lent.add(block)
        return block

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """Return a buffer for so many bytes, and whether it is a new one, of zeros.

        Raises UnsupportedError where it is over the device's limits, MemoryLimitError where there is no room.
        """
        size = self.size(nbytes)
        if (found := self.pick(size)) is not None:
            return found, False
        limit = self._capabilities.limit("max-buffer-size")
        if size > limit:
            raise UnsupportedError(
                f"the array needs {size:,} bytes, {self._capabilities.name} allows {limit:,} (max-buffer-size)"
            )
        try:
            buffer = self._make(size)
        except MemoryLimitError:
            if not self.idle_bytes:
                raise
            self.trim()
            buffer = self._make(size)
        self.lent_bytes += size
        block = Block(buffer, size)
        self._lent.add(block)
        return block, True

    def _make(self, size: int) -> Any:
        usage = self._guard.engine.buffer_usage
        with self._guard.using(f"allocating {size:,} bytes"):
            return self._guard.device.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)

    def give(self, block: Block) -> None:
        """Take a buffer back, that nobody will use any more."""
        size = block.size
        if not block.owned:
            self._destroying(block.launches)
            return
        self._lent.discard(block)
        self.lent_bytes -= size
        self.idle_bytes += size
        idle = self._idle.get(size)
        if idle is None:
            idle = self._idle[size] = deque()
        idle.append(block)

    def give_back(self, storage: Storage) -> None:
        """Take the buffer of `storage` back, unless that has happened; idle buffers over the bound go."""
        if self._guard.abandoned:
            return
        with self._guard.uses.one(), self._guard.lock:
            block, storage.block = storage.block, None
            if block is not None:
                self.give(block)
            self._tidy()

    def drop(self, block: Block) -> None:
        """Take a buffer back from a destructor, which may run anywhere, and so waits for nobody."""
        self.returned.append(block)
        if block.size < LARGE or self._guard.abandoned:
            return
        if self._guard.lock.acquire(blocking=False):
            try:
                with self._guard.uses.one():
                    self._tidy()
            finally:
                self._guard.lock.release()

    def _tidy(self) -> None:
        self.collect()
        if self.idle_bytes > self.most and not self._guard.lost:
            self.trim(self.most)

    def collect(self) -> None:
        """Take back what destructors returned."""
        while self.returned:
            self.give(self.returned.popleft())

    def trim(self, most: int = 0) -> None:
        """Destroy idle buffers, those of the longest unused sizes first, until at most so many bytes are kept."""
        self.collect()
        while self.idle_bytes > most and not self._guard.encoding:  # a destructor may come here at any moment
            size, idle = next(iter(self._idle.items()))
            if not idle:
                self._idle.pop(size, None)
                continue
            block = idle.popleft()
            self.idle_bytes -= size
            self._destroying(block.launches)
            block.buffer.destroy()

    def clear(self) -> None:
        """Let everything go with the device."""
        self._idle.clear()
        self._lent.clear()
        self.returned.clear()
        self.idle_bytes = 0
