"""After fork(): the child has its parent's devices without the threads that serve them, and would wait for ever."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import ClassVar, Protocol
from weakref import WeakSet

from webmm.engine.adapters import loaded
from webmm.errors import NoAdapterError

ADVICE = "start processes by the spawn method: multiprocessing.get_context('spawn')"


class Opened(Protocol):
    """What is told in the child that it belongs to the parent."""

    def abandon(self) -> None:
        """Take note of it, without waiting for a lock: another thread of the parent may have held it."""


class _State:
    """What this process and the one that it was forked from have opened."""

    devices: ClassVar[WeakSet[Opened]] = WeakSet()
    used = False  # whether there ever was a device, if only one that is closed: drivers keep threads of their own
    forked = False  # whether that was in the parent


def opened(device: Opened) -> None:
    """Remember `device`, to tell it of a fork."""
    _State.devices.add(device)
    _State.used = True


def check() -> None:
    """Raise NoAdapterError in a child of a process that has opened a device: another one would hang here."""
    if _State.forked:
        raise NoAdapterError(f"this process was forked from one that had opened a GPU, and can use none; {ADVICE}")


def _in_child() -> None:
    if not _State.used:
        return
    _State.forked = True
    for device in tuple(_State.devices):
        device.abandon()
    # What the parent has on the GPU must not go when the child's garbage is collected, or the child ends.
    engines = loaded()
    kept = [x for x in gc.get_objects() if any(engine.is_object(x) for engine in engines)]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
