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
        self._shut = False

    def one(self, in_turn: bool = False) -> Use:
        """Return a context that counts as a use by the calling thread; `in_turn`, it waits for an end that is shut."""
        return Use(self, in_turn)

    def end(self, last: Callable[[], None], shut: bool = False) -> None:
        """Wait until nobody is within a use, then call `last`; uses that begin meanwhile must end by themselves.
        With `shut`, uses in turn wait for it, but those of threads that are within one.

        A thread that is itself within a use does not wait, as it would for ever: whoever leaves last calls `last` then.
        Several threads may call it at once; `last` may then be called again, which must do no harm.
        """
        self._last, self._shut = last, shut
        me = threading.get_ident()
        while (users := self._under_way.copy()) and all(use.thread != me for use in users):
            time.sleep(POLL)
        if not users:
            self._finish()

    def enter(self, use: Use) -> None:
        """Count `use`, when it is its turn."""
        within = not use.in_turn or any(other.thread == use.thread for other in self._under_way.copy())
        self._under_way.add(use)  # first, so that an end that begins now sees it
        while self._shut and not within:
            self.leave(use)
            time.sleep(POLL)
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
                    self._last, self._shut = None, False


class Use:
    """A context in which the device stays; see `Uses.one()`."""

    __slots__ = ("_uses", "in_turn", "thread")

    def __init__(self, uses: Uses, in_turn: bool) -> None:
        self._uses, self.in_turn = uses, in_turn
        self.thread = threading.get_ident()

    def __enter__(self) -> None:
        self._uses.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uses.leave(self)
