"""A device of a browser: its adapter, what the choice of kernels reads of it, and which kernels it can run.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from webmm.choose import candidates, nothing_for
from webmm.choose.gemm import attainable
from webmm.choose.model import Model
from webmm.choose.tuned import engine_of_record, refusal
from webmm.dtypes import FLOATS, dtype_of
from webmm.errors import ProblemError, UnsupportedError
from webmm.kernels import kernel_class
from webmm.kernels.base import Capabilities, Kernel, MatrixShape
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.subgroups import SIZES, assured
from webmm.measure.records import Record
from webmm.page.stages import light
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm
from webmm.text import nbytes
from webmm.wgsl.render import MATRIX_UNITS

LARGEST = 2**31 - 4096  # bytes of an array in browsers
UNITS = MATRIX_UNITS["tint"]
SWITCH = "Chromium offers it with --enable-unsafe-webgpu, on GPUs with matrix units"
PACKED_DOT = "packed_4x8_integer_dot_product"  # the WGSL feature with dot4U8Packed and dot4I8Packed
SOFTWARE = ("swiftshader", "llvmpipe", "lavapipe", "basic render", "software")  # in the names of CPUs' adapters
# The words before the versions of browsers in their user agents; most have those of others, too, which come later.
BROWSERS = {"Edg": "Edge", "OPR": "Opera", "Firefox": "Firefox", "Chrome": "Chrome", "Version": "Safari"}
SHOWN_FEATURES = {"shader-f16": "float16", "timestamp-query": "GPU timestamps", "subgroups": "subgroups"}
OPERANDS = {"f32": 4, "f16": 2, "i8": 1, "u8": 1}  # of fragments that stages use, with the bytes of an element
TICKS = (1e-4, 2**16 * 1e-9)  # seconds: Chromium rounds timestamps to 0.1 ms, Dawn drops 16 bits of a nanosecond count


@dataclass(frozen=True)
class Adapter:
    """An adapter; `kind` is cpu or gpu, `engine` the WebGPU implementation: a browser and its version, or Dawn."""

    name: str
    kind: str
    vendor: str
    architecture: str
    backend: str
    driver: str
    engine: str


def adapter_of(said: Mapping[str, str], agent: str) -> Adapter:
    """Return an adapter by the texts of its `GPUAdapterInfo`, "" for missing ones, and the user agent.

    In Dawn, `device` is a name, and `description` names the driver.
    """
    vendor, architecture, device, description = (said[x] for x in ("vendor", "architecture", "device", "description"))
    parts = " ".join(text for text in (vendor, architecture) if text)
    named = device and not device.lower().startswith("0x")
    software = any(word in f"{parts} {description}".lower() for word in SOFTWARE)
    return Adapter(
        (device if named else description or device) or parts or "unnamed adapter",
        "cpu" if software or said["type"].lower() == "cpu" else "gpu",
        vendor,
        architecture,
        said["backend"],
        said["driver"] or (description if named else ""),
        _engine(agent),
    )


def _engine(agent: str) -> str:
    versions = [word.split("/") for word in agent.split()]
    for name, browser in BROWSERS.items():
        found = next((version for version in versions if version[0].endswith(name) and len(version) > 1), None)
        if found and (browser != "Safari" or browser in agent):
            return f"{browser} {found[1].split('.')[0]}"
    return f"{agent.split('/')[0] or 'WebGPU'} with Dawn"


def introduced(adapter: Adapter, device: Capabilities, system: str) -> tuple[str, str, list[str]]:
    """Return what the page says of a device: its kind, its name, and what it offers on an operating system."""
    family = f"{adapter.vendor} {adapter.architecture}"
    told = adapter.name == family or not adapter.vendor
    limits = device.limits
    return (
        "Software adapter: your CPU emulates a GPU, slowly" if adapter.kind == "cpu" else "Your GPU",
        adapter.name if told else f"{adapter.name} ({family})",
        [
            f"{adapter.engine} on {system}",
            *(words for feature, words in SHOWN_FEATURES.items() if feature in device.features),
            *(["matrix units"] if device.matrix_shapes else []),
            f"{limits['max-compute-invocations-per-workgroup']} invocations per workgroup",
            f"{nbytes(limits['max-compute-workgroup-storage-size'])} workgroup memory",
            f"up to {nbytes(limits['max-storage-buffer-binding-size'])} per matrix",
        ],
    )


def is_coarse(samples: Sequence[float]) -> bool:
    """Return whether the clock of timestamps is too coarse for samples of this length, in seconds."""
    rounded = any(
        min(samples) < 50 * tick and all(abs(s / tick - round(s / tick)) < 1e-6 for s in samples) for tick in TICKS
    )
    return rounded or any(s <= 0 for s in samples)


class Info(NamedTuple):
    """An adapter, as `AdapterInfo` has it."""

    name: str
    driver: str
    kind: str


class Engine(NamedTuple):
    """The WebGPU implementation: dawn or wgpu."""

    name: str


@dataclass
class Browser:
    """The attributes of a `Device` that the choice reads, what only browsers say, and what Python keeps in files.

    `reported` are the least and the most lanes of the adapter's subgroups; `spelling` is that of the fragment loads and
    stores that the engine compiles, "" for none. `records` are the user's tuned ones, `models` those of cost for such
    adapters.
    """

    info: Info
    engine: Engine
    capabilities: Capabilities
    reported: tuple[int, int]
    spelling: str = ""
    rates: dict[tuple[int, str], float] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    models: dict[str, Model] = field(default_factory=dict)


def browser_of(
    adapter: Adapter,
    reported: tuple[int, int],
    limits: Mapping[str, int],
    features: frozenset[str],
    shapes: Sequence[MatrixShape],
) -> Browser:
    """Return the device of an adapter, with the least and the most lanes of its subgroups.

    Its name begins with its vendor, so that records and models of the same vendor are found. The rates of an unknown
    GPU are assumed by its kind, which browsers do not say; but NVIDIA's are cards. On a CPU, sizes are constant.
    """
    name, vendor, kind = adapter.name, adapter.vendor, adapter.kind
    least, most = reported if "subgroups" in features else (0, 0)
    others = tuple(lanes for lanes in SIZES if kind != "cpu" and least < lanes <= most)
    able = Capabilities(name, limits, features, 0, least, frozenset(shapes), other_sizes=others)
    vendored = name if name.lower().startswith(vendor.lower()) else f"{vendor} {name}"
    assumed = "discrete" if vendor.lower() == "nvidia" else "other"
    info = Info(vendored, adapter.driver, kind if kind == "cpu" else assumed)
    return Browser(info, Engine(engine_of_record(adapter.engine)), able, reported)


def finished(
    problem: Gemm, out_dtype: str, precision: str, alpha: float, bias: str, activation: str, browser: Any
) -> Gemm:
    """Return the problem of a product with this type of result, precision and epilogue, for the choice of a kernel."""
    more = {"precision": precision, "alpha": alpha, "bias": bias, "activation": activation}
    return attainable(replace(problem, out_dtype=dtype_of(out_dtype), **more), browser)  # type: ignore[arg-type]


def floats_of(browser: Browser) -> list[str]:
    """Return the element types of floats that a device supports."""
    return [dtype.name for dtype in FLOATS if dtype.features <= browser.capabilities.features]


def asking(device: Capabilities, able: Sequence[int]) -> Capabilities:
    """Return the capabilities of a device whose shaders can ask for the sizes of subgroups `able`, if there are any.

    The driver may still choose the others for shaders that do not ask.
    """
    unasked = [lanes for lanes in device.subgroup_sizes if lanes not in able]
    return replace(device, subgroup_size=able[0], other_sizes=(*able[1:], *unasked)) if able else device


def spellings(device: Capabilities) -> list[dict[str, Any]]:
    """Return the settings of the probe of each spelling of fragment loads and stores; [] without fragments for it.

    It needs one that stages use: the largest.
    """
    known = [shape for shape in device.matrix_shapes if shape.operands in OPERANDS]
    usable = [shape for shape in known if shape.operands != "f16" or "shader-f16" in device.features]
    if not usable:
        return []
    shape = max(usable, key=lambda each: (each.m * each.n * each.k, each))
    names = next(field.metadata["candidates"] for field in fields(MatrixUnit) if field.name == "spelling")
    given = {"shape": shape, "size": OPERANDS[shape.operands], "lanes": device.subgroup_size}
    return [{**given, "spelling": name} for name in names]


def refused(kernel: Kernel[Any], problem: Problem, browser: Browser) -> str | None:
    """Return why a browser cannot compute `problem` with a kernel, or None; some reasons do not exist in Python."""
    device, spelling = browser.capabilities, browser.spelling
    if kernel.matrix_shape and UNITS not in device.features:
        return f"needs the feature {UNITS}: {SWITCH}"
    if reason := kernel.check(problem, device):
        return reason
    if getattr(kernel, "dot", "") == "builtin" and PACKED_DOT not in device.features:
        return f"needs the feature {PACKED_DOT}, which {device.name} does not have"
    if not assured(kernel, device):
        needs = f"needs subgroups of {'exactly' if kernel.exact else 'at least'} {kernel.subgroup} lanes"
        least, most = browser.reported
        return f"{needs}; {device.name} has {least} to {most}, and cannot be asked for a size"
    spelled = kernel.config.get("spelling", "current")
    if not kernel.matrix_shape or spelled == spelling:
        return None
    compiled = f"the {spelling} one" if spelling else "none"
    return f"uses the {spelled} spelling of fragment loads and stores; this engine compiles {compiled}"


def spelled(kernel: Kernel[Any], browser: Browser) -> Kernel[Any]:
    """Return a kernel in the spelling that the engine compiles, if it has a choice of spellings."""
    has = browser.spelling and "spelling" in kernel.config
    return replace(kernel, spelling=browser.spelling) if has else kernel  # type: ignore[call-arg]


def first_able(problem: Problem, browser: Any) -> Kernel[Any]:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can."""
    reasons: dict[str, None] = {}
    for candidate in candidates(problem, browser):
        kernel = spelled(candidate, browser)
        reason = refused(kernel, problem, browser)
        if reason is None:
            return kernel
        reasons[f"{kernel.name} {reason}"] = None
    raise nothing_for(problem, browser, reasons)


def own_records(browser: Browser, adapter: Adapter, records: Sequence[Record]) -> list[Record]:
    """Return the measurements of a browser's adapter and engine, under the name that the choice has of it.

    Raises ProblemError if one has a tunable with a value that is never tried.
    """
    here = adapter.name, adapter.engine, "ok"
    ours = [record for record in records if (record.adapter, record.engine, record.status) == here]
    own = [replace(record, adapter=browser.info.name) for record in ours]
    for record in own:
        if reason := refusal(record):
            raise ProblemError(f"a record {reason}")
    return own


def stage_for(name: str, problem: Problem | None, browser: Browser) -> Kernel[Any]:
    """Return a stage of float products as the page shows it: on GPUs as the choice makes it for `problem`, if given."""
    cls = kernel_class(name, "gemm")
    return light(cls) if browser.info.kind == "cpu" else _made(cls, problem, browser)


def check_random(rows: int, columns: int, device: Capabilities) -> None:
    """Raise UnsupportedError if a float32 matrix of random numbers is too large for a device, or for an array."""
    limits = device.limits
    most = min(limits["max-storage-buffer-binding-size"], limits["max-buffer-size"], LARGEST)
    if (size := 4 * rows * columns) > most:
        raise UnsupportedError(f"{rows}×{columns} needs {size:,} bytes; {device.name} allows {most:,} per matrix")


def fitted(kernel: Kernel[Any], problem: Problem, browser: Browser) -> Kernel[Any]:
    """Return a kernel; if it is for matrix units, and the device has any, the one that the choice makes for these."""
    units = kernel.matrix_shape and browser.capabilities.matrix_shapes
    return _made(type(kernel), problem, browser) if units else kernel


def _made(cls: type[Kernel[Any]], problem: Problem | None, browser: Any) -> Kernel[Any]:
    """Return a stage with the settings that the choice takes for `problem`, or else for the device."""
    every = candidates(problem, browser) if problem else {}
    fitting = next((kernel for kernel in every if type(kernel) is cls), None)
    return spelled(fitting or cls.on(browser.capabilities), browser)
