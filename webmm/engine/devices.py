"""All devices of this machine, each opened once per process."""

from __future__ import annotations

import threading

from webmm.config import settings
from webmm.engine.adapters import AUTO, AdapterInfo, adapters, choose_adapter, engine_of
from webmm.engine.device import Device, default_device
from webmm.engine.wgpu import WGPU

_opened: dict[AdapterInfo, Device] = {}
_opening = threading.Lock()


def chosen_adapters() -> list[AdapterInfo]:
    """Return the adapters of all GPUs, in the driver's order, or the CPU adapters if there is no GPU; opens none.

    The settings `engine` and `adapter` (`WEBMM_ENGINE`, `WEBMM_ADAPTER`) restrict them. Raises as `Device()` does.
    """
    current = settings()
    engine = WGPU if current.engine == AUTO else engine_of(current.engine)
    best, _ = choose_adapter(engine=engine)
    return [
        info
        for info, _ in adapters(engine)
        if (not current.adapter or info.matches(current.adapter))
        and (info.kind == "cpu") == (best.kind == "cpu")
        and info.backend == best.backend  # Windows lists a GPU once for each backend
    ]


def devices() -> list[Device]:
    """Return a device for each of `chosen_adapters()`: opened once, and again if it was lost or closed.

    The default device is one of them. Raises as `Device()` does.
    """
    with _opening:
        default = default_device()
        for info in (found := chosen_adapters()):
            if info not in _opened or _opened[info].lost:
                _opened[info] = default if info == default.info else Device(info.index)
        return [_opened[info] for info in found]
