"""Pool of reusable buffers: an engine clears a new buffer before its first use, which takes longer than most kernels.

A queue runs its work in order, so a buffer may be written again as soon as the dispatches that read it are queued.
Idle buffers are kept up to a limit in bytes; those of the least recently requested size are destroyed first.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from webmm.engine.guard import Guard
from webmm.errors import MemoryLimitError, UnsupportedError
from webmm.kernels.base import Capabilities

LIMITS = {"discrete": 2**31, "integrated": 2**28, "other": 2**28, "cpu": 2**27}  # bytes of idle buffers kept
STEPS = 8  # sizes per power of two
LARGE = 2**20  # a destructor of a buffer this large (bytes) checks the pool's limit
EXACT = 2**12  # up to this many bytes, sizes are multiples of 16
TURNS, SMALL = 4, 2**24  # TURNS buffers of up to SMALL bytes rotate, so that consecutive results need not wait
_uids = itertools.count()
serials = itertools.count()  # of storages: one that was made later has a larger number


class Block:
    """A GPU buffer, owned by one storage after another, with the keys of the launches and bind groups that bind it.

    `refused` is the error of the dispatch that was to write the buffer, if the engine rejected that dispatch.
    """

    __slots__ = ("buffer", "groups", "launches", "owned", "refused", "size", "uid")

    def __init__(self, buffer: Any, size: int, owned: bool = True) -> None:
        self.buffer, self.size, self.owned = buffer, size, owned
        self.uid = next(_uids)
        self.launches: set[Any] = set()
        self.groups: set[Any] = set()
        self.refused: Exception | None = None


class Owner(Protocol):
    """What a storage needs of its device."""

    @property
    def pool(self) -> Pool:
        """The pool to which buffers return."""


Owner_co = TypeVar("Owner_co", bound=Owner, covariant=True)


class Storage(Generic[Owner_co]):
    """The owner of a GPU buffer: shared by the arrays over it; returns it to the device's pool after the last one."""

    __slots__ = ("__weakref__", "block", "constant", "device", "nbytes", "serial")

    def __init__(self, device: Owner_co, block: Block, nbytes: int) -> None:
        self.serial = next(serials)
        self.device = device
        self.block: Block | None = block
        self.nbytes = nbytes  # bytes of data; the buffer may be larger
        self.constant = False  # whether calls share it and must not write to it: see `Device.constant()`

    @property
    def alive(self) -> bool:
        """Whether the buffer has not been freed."""
        return self.block is not None

    @property
    def buffer(self) -> Any:
        """The wgpu buffer, None once it is freed."""
        return self.block and self.block.buffer

    def free(self) -> None:
        """Return the buffer to the pool; calling it again has no effect."""
        if self.block is not None:
            self.device.pool.give_back(self)

    def __del__(self) -> None:
        block = self.block
        if block is not None:
            self.device.pool.drop(block)


AnyStorage = Storage[Owner]  # of whatever device


class Borrowed(Storage[Owner_co]):
    """The buffer of another storage, `lender`, under another identity: what is done with it can be told apart."""

    __slots__ = ("lender",)

    def __init__(self, lender: Storage[Owner_co]) -> None:
        self.lender, self.serial = lender, lender.serial
        self.device, self.nbytes, self.constant = lender.device, lender.nbytes, False

    @property
    def block(self) -> Block | None:
        """The lender's buffer."""
        return self.lender.block

    @block.setter
    def block(self, block: Block | None) -> None:
        self.lender.block = block

    def __del__(self) -> None:
        """Leave the buffer to its lender."""


class Pool:
    """The buffers of one device.

    Callers hold the guard's lock, and a use of the device if buffers may be created or destroyed; `give_back()` and
    `drop()` acquire both themselves. `before_destroy` is called with each block before its buffer is destroyed: it
    must submit the work that needs the buffer.
    """

    def __init__(
        self, guard: Guard, capabilities: Capabilities, kind: str, before_destroy: Callable[[Block], None]
    ) -> None:
        self._guard, self._capabilities, self._before_destroy = guard, capabilities, before_destroy
        self._idle: OrderedDict[int, deque[Block]] = OrderedDict()  # idle buffers by size
        self.returned: deque[Block] = deque()  # returned by destructors, which take no lock
        # References to the blocks in use. If only their storages held them, the garbage collector would finalise a
        # storage and its block in the same pass, and the pool would get back a destroyed buffer.
        self._lent: set[Block] = set()
        self.limit = LIMITS[kind]
        self.idle_bytes = 0
        self.lent_bytes = 0

    def size(self, nbytes: int) -> int:
        """Return the buffer size for `nbytes`: a multiple of a vec4, rounded up in steps so that buffers are reused."""
        size = max(16, -(-nbytes // 16) * 16)
        if size <= EXACT:
            return size
        step = 2 ** (size.bit_length() - 1) // STEPS
        stepped = -(-size // step) * step
        limits = ("max-storage-buffer-binding-size", "max-buffer-size")
        return size if any(size <= self._capabilities.limit(each) < stepped for each in limits) else stepped

    def pick(self, size: int) -> Block | None:
        """Return an idle buffer of exactly this size, or None if a new one should be allocated."""
        if self.returned:
            self.collect()
        idle = self._idle.get(size)
        if not idle or (size <= SMALL and len(idle) < TURNS):
            return None
        self._idle.move_to_end(size)
        self.idle_bytes -= size
        self.lent_bytes += size
        block = idle.popleft()
        block.refused = None  # may be set if the previous result was dropped before its dispatch was rejected
        self._lent.add(block)
        return block

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """Return a buffer for `nbytes`, and whether it is newly allocated and therefore zero.

        Raises UnsupportedError if the size is over the device's limit, MemoryLimitError if memory runs out.
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
        usage = self._guard.engine.api.BufferUsage
        with self._guard.using(f"allocating {size:,} bytes"):
            return self._guard.device.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)

    def give(self, block: Block) -> None:
        """Move a buffer that is no longer used to the idle ones."""
        size = block.size
        if not block.owned:
            self._before_destroy(block)
            return
        self._lent.discard(block)
        self.lent_bytes -= size
        self.idle_bytes += size
        idle = self._idle.get(size)
        if idle is None:
            idle = self._idle[size] = deque()
        idle.append(block)

    def give_back(self, storage: AnyStorage) -> None:
        """Return the buffer of `storage` to the pool, if it has one; destroy idle buffers over the limit."""
        if self._guard.abandoned:
            return
        with self._guard.uses.use(), self._guard.lock:
            block, storage.block = storage.block, None
            if block is not None:
                self.give(block)
            self._enforce_limit()

    def drop(self, block: Block) -> None:
        """Return a buffer from a destructor, which may run at any point and so must not wait."""
        self.returned.append(block)
        if block.size < LARGE or self._guard.abandoned:
            return
        if self._guard.lock.acquire(blocking=False):
            try:
                with self._guard.uses.use():
                    self._enforce_limit()
            finally:
                self._guard.lock.release()

    def _enforce_limit(self) -> None:
        self.collect()
        if self.idle_bytes > self.limit and not self._guard.lost:
            self.trim(self.limit)

    def collect(self) -> None:
        """Add the buffers that destructors returned to the idle ones."""
        while self.returned:
            self.give(self.returned.popleft())

    def trim(self, limit: int = 0) -> None:
        """Destroy idle buffers, those of the least recently used sizes first, until at most `limit` bytes are idle."""
        self.collect()
        while self.idle_bytes > limit and not self._guard.encoding:  # a destructor may call this at any moment
            size, idle = next(iter(self._idle.items()))
            if not idle:
                self._idle.pop(size, None)
                continue
            block = idle.popleft()
            self.idle_bytes -= size
            self._before_destroy(block)
            block.buffer.destroy()

    def clear(self) -> None:
        """Drop all buffers; they are destroyed with the device."""
        self._idle.clear()
        self._lent.clear()
        self.returned.clear()
        self.idle_bytes = 0
