"""The cost model: the predicted time of a kernel on a GPU, from the work of its dispatches (`Kernel.traffic()`).

A multiprocessor runs several workgroups at once. Its throughput of arithmetic and of memory instructions limits all of
them, and the latency of a step from barrier to barrier limits each workgroup. The whole dispatch is also limited by
the bandwidths of memory and caches. The limits are combined by p-norms instead of maxima, since two limits of similar
size both add to the time. The remaining differences, such as how a compiler handles the tiles, are a factor whose
logarithm is linear in the ASPECTS of the case, with weights for each setting.

Coefficients and weights are fitted to measured times (`bench/fit.py`) and shipped for each engine and device;
`webmm.choose.adapted` selects them for a device and adapts them to the results of a probe and of tuning.

Speed ÷ cuBLAS's over random products (docs/results.md): 0.53 by the nearest record; 0.92 with tiles ranked by an
unfitted model, loads without conditions, and scalars read by neighbouring lanes; 0.99 fitted; 1.01 with coalesced
stores of C where vec4 do not fit; 1.06 now. Fitted to the lanes and groups of gemv as well, best ÷ chosen over problems
held out is 0.97, a tenth below 0.91.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from webmm.engine.device import Device
from webmm.engine.rates import Rates
from webmm.kernels.base import Kernel
from webmm.kernels.product import ProductKernel
from webmm.kernels.traffic import Traffic
from webmm.problems.base import Problem

SHIPPED = Path(__file__).parents[1] / "tuned" / "models"
SCHEMA = "webmm.model/1"
Numbers = NDArray[np.float64]
K = TypeVar("K", bound=Kernel[Any])

# The initial values of a fit, in µs and bytes/µs for whole dispatches, and in cycles of a multiprocessor within them.
START: dict[str, float] = {
    "launch": 2.0,  # µs of an empty dispatch
    "wave": 0.8,  # µs to start workgroups, and to finish the last stores
    "bandwidth": 4.0e6,  # bytes/µs from memory
    "cache": 8.0e6,  # bytes/µs from the cache that all multiprocessors share
    "fma": 1.05,  # cycles of one FMA on all lanes
    "workgroup_load": 2.0,  # cycles per subgroup and memory instruction of a multiprocessor
    "workgroup_store": 0.7,
    "vector_load": 4.0,
    "scalar_load": 2.0,
    "vector_store": 8.0,
    "scalar_store": 4.0,
    "meeting": 8.0,  # a vec4 of partial sums that passes through workgroup memory at the end
    "step": 30.0,  # additional cycles per workgroup and step
    "latency": 500.0,  # minimum cycles of a step
    "issue": 1.3,  # cycles per instruction of a subgroup that does not share its scheduler
    "sharp_step": 4.0,  # exponents of the p-norms
    "sharp_loop": 3.0,
    "sharp_whole": 3.0,
}
NAMES = tuple(START)
LIMITS = ("launching", "memory", "cache", "arithmetic", "loads", "latency")  # the possible main parts of a time
ASPECTS = (
    *(f"share of {limit}" for limit in LIMITS),
    *("k divided", "idle in the last wave", "scalars", "steps", "queue", "waste", "stores per load", "loads per FMA"),
    "scalar stores",
)
FAR, MOST = 3.0, 0.7  # ASPECTS are clipped to this many spreads from the mean, the logarithm of a factor to ±MOST
COLUMNS = Traffic._fields


@dataclass(frozen=True)
class Machine:
    """The hardware of a GPU: the number of multiprocessors, and the resources of each."""

    multiprocessors: int = 132
    lanes: int = 128  # FMAs per cycle
    subgroup: int = 32
    clock: float = 1980.0  # cycles per µs
    registers: int = 65_536
    invocations: int = 2048
    workgroup_bytes: int = 228 * 1024
    workgroups: int = 32
    cache: float = 40e6  # bytes that the shared cache keeps from one product to the next


@dataclass(frozen=True)
class Model:
    """The coefficients for each kind of dispatch, and the factors of kernels, for one machine."""

    machine: Machine
    coefficients: Mapping[str, Mapping[str, float]]
    means: tuple[float, ...] = ()  # means and standard deviations of the ASPECTS over the measured times
    spreads: tuple[float, ...] = ()
    weights: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)  # by `shape()`, "" for others
    rates: Rates | None = None  # the rates of the fitted device, as measured by a probe
    corrections: Mapping[str, float] = dataclasses.field(default_factory=dict)  # logarithms of factors, by `shape()`

    def knows(self, kernel: Kernel[Any]) -> bool:
        """Return whether the model was fitted to the kernel's settings; True for all kernels if it has no weights."""
        return not self.weights or shape(kernel) in self.weights

    def times(self, kernels: Sequence[Kernel[Any]], problem: Problem) -> list[float]:
        """Return the predicted µs of each kernel; raises KeyError for a kernel that the model does not cover."""
        total, aspects, _ = self.judge(kernels, problem)
        return self._corrected(total, aspects, kernels)

    def best(self, kernels: Sequence[K], problem: Problem, count: int) -> list[tuple[K, float, str]]:
        """Return the `count` kernels with the shortest predicted times, their µs, and the main limit of each."""
        total, aspects, limits = self.judge(kernels, problem)
        times = self._corrected(total, aspects, kernels)
        nearest = np.argmax(limits, axis=1)
        ranked = sorted(range(len(kernels)), key=lambda i: times[i])[:count]
        return [(kernels[i], times[i], LIMITS[nearest[i]]) for i in ranked]

    def _corrected(self, total: Numbers, aspects: Numbers, kernels: Sequence[Kernel[Any]]) -> list[float]:
        """Return the times multiplied by their factors and corrections."""
        if self.weights:
            other = self.weights[""]
            weights = np.array([self.weights.get(shape(kernel), other) for kernel in kernels])
            near = np.clip((aspects - np.array(self.means)) / np.array(self.spreads), -FAR, FAR)
            logarithm = weights[:, 0] + (weights[:, 1:] * near).sum(axis=1)
            total = total * np.exp(np.clip(logarithm, -MOST, MOST))
        if self.corrections:
            rest = self.corrections[""]
            total = total * np.exp(np.array([self.corrections.get(shape(kernel), rest) for kernel in kernels]))
        times: list[float] = total.tolist()
        return times

    def judge(self, kernels: Sequence[Kernel[Any]], problem: Problem) -> tuple[Numbers, Numbers, Numbers]:
        """Return the µs of each kernel before its factor, its ASPECTS, and the µs for each of LIMITS by itself.

        The ASPECTS and limits are those of the main dispatch of a kernel, without the dispatches before and after it.
        """
        total, divided = np.zeros(len(kernels)), np.array([bool(kernel.after) for kernel in kernels], float)
        limits, traffic = np.zeros((len(kernels), len(LIMITS))), np.zeros((len(kernels), len(COLUMNS)))
        main = np.zeros(len(kernels))  # µs of the main dispatch
        for kind, (owners, rows) in dispatches_by_kind(kernels, problem).items():
            times, each = parts_of_time(rows, self.coefficients[kind], self.machine)
            np.add.at(total, owners, times)
            if any(kind_of_dispatch(kernels[i]) == kind for i in owners):
                limits[owners] = np.stack(each, axis=1)
                traffic[owners] = rows
                main[owners] = times
        t = dict(zip(COLUMNS, traffic.T, strict=True))
        queue = np.ceil(t["workgroups"] / self.machine.multiprocessors)
        loads = t["vector_loads"] + t["scalar_loads"]
        aspects = [
            limits / main[:, None],
            divided,
            np.minimum(np.log(queue * self.machine.multiprocessors / t["workgroups"]), 3),
            t["scalar_loads"] / (t["scalar_loads"] + 4 * t["vector_loads"]),
            np.log(t["steps"]),
            np.log(queue),
            np.log(t["waste"]),
            t["workgroup_stores"] / loads,
            np.log(loads / t["fmas"]),
            np.minimum(t["scalar_stores"], 1),
        ]
        return total, np.column_stack(aspects), limits


def kind_of_dispatch(kernel: Kernel[Any]) -> str:
    """Return the kind of a dispatch, which selects its coefficients; all kernels with workgroup tiles share one."""
    return "tiles" if hasattr(kernel, "bm") else kernel.name


@functools.cache
def shape(kernel: Kernel[Any]) -> str:
    """Return the key of a kernel's weights: its name and settings, without `splits`, `group` and `prefetch`."""
    config = {name: value for name, value in kernel.config.items() if name not in ("splits", "group", "prefetch")}
    return f"{kernel.name}({','.join(f'{name}={value}' for name, value in config.items())})"


def dispatches_by_kind(kernels: Sequence[Kernel[Any]], problem: Problem) -> dict[str, tuple[list[int], Numbers]]:
    """Return the dispatches of all `kernels` by kind: the indices of their kernels, and their traffic, a row each."""
    found: dict[str, tuple[list[int], list[tuple[float, ...]]]] = {}
    for i, kernel in enumerate(kernels):
        for step in kernel.dispatches:
            traffic = step.traffic(problem) if isinstance(step, ProductKernel) else None
            if traffic is None:
                raise KeyError(step.name)
            owners, rows = found.setdefault(kind_of_dispatch(step), ([], []))
            owners.append(i)
            rows.append(traffic)
    return {kind: (owners, np.array(rows, float)) for kind, (owners, rows) in found.items()}


def parts_of_time(rows: Numbers, c: Mapping[str, Any], machine: Machine) -> tuple[Numbers, list[Numbers]]:
    """Return the time of each row in µs, and the times that each of LIMITS would give by itself."""
    t = dict(zip(COLUMNS, rows.T, strict=True))
    subgroups = np.ceil(t["invocations"] / machine.subgroup)
    queue = np.ceil(t["workgroups"] / machine.multiprocessors)  # on the busiest multiprocessor
    held = np.minimum(machine.registers // ((t["registers"] + 24) * subgroups * machine.subgroup), machine.workgroups)
    held = np.minimum(held, machine.workgroup_bytes // (t["workgroup_bytes"] + 1024))
    held = np.maximum(1, np.minimum(held, machine.invocations // t["invocations"]))
    waves = np.ceil(queue / held)

    arithmetic = c["fma"] * subgroups * machine.subgroup * t["fmas"] / machine.lanes
    names = ("workgroup_load", "workgroup_store", "vector_load", "scalar_load")
    loads = subgroups * sum(c[name] * t[name + "s"] for name in names)
    throughput = queue * t["steps"] * (_norm(c["sharp_step"], arithmetic, loads) + c["step"] * (1 + t["barriers"]))
    instructions = t["fmas"] + sum(t[name + "s"] for name in names)
    latency = waves * t["steps"] * (c["latency"] + c["issue"] * np.ceil(subgroups / 4) * instructions)
    stores = sum(c[name] * t[name + "s"] for name in ("vector_store", "scalar_store"))
    end = queue * subgroups * (stores + c["meeting"] * t["exchanged"])
    loop = (_norm(c["sharp_loop"], throughput, latency) + end) / machine.clock

    moved = t["read"] + t["written"]
    memory = np.maximum(moved - machine.cache, 0) / c["bandwidth"]
    cache = (t["loaded"] * t["steps"] * t["workgroups"] + t["written"]) / c["cache"]
    start = c["launch"] + c["wave"] * waves
    total = start + _norm(c["sharp_whole"], loop, memory, cache)
    each = queue * t["steps"] / machine.clock
    return total, [start, memory, cache, each * arithmetic, each * loads, latency / machine.clock]


def _norm(p: Any, *terms: Numbers) -> Numbers:
    """Return the p-norm of positive numbers."""
    most = np.maximum(functools.reduce(np.maximum, terms), 1e-9)
    result: Numbers = most * sum((term / most) ** p for term in terms) ** (1 / p)
    return result


@functools.cache
def shipped() -> dict[str, Model]:
    """Return the shipped models by the names of their files: the adapter's name, and the engine's if it is not wgpu."""
    return {file.stem: from_json(file.read_text()) for file in sorted(SHIPPED.glob("*.json"))}


def shipped_for(device: Device) -> tuple[Model | None, str]:
    """Return the shipped model nearest to the device, and whether it is for its "adapter", its "vendor", or an "other".

    Models for the device's engine come first.
    """
    words = device.info.name.lower().replace("-", " ").split()
    engine = device.engine.name
    models = shipped()
    names = sorted(models, key=lambda name: engine_of_model(name) != engine)
    for near, length in (("adapter", len(words)), ("vendor", 1), ("other", 0)):
        for name in names:
            adapter = name.split("-")[:-1] if engine_of_model(name) != "wgpu" else name.split("-")
            if adapter[:length] == words[:length] and (near != "adapter" or len(adapter) == length):
                return models[name], near
    return None, "other"


def engine_of_model(name: str) -> str:
    """Return the engine of the shipped model called `name`."""
    return "dawn" if name.split("-")[-1] == "dawn" else "wgpu"


def from_json(text: str) -> Model:
    """Return the model in a document of SCHEMA; raises ValueError or KeyError if the document is invalid."""
    document = json.loads(text)
    if document["schema"] != SCHEMA:
        raise ValueError(f"this is not a {SCHEMA} document")
    plain = {name: document[name] for name in ("coefficients", "means", "spreads", "weights")}
    return Model(Machine(**document["machine"]), **plain, rates=Rates.of(document.get("rates")))


def to_json(model: Model, **about: Any) -> str:
    """Return the model as a document of SCHEMA, with the additional entries `about`."""
    plain = {name: value for name, value in dataclasses.asdict(model).items() if name != "corrections"}
    weights = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in plain.pop("weights").items())
    rest = json.dumps({"schema": SCHEMA, **about, **plain})[:-1]
    return f'{rest},\n "weights": {{\n  {weights}\n }}}}\n'
