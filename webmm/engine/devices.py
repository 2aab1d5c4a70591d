"""All devices of this machine, each opened once per process."""

from __future__ import annotations

import threading

from webmm.config import settings
from webmm.engine.adapters import AUTO, ENGINES, AdapterInfo, adapters, choose_adapter, choose_engine, engine_of
from webmm.engine.device import Device, _default, default_device
from webmm.engine.wgpu import WGPU
from webmm.errors import ConfigError

_opened: dict[AdapterInfo, Device] = {}
_named: list[Device] = []
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


def named(device: Device | str | int | None) -> Device | None:
    """Return the device, or the one that is named by an adapter ("cpu", "nvidia", 0), an engine, or both ("dawn:0").

    It is opened once per process, and again if it was lost or closed. Raises as `Device()` does.
    """
    if device is None or isinstance(device, Device):
        return device
    if isinstance(device, bool) or not isinstance(device, (str, int)):
        raise ConfigError(f"device must be a Device, or a name such as 'cpu' or 'dawn:0', not {device!r}")
    engine, _, adapter = str(device).partition(":")
    if engine not in (*ENGINES, AUTO):
        engine, adapter = settings().engine, str(device)
    chosen, info, _ = choose_engine(engine, adapter or None)
    with _opening:
        for one in (*_default, *_opened.values(), *_named):
            if one.engine is chosen and one.info == info and not one.lost:
                return one
        _named.append(Device(info.index, engine=chosen.name))
        return _named[-1]


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
