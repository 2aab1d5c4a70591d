"""Handling of fork(): a child has its parent's devices but not the driver threads, so any use of them would hang."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import ClassVar, Protocol
from weakref import WeakSet

from webmm.engine.adapters import loaded
from webmm.errors import NoAdapterError

ADVICE = "start processes with the spawn method: multiprocessing.get_context('spawn')"


class Opened(Protocol):
    """A device that can be notified of a fork."""

    def abandon(self) -> None:
        """Mark the device as owned by the parent, without acquiring a lock, which a parent's thread may have held."""


class _State:
    """The devices opened by this process or its parent."""

    devices: ClassVar[WeakSet[Opened]] = WeakSet()
    used = False  # whether a device was ever opened: drivers keep threads even after it is closed
    forked = False  # whether the parent had opened a device


def opened(device: Opened) -> None:
    """Register `device` for notification of a fork."""
    _State.devices.add(device)
    _State.used = True


def devices() -> tuple[Opened, ...]:
    """Return the devices that this process has opened; some may be closed or lost."""
    return tuple(_State.devices)


def check() -> None:
    """Raise NoAdapterError in a child of a process that has opened a device: opening another would hang."""
    if _State.forked:
        raise NoAdapterError(f"this process was forked from one that had opened a GPU, so it cannot use any; {ADVICE}")


def _in_child() -> None:
    if not _State.used:
        return
    _State.forked = True
    for device in tuple(_State.devices):
        device.abandon()
    # Keep the parent's GPU objects alive, so that the child's garbage collector or its exit does not destroy them.
    classes = tuple(each for engine in loaded() for each in (engine.api.GPUObjectBase, engine.api.GPUAdapter))
    kept = [x for x in gc.get_objects() if issubclass(type(x), classes)]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
