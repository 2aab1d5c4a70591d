"""When a device may go: wgpu-native ends the process where one is destroyed while a thread moves data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

POLL = 1e-3  # seconds between two looks whether everybody has left


class Uses:
    """Who uses a device right now, and what to do when nobody does any more.

    It holds no lock of its own: the garbage collector may come through here at any moment, in a thread that holds one.
    Adding to a set, taking from it and copying it are atomic.
    """

    def __init__(self) -> None:
        self._under_way: set[Use] = set()
        self._last: Callable[[], None] | None = None

    def one(self) -> Use:
        """Return a context that counts as a use by the calling thread."""
        return Use(self)

    def end(self, last: Callable[[], None]) -> None:
        """Wait until nobody is within a use, then call `last`; uses that begin meanwhile must end by themselves.

        A thread that is itself within a use does not wait, as it would for ever: whoever leaves last calls `last` then.
        Several threads may call it at once; `last` may then be called again, which must do no harm.
        """
        self._last = last
        me = threading.get_ident()
        while (users := self._under_way.copy()) and all(use.thread != me for use in users):
            time.sleep(POLL)
        if not users:
            self._finish()

    def enter(self, use: Use) -> None:
        """Count `use`."""
        self._under_way.add(use)

    def leave(self, use: Use) -> None:
        """Count `use` no more."""
        self._under_way.discard(use)
        if self._last and not self._under_way:
            self._finish()

    def _finish(self) -> None:
        if last := self._last:
            with self.one():  # so that whoever ends it, too, waits, and a use by `last` itself does not come here again
                try:
                    last()
                finally:
                    self._last = None


class Use:
    """A context in which the device stays; see `Uses.one()`."""

    __slots__ = ("_uses", "thread")

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self.thread = threading.get_ident()

    def __enter__(self) -> None:
        self._uses.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uses.leave(self)
