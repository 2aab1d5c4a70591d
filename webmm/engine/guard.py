"""Guarded access to a device, which other threads may close, the driver may lose, and a fork may invalidate."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from webmm.engine import forking
from webmm.engine.engine import Engine
from webmm.engine.lifetime import Uses
from webmm.errors import DeviceLostError, MemoryLimitError, WebmmError

SAYS_LOST = re.compile(r"\[Device[^\]]*\] is lost")  # at the start: a compiler's message may quote anything


class Guard:
    """Counts the uses of an engine's device, knows whether it is lost, and converts the engine's errors to webmm's."""

    def __init__(self, engine: Engine, device: Any, name: str) -> None:
        self.engine, self.device, self.name = engine, device, name
        self.lost = ""  # why the device is lost or closed; empty while it is usable
        self.abandoned = False  # whether this process was forked from the one that owns the device
        self.lock = threading.RLock()  # held while work is encoded and submitted, and while a buffer is destroyed
        self.encoding = False  # whether the thread that holds the lock is encoding work that needs live buffers
        self.uses = Uses()
        self._destroyed = False

    @contextmanager
    def using(self, doing: str) -> Iterator[None]:
        """Keep the device alive, and translate the engine's errors; raise DeviceLostError if the device is lost.

        Enter it before acquiring the lock: a thread that holds the lock must be counted as using the device.
        """
        with self.uses.use(waits=True):
            if self._destroyed and not self.lost:  # not every call of the engine reports it
                self.find_lost(doing, RuntimeError("the device is lost, since its destroy() was called"))
            if self.lost:
                raise DeviceLostError(f"{doing}: {self.lost}")
            try:
                yield
            except WebmmError:
                raise
            except Exception as error:  # wgpu-py raises various types if the device is lost while a buffer is mapped
                if not isinstance(error, self.engine.api.GPUOutOfMemoryError) and self.find_lost(doing, error):
                    raise DeviceLostError(f"{doing}: {self.lost}") from _bare(error)
                if isinstance(error, self.engine.api.GPUError):
                    raise self.error(doing, error) from _bare(error)
                raise

    def error(self, doing: str, error: Exception) -> WebmmError:
        """Return webmm's error for an error of the engine."""
        if isinstance(error, self.engine.api.GPUOutOfMemoryError):
            return MemoryLimitError(f"{doing}: the device is out of memory; free arrays or use smaller ones")
        return WebmmError(f"{doing}: {error}")

    def find_lost(self, doing: str, error: Exception) -> bool:
        """Tell whether the device is lost, and remember the reason.

        The error itself may be all that says so: what Dawn is asked then, another thread may get as its error.
        """
        if not self.lost and (SAYS_LOST.match(str(error)) or self.engine.is_lost(self.device)):
            reason = self.engine.loss_reason(self.device) or " ".join(str(error).split())
            self.lost = (
                f"{self.name} was lost while {doing}, and its arrays with it (the driver says: {reason}); open "
                "another Device and upload them again"
            )
        return bool(self.lost)

    def shield(self) -> None:
        """Make the engine device's own `destroy()` wait for the uses under way: without that the process aborts."""
        destroy = self.device.destroy

        def wrapped() -> None:
            destroy()
            self._destroyed = True

        self.device.destroy = lambda: self.uses.end(wrapped, exclusive=True)

    def close(self, destroy: Callable[[], None]) -> None:
        """Refuse new uses, wait for those under way, and call `destroy`, unless the parent process owns the device.

        If a destructor calls this within a use, it does not wait: the last use to end calls `destroy`.
        """
        self.lost = self.lost or f"the device on {self.name} was closed, and its arrays are gone with it"
        self.uses.end(lambda: None if self.abandoned else destroy())

    def abandon(self) -> None:
        """Mark the device as owned by the parent process; called in a forked child."""
        self.lost = f"the device on {self.name} belongs to the process that this one was forked from; {forking.ADVICE}"
        self.abandoned, self.uses = True, Uses()


def frameless(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return `call(*args, **kwargs)`, a call of the engine's package that borrows memory; its errors have no frames.

    Otherwise every context manager that an error leaves keeps them, and in them what `_bare()` is about.
    """
    try:
        return call(*args, **kwargs)
    except Exception as error:
        raise _bare(error)  # noqa: B904  # the same error


def _bare(error: Exception) -> Exception:
    """Return an error of the engine without its traceback.

    The frames are in a reference cycle with memoryviews borrowed by C, and Python 3.11 aborts when it collects those.
    """
    return error.with_traceback(None)
