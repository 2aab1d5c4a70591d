"""When a device may be destroyed: wgpu-native aborts the process if a thread is transferring data at that time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

POLL = 1e-3  # seconds between two checks whether all uses have ended


class Uses:
    """The uses of a device that are under way, and the action to run when the last one ends.

    The class has no lock: the garbage collector may call it at any moment, in a thread that holds one. Adding to a set,
    removing from it and copying it are atomic.
    """

    def __init__(self) -> None:
        self._active: set[Use] = set()
        self._action: Callable[[], None] | None = None
        self._exclusive = False
        self._ended = time.perf_counter()

    @property
    def idle(self) -> float:
        """The seconds since the last use ended, or since none ever began; 0 while one is under way."""
        return 0.0 if self._active else time.perf_counter() - self._ended

    def use(self, waits: bool = False) -> Use:
        """Return a context that counts as a use by the calling thread; with `waits` it waits for an exclusive end."""
        return Use(self, waits)

    def end(self, action: Callable[[], None], exclusive: bool = False) -> None:
        """Wait until no use is active, then call `action`; uses that begin meanwhile are waited for, too.

        With `exclusive`, new uses with `waits` wait until it is done, unless their thread is within a use already. A
        thread that is itself within a use does not wait, which would be a deadlock: the last use to end calls `action`
        instead. Several threads may call this at once; `action` may then run more than once and must tolerate that.
        """
        self._action, self._exclusive = action, exclusive
        me = threading.get_ident()
        while (active := self._active.copy()) and all(use.thread != me for use in active):
            time.sleep(POLL)
        if not active:
            self._finish()

    def enter(self, use: Use) -> None:
        """Count `use`; a waiting use first waits for an exclusive end."""
        nested = not use.waits or any(other.thread == use.thread for other in self._active.copy())
        self._active.add(use)  # first, so that an end that begins now sees it
        while self._exclusive and not nested:
            self.leave(use)
            time.sleep(POLL)
            self._active.add(use)

    def leave(self, use: Use) -> None:
        """Stop counting `use`; the last one to leave runs the pending action."""
        self._ended = time.perf_counter()
        self._active.discard(use)
        if self._action and not self._active:
            self._finish()

    def _finish(self) -> None:
        if action := self._action:
            with self.use():  # so that other threads in end() wait, and uses within `action` do not finish again
                try:
                    action()
                finally:
                    self._action, self._exclusive = None, False


class Use:
    """A context during which the device is not destroyed; see `Uses.use()`."""

    __slots__ = ("_uses", "thread", "waits")

    def __init__(self, uses: Uses, waits: bool) -> None:
        self._uses, self.waits = uses, waits
        self.thread = threading.get_ident()

    def __enter__(self) -> None:
        self._uses.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uses.leave(self)
