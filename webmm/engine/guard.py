"""Work with a device that other threads may close, the driver may lose, and a fork may take away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from webmm.engine import forking
from webmm.engine.lifetime import Uses
from webmm.engine.wgpu import Wgpu
from webmm.errors import DeviceLostError, MemoryLimitError, WebmmError


class Guard:
    """Who uses an engine's device, whether it is still there, and which of webmm's errors the engine's become."""

    def __init__(self, engine: Wgpu, device: Any, name: str) -> None:
        self.engine, self.device, self.name = engine, device, name
        self.lost = ""  # why the device is gone, if it is
        self.abandoned = False  # to the process that this one was forked from
        self.lock = threading.RLock()  # held while work is encoded and submitted, and by whoever destroys a buffer
        self.encoding = False  # whether the thread that holds the lock is about to submit what needs its buffers
        self.uses = Uses()
        self._destroyed = False

    @contextmanager
    def using(self, doing: str) -> Iterator[None]:
        """Turn the engine's errors into webmm's; refuse to begin where the device is gone, and keep it until the end.

        It comes before the lock: a thread that holds the lock must be known to use the device.
        """
        with self.uses.one(in_turn=True):
            if self._destroyed and not self.lost:  # not every call of the engine's would say so
                self.find_lost(doing, RuntimeError("the device is lost, since its destroy() was called"))
            if self.lost:
                raise DeviceLostError(f"{doing}: {self.lost}")
            try:
                yield
            except WebmmError:
                raise
            except Exception as error:  # of any kind, where wgpu-py meets a device that is gone while it maps a buffer
                if not isinstance(error, self.engine.out_of_memory) and self.find_lost(doing, error):
                    raise DeviceLostError(f"{doing}: {self.lost}") from _bare(error)
                if isinstance(error, self.engine.errors):
                    raise self.error(doing, error) from _bare(error)
                raise

    def error(self, doing: str, error: Exception) -> WebmmError:
        """Return webmm's error for one of the engine's."""
        if isinstance(error, self.engine.out_of_memory):
            return MemoryLimitError(f"{doing}: the device is out of memory; free arrays or use smaller ones")
        return WebmmError(f"{doing}: {error}")

    def find_lost(self, doing: str, error: Exception) -> bool:
        """Find out whether the device is gone, and keep what there is to say about it."""
        if self.engine.gone(self.device) and not self.lost:
            words = self.engine.last_words(self.device) or " ".join(str(error).split())
            self.lost = (
                f"{self.name} was lost while {doing}, and its arrays with it (the driver's words: {words}); open "
                "another Device and upload them again"
            )
        return bool(self.lost)

    def shield(self) -> None:
        """Have a `destroy()` of the engine's own device, too, wait for what is under way: it would end the process."""
        destroy = self.device.destroy

        def last() -> None:
            destroy()
            self._destroyed = True

        self.device.destroy = lambda: self.uses.end(last, shut=True)

    def close(self, destroy: Callable[[], None]) -> None:
        """Let nobody begin any more, wait for what is under way, and call `destroy`, unless the parent has the device.

        Within a use, where a destructor may call this, nothing is waited for: whoever leaves last calls it then.
        """
        self.lost = self.lost or f"the device on {self.name} was closed, and its arrays are gone with it"
        self.uses.end(lambda: None if self.abandoned else destroy())

    def abandon(self) -> None:
        """Leave the device and all that is on it to the process that this one was forked from."""
        self.lost = f"the device on {self.name} belongs to the process that this one was forked from; {forking.ADVICE}"
        self.abandoned, self.uses = True, Uses()


def _bare(error: Exception) -> Exception:
    """Return an error of the engine without its frames.

    They stand in a cycle with memoryviews that C borrows, and Python 3.11 ends the process where it collects those.
    """
    return error.with_traceback(None)
