"""The probe of a GPU of unknown speed: when the process has left it idle for a while, or at exit.

A GPU is unknown if no times fitted on it are shipped and no rates are stored. It is waited for from the first choice of
a kernel on, by a thread. A product that comes during a probe ends it, after 0.4 s at the latest; `webmm probe` is more
accurate. The rates count for shapes that are chosen from then on: those that were computed before keep their kernels,
and so every bit of their results, until the program opens another device.

At exit, only a GPU that was in use for `USED` is probed, which takes a twentieth of that time at most. Devices that
were closed, lost or opened by other code, as well as CPUs, are never probed.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import MutableMapping

from webmm import log
from webmm.choose import adapted, tuned
from webmm.engine import rates
from webmm.engine.device import Device

IDLE = 2.0  # seconds without any use after which a device counts as idle
SECONDS = 1.0  # after which a probe at exit is given up; also how long the exit waits for the thread
LONGEST = 3.0  # the same for an idle device
USED = 20.0  # seconds between the first choice of a kernel and an exit with a probe, at least
ATTEMPTS = 5  # that products may interrupt, per process
TICK = 0.1  # seconds between two looks at the device, at least


class Waiting:
    """A device that waits for its probe, and the thread that watches it."""

    def __init__(self, device: Device) -> None:
        self.since, self.process = time.perf_counter(), os.getpid()
        self.stop = threading.Event()
        args = (weakref.ref(device), self.stop)
        self.thread = threading.Thread(target=_watch, args=args, daemon=True, name="webmm-probe")
        self.thread.start()


_lock = threading.Lock()
_waiting: MutableMapping[Device, Waiting | None] = weakref.WeakKeyDictionary()  # None: there is nothing to probe


def probe_when_idle(device: Device) -> None:
    """Have the device probed later, unless its speed is known; costs nothing after the first call."""
    if device in _waiting:
        return
    with _lock:
        if device not in _waiting:
            unknown = adapted.unprobed(device) and not device.submissions.shared
            _waiting[device] = Waiting(device) if unknown else None


def _watch(reference: weakref.ref[Device], stop: threading.Event) -> None:
    """Probe a device once it is idle; end when it is known, lost, closed or garbage-collected."""
    wait, attempts = IDLE, 0
    while not stop.wait(wait):
        device = reference()
        if device is None or device.lost or attempts == ATTEMPTS:
            return
        idle = _idle(device)
        wait = max(TICK, IDLE - idle)
        if idle >= IDLE:
            attempts += 1
            if _probe(device, LONGEST, stop):
                return
        del device


def _idle(device: Device) -> float:
    """Return for how many seconds the device has been idle; 0 before its first launch."""
    return device.guard.uses.idle if device.submissions.count and not device.submissions.pending else 0.0


def _probe(device: Device, seconds: float, stop: threading.Event | None = None) -> bool:
    """Probe a device that is idle; return whether to leave it at that: not if a product came meanwhile."""
    import filelock

    from webmm.measure import roofline  # neither is needed before

    started, before = time.perf_counter(), device.submissions.count

    def go_on() -> bool:
        stopped = stop is not None and stop.is_set()
        late = time.perf_counter() - started > seconds
        needed = device.submissions.count != before or device.submissions.pending or not device.guard.uses.idle
        return not (stopped or late or needed or device.lost)

    try:
        with tuned.searching(0.0):  # whose timings a probe would disturb
            if not adapted.unprobed(device):  # another process was faster
                return True
            found = roofline.probe_briefly(device, go_on)
            if kept := found is not None and go_on():
                rates.store(device, found)
                log.tuning.info("%s was probed: %s", device.info.name, found)
                device.trim()  # not if a call came meanwhile, whose buffers are in the pool
        return kept or time.perf_counter() - started > seconds
    except filelock.Timeout:
        return False
    except Exception as error:  # the device was closed, is out of memory, or the rates cannot be stored
        log.tuning.info("%s could not be probed: %s", device.info.name, error)
        return True


@atexit.register
def _finish() -> None:
    """Stop the threads, so that none is within the engine when the interpreter ends, and probe what is worth it."""
    for device, waiting in list(_waiting.items()):
        if waiting is None or waiting.process != os.getpid():  # or in a forked child, which has no threads
            continue
        waiting.stop.set()
        waiting.thread.join(LONGEST)  # it stops after the part of a probe that is under way
        worth = time.perf_counter() - waiting.since >= USED
        if worth and not waiting.thread.is_alive() and not device.lost:
            _probe(device, SECONDS)
