"""Adapters and engines: list them and choose one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import Any

from webmm.config import settings
from webmm.engine.engine import Engine
from webmm.engine.wgpu import WGPU
from webmm.errors import ConfigError, NoAdapterError, UnsupportedError
from webmm.kernels.base import LOOP_LIMIT, Capabilities
from webmm.text import whole

_KINDS = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "cpu"}
_PREFERENCE = ("discrete", "integrated", "other", "cpu")

DISPLAY = "WAYLAND_DISPLAY"
ENGINES = ("wgpu", "dawn")
AUTO = "auto"

NO_ADAPTER = (
    "no GPU adapter found. Linux: install the GPU's Vulkan driver, or 'apt-get install mesa-vulkan-drivers' for a "
    "software one; Windows: update the graphics driver (DX12); macOS 10.15+: Metal is built in"
)


@dataclass(frozen=True)
class AdapterInfo:
    """Description of an adapter; `kind` is discrete, integrated, cpu or other."""

    index: int
    name: str
    vendor: str
    kind: str
    backend: str
    driver: str
    twin: int = 0  # number from 1 on among adapters of the same name and backend; 0 if there is only one

    def matches(self, wanted: str) -> bool:
        """Tell whether `wanted` is this adapter's index or kind, "gpu" for any hardware GPU, or part of its names.

        "h100 #2" is the second of several H100s, "#2" the second of any adapters with equal names.
        """
        if wanted.isdecimal():
            return whole(wanted) == self.index
        name, mark, number = wanted.rpartition("#")
        if mark and number.isdecimal():
            return whole(number) == self.twin > 0 and self.matches(name.strip())
        wanted = wanted.lower()
        if wanted == "gpu":
            return self.kind != "cpu"
        return wanted == self.kind or any(
            wanted in text.lower() for text in (self.name, self.vendor, self.backend, self.driver)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return asdict(self)

    def __str__(self) -> str:
        name = f"{self.name} #{self.twin}" if self.twin else self.name
        return f"{name} ({self.kind}, {self.backend}, {self.driver or 'driver unknown'})"


@contextlib.contextmanager
def _without_wayland() -> Iterator[None]:
    """Keep Mesa from printing to stderr that XDG_RUNTIME_DIR is not set when it looks for a Wayland display.

    libwayland resolves a relative display name in that folder. If neither variable is set there is no display, so
    WAYLAND_DISPLAY points to an absolute path that is not a display while Mesa looks.
    """
    unset = sys.platform == "linux" and not {"XDG_RUNTIME_DIR", DISPLAY} & os.environ.keys()
    if unset:
        os.environ[DISPLAY] = "/"
    try:
        yield
    finally:
        if unset:
            os.environ.pop(DISPLAY, None)


def adapters(engine: Engine = WGPU) -> list[tuple[AdapterInfo, Any]]:
    """Return all adapters as (info, the engine's adapter), in the driver's order."""
    with _without_wayland():
        found = engine.adapters()
    infos = [describe(index, adapter) for index, adapter in enumerate(found)]
    return list(zip(_numbered(infos), found, strict=True))


def _numbered(infos: list[AdapterInfo]) -> list[AdapterInfo]:
    """Number adapters of the same name and backend, which only the driver's order distinguishes."""
    names = [(info.name, info.backend) for info in infos]
    return [
        replace(info, twin=names[:i].count(name) + 1) if names.count(name) > 1 else info
        for i, (info, name) in enumerate(zip(infos, names, strict=True))
    ]


def describe(index: int, adapter: Any) -> AdapterInfo:
    """Return the description of an adapter."""
    info = adapter.info
    kind = _KINDS.get(info["adapter_type"], "other")
    return AdapterInfo(index, info["device"], info["vendor"], kind, info["backend_type"], info["description"])


def engine_of(name: str) -> Engine:
    """Return the engine `name`, wgpu or dawn; raises ConfigError for other names and if it is not installed."""
    if name not in ENGINES:
        raise ConfigError(f"unknown engine {name!r}; choose from {', '.join((*ENGINES, AUTO))}")
    if name == WGPU.name:
        return WGPU
    try:
        engine: Engine = import_module("webmm.engine.dawn").DAWN
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Dawn comes with wgpudawn, which is not installed: pip install 'webmm[dawn]' (Python 3.11 or newer)"
        ) from error
    return engine


def installed() -> list[Engine]:
    """Return the installed engines; imports them."""
    found = [WGPU]
    with contextlib.suppress(ConfigError):
        found.append(engine_of("dawn"))
    return found


def loaded() -> list[Engine]:
    """Return the engines that this process has imported: an object cannot belong to any other."""
    return [WGPU, *([engine_of("dawn")] if "wgpudawn" in sys.modules else [])]


def choose_adapter(wanted: str | int | None = None, engine: Engine = WGPU) -> tuple[AdapterInfo, Any]:
    """Return the adapter that `wanted` (or the setting `adapter`) names; by default one of the most capable kind.

    `wanted` is an index, a kind (discrete, integrated, cpu), "gpu", or part of a name, vendor, backend or driver.
    Raises NoAdapterError if there is no adapter, ConfigError if none matches or the engine rejects all.
    """
    found = adapters(engine)
    if not found:
        rejected = "; ".join(str(info) for info, _ in adapters()) if engine is not WGPU else ""
        if rejected:
            raise ConfigError(f"{engine.name} rejects every adapter here ({rejected}): {engine.rejects}; or use wgpu")
        raise NoAdapterError(NO_ADAPTER)
    wanted = str(wanted) if wanted is not None else settings().adapter
    matching = [pair for pair in found if not wanted or pair[0].matches(wanted)]
    if not matching:
        names = "; ".join(f"{info.index}: {info}" for info, _ in found)
        rejects = f"; {engine.name} lists only adapters that it accepts: {engine.rejects}" if engine.rejects else ""
        raise ConfigError(f"no adapter matches {wanted!r}; the adapters are {names}{rejects}")
    return min(matching, key=lambda pair: _PREFERENCE.index(pair[0].kind))


def choose_engine(name: str, wanted: str | int | None = None) -> tuple[Engine, AdapterInfo, Any]:
    """Return the engine `name` and its adapter that `wanted` names; see `engine_of()` and `choose_adapter()`.

    `auto` chooses an adapter from wgpu's list, and opens it with Dawn if it has matrix units that Dawn can use.
    """
    if name != AUTO:
        engine = engine_of(name)
        return engine, *choose_adapter(wanted, engine)
    info, found = choose_adapter(wanted)
    return reaches_more(info, found) or (WGPU, info, found)


def reaches_more(info: AdapterInfo, found: Any) -> tuple[Engine, AdapterInfo, Any] | None:
    """Return Dawn and its adapter for the GPU of wgpu's adapter `found`, or None unless both offer matrix units.

    GPUs of the same name are matched by their order. Dawn is not loaded if wgpu's adapter has no matrix units.
    """
    if WGPU.matrix_units not in found.features or len(installed()) == 1:
        return None
    dawn = engine_of("dawn")
    place = sum(other.name == info.name for other, _ in adapters()[: info.index])
    twins = [(dawn, other, adapter) for other, adapter in adapters(dawn) if other.name == info.name]
    return next((twin for twin in twins[place:] if dawn.matrix_units in twin[2].features), None)


def capabilities(
    info: AdapterInfo, source: Any, lower: Mapping[str, int] | None = None, engine: Engine = WGPU
) -> Capabilities:
    """Return the capabilities of an adapter or an open device, with some limits replaced by `lower` ones.

    Raises ConfigError for an unknown limit, UnsupportedError for one that is higher than that of `source`.
    """
    lavapipe, limits = "llvmpipe" in info.name, dict(source.limits)
    for name, value in (lower or {}).items():
        if name not in limits:
            raise ConfigError(f"there is no limit {name!r}; the limits are {', '.join(limits)}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"the limit {name} must be a whole number from 1 on, not {value!r}")
        if value > limits[name]:
            raise UnsupportedError(f"{info.name} has {name} = {limits[name]:,}, less than {value:,}")
    return Capabilities(
        "lavapipe" if lavapipe else info.name,
        limits | dict(lower or {}),
        frozenset(source.features) & frozenset(engine.wanted),
        loop_limit=LOOP_LIMIT if lavapipe else 0,
    )
