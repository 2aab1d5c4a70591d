"""Finding an adapter: what there is, and which one to use."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import Any

from webmm.config import settings
from webmm.engine.wgpu import WGPU, Wgpu
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
    """An adapter in words: `kind` is discrete, integrated, cpu or other."""

    index: int
    name: str
    vendor: str
    kind: str
    backend: str
    driver: str
    twin: int = 0  # which of those of its name and backend it is, from 1 on; 0 where it is the only one

    def matches(self, wanted: str) -> bool:
        """Tell whether `wanted` is this adapter's index or kind, "gpu" for any real GPU, or part of its names.

        "h100 #2" is the second of several H100s, "#2" the second of any twins.
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
    """Keep Mesa from complaining on stderr that XDG_RUNTIME_DIR is not set, where it looks for a display's GPU.

    libwayland needs that folder for displays that have no full path of their own. Where neither is set there is none
    to be found, and for as long as Mesa looks it is given a path that is no display's.
    """
    unset = sys.platform == "linux" and not {"XDG_RUNTIME_DIR", DISPLAY} & os.environ.keys()
    if unset:
        os.environ[DISPLAY] = "/"
    try:
        yield
    finally:
        if unset:
            os.environ.pop(DISPLAY, None)


def adapters(engine: Wgpu = WGPU) -> list[tuple[AdapterInfo, Any]]:
    """Return every adapter as (info, the engine's adapter), in the driver's order."""
    with _without_wayland():
        found = engine.adapters()
    infos = [describe(index, adapter) for index, adapter in enumerate(found)]
    return list(zip(_numbered(infos), found, strict=True))


def _numbered(infos: list[AdapterInfo]) -> list[AdapterInfo]:
    """Number those of one name and backend, which nothing but the driver's order tells apart."""
    names = [(info.name, info.backend) for info in infos]
    return [
        replace(info, twin=names[:i].count(name) + 1) if names.count(name) > 1 else info
        for i, (info, name) in enumerate(zip(infos, names, strict=True))
    ]


def describe(index: int, adapter: Any) -> AdapterInfo:
    """Return an adapter in words."""
    info = adapter.info
    kind = _KINDS.get(info["adapter_type"], "other")
    return AdapterInfo(index, info["device"], info["vendor"], kind, info["backend_type"], info["description"])


def engine_of(name: str) -> Wgpu:
    """Return the engine called `name`, wgpu or dawn; raises ConfigError for another, and where it is not installed."""
    if name not in ENGINES:
        raise ConfigError(f"unknown engine {name!r}; choose from {', '.join((*ENGINES, AUTO))}")
    if name == WGPU.name:
        return WGPU
    try:
        engine: Wgpu = import_module("webmm.engine.dawn").DAWN
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Dawn comes with wgpudawn, which is not installed: pip install 'webmm[dawn]' (Python 3.11 or newer)"
        ) from error
    return engine


def installed() -> list[Wgpu]:
    """Return the engines that there are here; loads them."""
    found = [WGPU]
    with contextlib.suppress(ConfigError):
        found.append(engine_of("dawn"))
    return found


def loaded() -> list[Wgpu]:
    """Return the engines that this process uses: another need not be loaded to know that nothing is of it."""
    return [WGPU, *([engine_of("dawn")] if "wgpudawn" in sys.modules else [])]


def choose_adapter(wanted: str | int | None = None, engine: Wgpu = WGPU) -> tuple[AdapterInfo, Any]:
    """Return the adapter that `wanted` (or the setting `adapter`) names, or else the most capable kind.

    `wanted` is an index, a kind (discrete, integrated, cpu), "gpu", or part of a name, vendor, backend or driver.
    Raises NoAdapterError where there is none at all, ConfigError where none matches or the engine refuses all.
    """
    found = adapters(engine)
    if not found:
        refused = "; ".join(str(info) for info, _ in adapters()) if engine is not WGPU else ""
        if refused:
            raise ConfigError(f"{engine.name} accepts no adapter here, of {refused}: {engine.refuses}; or use wgpu")
        raise NoAdapterError(NO_ADAPTER)
    wanted = str(wanted) if wanted is not None else settings().adapter
    matching = [pair for pair in found if not wanted or pair[0].matches(wanted)]
    if not matching:
        names = "; ".join(f"{info.index}: {info}" for info, _ in found)
        refuses = f"; {engine.name} lists what it accepts: {engine.refuses}" if engine.refuses else ""
        raise ConfigError(f"no adapter matches {wanted!r}; there is {names}{refuses}")
    return min(matching, key=lambda pair: _PREFERENCE.index(pair[0].kind))


def choose_engine(name: str, wanted: str | int | None = None) -> tuple[Wgpu, AdapterInfo, Any]:
    """Return the engine called `name` and the adapter of it that `wanted` names; see `engine_of`, `choose_adapter`.

    `auto` chooses the adapter among wgpu's, and takes Dawn for it where it has matrix units that Dawn can use.
    """
    if name != AUTO:
        engine = engine_of(name)
        return engine, *choose_adapter(wanted, engine)
    info, found = choose_adapter(wanted)
    return reaches_more(info, found) or (WGPU, info, found)


def reaches_more(info: AdapterInfo, found: Any) -> tuple[Wgpu, AdapterInfo, Any] | None:
    """Return Dawn and its adapter for the same GPU as wgpu's `found`, where that has matrix units and Dawn them, too.

    GPUs of one name are told apart by their order. Nothing of Dawn is loaded where the adapter has no matrix units.
    """
    if WGPU.matrix_units not in found.features or len(installed()) == 1:
        return None
    dawn = engine_of("dawn")
    place = sum(other.name == info.name for other, _ in adapters()[: info.index])
    twins = [(dawn, other, adapter) for other, adapter in adapters(dawn) if other.name == info.name]
    return next((twin for twin in twins[place:] if dawn.matrix_units in twin[2].features), None)


def capabilities(
    info: AdapterInfo, source: Any, lower: Mapping[str, int] | None = None, engine: Wgpu = WGPU
) -> Capabilities:
    """Return what an adapter offers, or an open device has, with some limits replaced by `lower` ones.

    Raises ConfigError for an unknown limit, UnsupportedError for one that is higher than what there is.
    """
    lavapipe, limits = "llvmpipe" in info.name, dict(source.limits)
    for name, value in (lower or {}).items():
        if name not in limits:
            raise ConfigError(f"there is no limit {name!r}; the limits are {', '.join(limits)}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"the limit {name} is a whole number from 1 on, not {value!r}")
        if value > limits[name]:
            raise UnsupportedError(f"{info.name} has {name} = {limits[name]:,}, less than {value:,}")
    return Capabilities(
        "lavapipe" if lavapipe else info.name,
        limits | dict(lower or {}),
        frozenset(source.features) & frozenset(engine.wanted),
        loop_limit=LOOP_LIMIT if lavapipe else 0,
    )
