"""All devices of this machine: each opened once in a process."""

from __future__ import annotations

import threading

from webmm.config import settings
from webmm.engine.adapters import AUTO, AdapterInfo, adapters, choose_adapter, engine_of
from webmm.engine.device import Device, default_device
from webmm.engine.wgpu import WGPU

_opened: dict[AdapterInfo, Device] = {}
_opening = threading.Lock()


def devices() -> list[Device]:
    """Return a device for each GPU, in the driver's order, or for the CPU's adapters where there is no GPU.

    The settings `engine` and `adapter` (`WEBMM_ENGINE`, `WEBMM_ADAPTER`) choose among them, and the one that is used
    where none is named is one of them. A device that was lost or closed is replaced. Raises as `Device()` does.
    """
    current = settings()
    engine = WGPU if current.engine == AUTO else engine_of(current.engine)
    best, _ = choose_adapter(engine=engine)
    on_cpu = best.kind == "cpu"
    with _opening:
        found = []
        for info, _ in adapters(engine):
            chosen = not current.adapter or info.matches(current.adapter)
            # Windows lists a GPU once for each way to it.
            if chosen and (info.kind == "cpu") == on_cpu and info.backend == best.backend:
                if info not in _opened or _opened[info].lost:
                    _opened[info] = default_device() if info == best else Device(info.index)
                found.append(_opened[info])
        return found
