"""Batching of dispatches into submissions: a submission costs as much as several small kernels.

The first dispatch after a pause is submitted at once, the next two together, then four, and so on up to
`PER_SUBMISSION`, or as many as keep the device busy for `BUSY`: the device starts early, and a host that is slower than
the device does not pay for a submission per dispatch. The rest is submitted before a read, a wait or direct use of the
engine's device, and by a background thread after a few milliseconds at the latest.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

from webmm.engine.engine import Copy
from webmm.engine.guard import Guard
from webmm.engine.launch import Launch
from webmm.engine.pool import Block
from webmm.errors import WebmmError

PAUSE = 1e-3  # seconds between two calls after which the device is assumed to be idle
PER_SUBMISSION = 16  # launches at most
BUSY = 1e-3  # seconds of work per submission, estimated by `minimum_seconds()`
TICK = 5e-4  # seconds between two checks of the thread, and the age at which it submits
IDLE = 20  # checks without work after which the thread sleeps until it is woken
# Upper bounds of the operations and bytes per second of each kind of device. A slower device collects more work per
# submission, which is harmless: it is still busy with the previous one.
RATES = {"cpu": (1e11, 2e10), "integrated": (4e12, 1e11), "other": (4e12, 1e11), "discrete": (4e13, 2e12)}


def minimum_seconds(kind: str, operations: int, nbytes: int) -> float:
    """Return the least time that a device of this kind takes for `operations` and `nbytes` of memory traffic."""
    rate, bandwidth = RATES[kind]
    return operations / rate + nbytes / bandwidth


# A launch, the buffers that it reads or writes, and the buffers that it writes.
Queued = tuple[Launch, tuple[Block, ...], tuple[Block, ...]]


class Submissions:
    """The launches of one device that are not submitted yet.

    If the engine's device is `shared` with other code, each launch is submitted at once.
    """

    def __init__(self, guard: Guard, shared: bool) -> None:
        self._guard, self.shared = guard, shared
        self.pending: list[Queued] = []
        self.count = 0  # submissions of launches so far
        self._seconds = 0.0
        self._last = 0.0  # time of the last add() or submission
        self._most = 1  # launches of the next submission at most
        self._held = 0  # contexts of held() that are active
        self._wake, self.closed = threading.Event(), False
        self.thread: threading.Thread | None = None
        weakref.finalize(self, self._wake.set).atexit = False
        _open.add(self)

    def add(self, queued: Queued) -> bool:
        """Collect a launch, and tell whether it is time to `flush()`; the caller holds the lock."""
        pending, now = self.pending, time.perf_counter()
        before, self._last = self._last, now
        pending.append(queued)
        self._seconds += queued[0].seconds
        if now - before > PAUSE:
            self._most = 1
        most = PER_SUBMISSION if self._held else self._most
        if len(pending) >= most or self._seconds >= BUSY or self.shared:
            return True
        if not self._wake.is_set():
            self._wake_thread()
        return False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Return a context that ends with a read: launches are submitted together with it rather than at once."""
        with self._guard.lock:
            self._held += 1
        try:
            yield
        finally:
            with self._guard.lock:
                self._held -= 1
            self.flush()  # after an error: nothing else may submit what is pending

    def flush(self, written: Sequence[Block] = ()) -> None:
        """Submit the pending launches.

        Raises only the error of a lost device, and that of a rejected launch that writes one of `written`, the caller's
        results. Errors of other launches are stored in `Block.refused` and raised when their result is used.
        """
        if not self.pending:
            return
        with self._guard.using("submitting"), self._guard.lock:
            if not self.pending:
                return
            self._submit_pending()
            if refused := next((block.refused for block in written if block.refused), None):
                for block in written:
                    block.refused = None  # reported now
                raise refused

    def submit_with(self, copy: Callable[[], Copy]) -> None:
        """Submit the pending launches and then the copy that `copy()` returns, in one submission.

        The caller is within a use of the device. Raises what `copy()` raises, for example the error of a rejected
        launch that was to write the source.
        """
        with self._guard.lock:
            if not self._submit_pending(copy()):
                self._guard.engine.submit(self._guard.device, (), copy())

    def _submit_pending(self, copy: Copy | None = None) -> bool:
        """Submit the pending launches, and `copy` unless one of them is rejected; tell whether all was submitted."""
        pending, self.pending, self._seconds = self.pending, [], 0.0
        self._most = min(2 * self._most, PER_SUBMISSION)
        self._guard.encoding = True
        try:
            self._submit(pending, copy)
            return True
        except self._guard.engine.api.GPUError as error:
            if not pending or self._guard.find_lost("submitting", error):
                raise
            self._one_by_one(pending)
            return False
        finally:
            self._guard.encoding = False
            self._last = time.perf_counter()

    def _submit(self, pending: Iterable[Queued], copy: Copy | None = None) -> None:
        dispatches = [d for launch, _, _ in pending for d in launch.dispatches]
        self.count += bool(dispatches)
        self._guard.engine.submit(self._guard.device, dispatches, copy)

    def _one_by_one(self, pending: list[Queued]) -> None:
        """Submit each launch separately, so that a rejected one affects only the launches that use its result."""
        for queued in pending:
            launch, blocks, written = queued
            error = next((block.refused for block in blocks if block.refused), None)
            if error is None:
                try:
                    self._submit([queued])
                except self._guard.engine.api.GPUError as refused:
                    if self._guard.find_lost("submitting", refused):
                        raise
                    error = self._guard.error(f"running {launch.label}", refused)
            if error is not None:
                for block in written:
                    block.refused = error

    def _wake_thread(self) -> None:
        """Start or wake the thread that submits pending launches."""
        self._wake.set()
        if self.thread is None:
            args = (weakref.ref(self), self._wake)
            self.thread = threading.Thread(target=_submit_in_background, args=args, daemon=True, name="webmm-queue")
            self.thread.start()

    def check(self) -> bool:
        """Submit pending launches that have waited for `TICK`; tell whether any were pending."""
        if not self.pending:
            return False
        if time.perf_counter() - self._last > TICK:
            with contextlib.suppress(WebmmError):  # the next use of the device raises it
                self.flush()
        return True

    def close(self) -> None:
        """Stop the thread; pending launches are dropped with the device."""
        self.closed = True
        self.pending = []
        self._wake.set()


_open: weakref.WeakSet[Submissions] = weakref.WeakSet()


def _submit_in_background(reference: weakref.ref[Submissions], wake: threading.Event) -> None:
    idle = 0
    while True:
        if idle > IDLE:
            wake.clear()
            submissions = reference()
            if submissions is not None and not submissions.pending and not submissions.closed:
                del submissions  # so that the device can be garbage-collected meanwhile
                wake.wait()
            idle = 0
        time.sleep(TICK)
        submissions = reference()
        if submissions is None or submissions.closed:
            return
        idle = 0 if submissions.check() else idle + 1
        del submissions


@atexit.register
def _stop_threads() -> None:
    """Stop all threads before the interpreter exits, so that none is within the engine."""
    for submissions in tuple(_open):
        with contextlib.suppress(WebmmError):
            submissions.flush()
        submissions.close()
        if submissions.thread:
            submissions.thread.join(1)
