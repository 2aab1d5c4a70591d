"""Work on its way to the queue: a submission costs as much as several small kernels, and so calls that follow each
other closely share one.

The first call after a pause is submitted at once. Those that follow within `PAUSE` are collected, up to `MOST`, or to
what keeps the device busy for `BUSY`; the rest goes out before anybody reads, waits or touches the engine's device, and
by a thread within some milliseconds at the latest.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from webmm.engine.guard import Guard
from webmm.engine.pool import Block
from webmm.errors import WebmmError

if TYPE_CHECKING:
    from webmm.engine.launch import Launch

PAUSE = 1e-4  # seconds between two calls, above which the device is taken to have nothing to do
MOST = 16  # launches to a submission
BUSY = 1e-3  # seconds of work to a submission, by `seconds()`
TICK = 5e-4  # seconds between two looks of the thread, and the age at which it submits
IDLE = 20  # looks without work after which the thread sleeps until it is woken
# Operations and bytes per second that devices of a kind may reach. Where one is slower, more of its work shares a
# submission, which does no harm: it is busy with the one before.
RATES = {"cpu": (1e11, 2e10), "integrated": (4e12, 1e11), "other": (4e12, 1e11), "discrete": (4e13, 2e12)}


def seconds(kind: str, operations: int, moved: int) -> float:
    """Return how long a device of this kind takes at least for so many operations and bytes."""
    rate, bandwidth = RATES[kind]
    return operations / rate + moved / bandwidth


# A launch, with the buffers that it reads or writes, and those that it writes.
Queued = tuple["Launch", tuple[Block, ...], tuple[Block, ...]]


class Submissions:
    """The launches of one device that are not submitted yet; where it is `shared`, each goes at once."""

    def __init__(self, guard: Guard, shared: bool) -> None:
        self._guard, self.shared = guard, shared
        self.pending: list[Queued] = []
        self.count = 0  # submissions so far
        self._seconds = 0.0
        self._last = 0.0  # when something was queued or submitted
        self._wake, self.closed = threading.Event(), False
        self.thread: threading.Thread | None = None
        weakref.finalize(self, self._wake.set).atexit = False
        _open.add(self)

    def add(self, queued: Queued) -> bool:
        """Collect a launch; tell whether it is time to `flush()`. Whoever calls holds the lock."""
        pending, now = self.pending, time.perf_counter()
        before, self._last = self._last, now
        pending.append(queued)
        self._seconds += queued[0].seconds
        count = len(pending)
        if count >= MOST or self._seconds >= BUSY or self.shared or (count == 1 and now - before > PAUSE):
            return True
        if not self._wake.is_set():
            self._rouse()
        return False

    def flush(self, written: Sequence[Block] = ()) -> None:
        """Submit what is pending; no error leaves it but that of a lost device, and of the launch that was to write one
        of `written`, the caller's own.

        What else was refused is told by whoever uses its result: `Block.refused`.
        """
        if not self.pending:
            return
        with self._guard.using("submitting"), self._guard.lock:
            pending, self.pending, self._seconds = self.pending, [], 0.0
            if not pending:
                return
            self._guard.encoding = True
            try:
                self._submit(pending)
            except self._guard.engine.errors as error:
                if self._guard.find_lost("submitting", error):
                    raise
                self._one_by_one(pending)
            finally:
                self._guard.encoding = False
            self._last = time.perf_counter()
            if refused := next((block.refused for block in written if block.refused), None):
                for block in written:
                    block.refused = None  # the caller hears of it now
                raise refused

    def _submit(self, pending: Iterable[Queued]) -> None:
        self.count += 1
        self._guard.engine.submit(self._guard.device, [d for launch, _, _ in pending for d in launch.dispatches])

    def _one_by_one(self, pending: list[Queued]) -> None:
        """Submit each for itself, so that one that is refused takes no other along but those that read its result."""
        for queued in pending:
            launch, blocks, written = queued
            error = next((block.refused for block in blocks if block.refused), None)
            if error is None:
                try:
                    self._submit([queued])
                except self._guard.engine.errors as refused:
                    if self._guard.find_lost("submitting", refused):
                        raise
                    error = self._guard.error(f"running {launch.label}", refused)
            if error is not None:
                for block in written:
                    block.refused = error

    def _rouse(self) -> None:
        """Have the thread look after what is pending."""
        self._wake.set()
        if self.thread is None:
            looking = (weakref.ref(self), self._wake)
            self.thread = threading.Thread(target=_look, args=looking, daemon=True, name="webmm-queue")
            self.thread.start()

    def look(self) -> bool:
        """Submit what has waited; tell whether there was anything."""
        if not self.pending:
            return False
        if time.perf_counter() - self._last > TICK:
            with contextlib.suppress(WebmmError):  # whoever uses the device hears of it
                self.flush()
        return True

    def close(self) -> None:
        """Let the thread go; what is pending goes with the device."""
        self.closed = True
        self.pending = []
        self._wake.set()


_open: weakref.WeakSet[Submissions] = weakref.WeakSet()


def _look(reference: weakref.ref[Submissions], wake: threading.Event) -> None:
    idle = 0
    while True:
        if idle > IDLE:
            wake.clear()
            submissions = reference()
            if submissions is not None and not submissions.pending and not submissions.closed:
                del submissions  # so that the device may go meanwhile
                wake.wait()
            idle = 0
        time.sleep(TICK)
        submissions = reference()
        if submissions is None or submissions.closed:
            return
        idle = 0 if submissions.look() else idle + 1
        del submissions


@atexit.register
def _end() -> None:
    """Have no thread within the engine when the interpreter ends."""
    for submissions in tuple(_open):
        with contextlib.suppress(WebmmError):
            submissions.flush()
        submissions.close()
        if submissions.thread:
            submissions.thread.join(1)
