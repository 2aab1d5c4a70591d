"""How long a kernel is likely to take: a model of time on a GPU, from what a dispatch does (`Kernel.traffic()`).

A multiprocessor holds so many workgroups at once. Together they are limited by its arithmetic or by its paths to
memory, each alone by how long one step takes from barrier to barrier; the whole also by bytes from memory and caches.
The limits meet in p-norms rather than in maxima, since near a corner both show. What is left – how a compiler treats
just these tiles – is a factor: its logarithm is linear in the ASPECTS of the case, with weights per setting.

Coefficients and weights are fitted to measured times (`bench/fit.py`) and shipped per engine and device;
`webmm.choose.adapted` says which of them serves a device, and what a probe and tuning there change.
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

# What a fit starts from: µs and bytes/µs for whole dispatches, cycles of a multiprocessor within them.
START: dict[str, float] = {
    "launch": 2.0,  # µs of a dispatch that does nothing
    "wave": 0.8,  # µs until workgroups are under way, and until the last stores are done
    "bandwidth": 4.0e6,  # bytes/µs from memory
    "cache": 8.0e6,  # bytes/µs from the cache that all multiprocessors share
    "fma": 1.05,  # cycles for as many FMAs as there are lanes
    "workgroup_load": 2.0,  # cycles per subgroup and instruction of a multiprocessor's path to memory
    "workgroup_store": 0.7,
    "vector_load": 4.0,
    "scalar_load": 2.0,
    "vector_store": 8.0,
    "scalar_store": 4.0,
    "meeting": 8.0,
    "step": 30.0,  # cycles per workgroup and step that nothing else explains
    "latency": 500.0,  # cycles that a step takes at least
    "issue": 1.3,  # cycles per instruction of a subgroup, where it has a scheduler to itself
    "sharp_step": 4.0,  # exponents of the p-norms
    "sharp_loop": 3.0,
    "sharp_whole": 3.0,
}
NAMES = tuple(START)
LIMITS = ("launching", "memory", "cache", "arithmetic", "loads", "latency")  # what a time is mostly made of
ASPECTS = (
    *(f"share of {limit}" for limit in LIMITS),
    *("k divided", "idle in the last wave", "scalars", "steps", "queue", "waste", "stores per load", "loads per FMA"),
    "scalar stores",
)
FAR, MOST = 3.0, 0.7  # spreads from the mean that count at most, and the largest logarithm of a factor
COLUMNS = Traffic._fields


@dataclass(frozen=True)
class Machine:
    """What a GPU has: multiprocessors, and what each of them holds at once."""

    multiprocessors: int = 132
    lanes: int = 128  # FMAs per cycle
    subgroup: int = 32
    clock: float = 1980.0  # cycles per µs
    registers: int = 65_536
    invocations: int = 2048
    workgroup_bytes: int = 228 * 1024
    workgroups: int = 32
    cache: float = 40e6  # bytes that stay in the shared cache from one product to the next


@dataclass(frozen=True)
class Model:
    """Coefficients by the kind of dispatch, and factors by kernel, for one machine."""

    machine: Machine
    coefficients: Mapping[str, Mapping[str, float]]
    means: tuple[float, ...] = ()  # of the ASPECTS over what was measured, and how far they lie from that
    spreads: tuple[float, ...] = ()
    weights: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)  # by `shape()`, "" for others
    rates: Rates | None = None  # of the device that it was fitted on, as a probe shows them
    corrections: Mapping[str, float] = dataclasses.field(default_factory=dict)  # likewise, logarithms added to it all

    def knows(self, kernel: Kernel[Any]) -> bool:
        """Tell whether the kernel's settings were among what the model was fitted to; without a fit, all are alike."""
        return not self.weights or shape(kernel) in self.weights

    def times(self, kernels: Sequence[Kernel[Any]], problem: Problem) -> list[float]:
        """Return the predicted µs of each kernel; raises KeyError for one of which the model knows nothing."""
        total, aspects, _ = self.judge(kernels, problem)
        return self._corrected(total, aspects, kernels)

    def best(self, kernels: Sequence[K], problem: Problem, count: int) -> list[tuple[K, float, str]]:
        """Return the `count` that are likely to be fastest, their µs, and which of LIMITS each is closest to."""
        total, aspects, limits = self.judge(kernels, problem)
        times = self._corrected(total, aspects, kernels)
        nearest = np.argmax(limits, axis=1)
        ranked = sorted(range(len(kernels)), key=lambda i: times[i])[:count]
        return [(kernels[i], times[i], LIMITS[nearest[i]]) for i in ranked]

    def _corrected(self, total: Numbers, aspects: Numbers, kernels: Sequence[Kernel[Any]]) -> list[float]:
        """Return the times with their factors."""
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
        """Return the µs of each kernel before its factor, its ASPECTS, and its µs by each of LIMITS alone."""
        total, divided = np.zeros(len(kernels)), np.array([bool(kernel.after) for kernel in kernels], float)
        limits, own = np.zeros((len(kernels), len(LIMITS))), np.zeros((len(kernels), len(COLUMNS)))
        alone = np.zeros(len(kernels))
        for kind, (owners, rows) in dispatches(kernels, problem).items():
            times, each = parts(rows, self.coefficients[kind], self.machine)
            np.add.at(total, owners, times)
            if any(kind_of(kernels[i]) == kind for i in owners):
                limits[owners] = np.stack(each, axis=1)
                own[owners] = rows
                alone[owners] = times
        t = dict(zip(COLUMNS, own.T, strict=True))
        queue = np.ceil(t["workgroups"] / self.machine.multiprocessors)
        loads = t["vector_loads"] + t["scalar_loads"]
        aspects = [
            limits / alone[:, None],
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


def kind_of(kernel: Kernel[Any]) -> str:
    """Return which coefficients serve a dispatch: all register tiles over workgroup tiles share theirs."""
    return "tiles" if hasattr(kernel, "bm") else kernel.name


@functools.cache
def shape(kernel: Kernel[Any]) -> str:
    """Return the settings that weights are kept by: all of them, but for into how many parts k is divided."""
    config = {name: value for name, value in kernel.config.items() if name not in ("splits", "group", "prefetch")}
    return f"{kernel.name}({','.join(f'{name}={value}' for name, value in config.items())})"


def dispatches(kernels: Sequence[Kernel[Any]], problem: Problem) -> dict[str, tuple[list[int], Numbers]]:
    """Return the dispatches of all `kernels` by kind: whose they are, and their traffic, a row each."""
    found: dict[str, tuple[list[int], list[tuple[float, ...]]]] = {}
    for i, kernel in enumerate(kernels):
        for step in kernel.dispatches:
            traffic = step.traffic(problem) if isinstance(step, ProductKernel) else None
            if traffic is None:
                raise KeyError(step.name)
            owners, rows = found.setdefault(kind_of(step), ([], []))
            owners.append(i)
            rows.append(traffic)
    return {kind: (owners, np.array(rows, float)) for kind, (owners, rows) in found.items()}


def parts(rows: Numbers, c: Mapping[str, Any], machine: Machine) -> tuple[Numbers, list[Numbers]]:
    """Return the time of each row in µs, and what it would be if only one of LIMITS were there."""
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
    together = queue * t["steps"] * (_norm(c["sharp_step"], arithmetic, loads) + c["step"] * (1 + t["barriers"]))
    instructions = t["fmas"] + sum(t[name + "s"] for name in names)
    alone = waves * t["steps"] * (c["latency"] + c["issue"] * np.ceil(subgroups / 4) * instructions)
    end = queue * subgroups * sum(c[name] * t[name + "s"] for name in ("vector_store", "scalar_store", "meeting"))
    loop = (_norm(c["sharp_loop"], together, alone) + end) / machine.clock

    moved = t["read"] + t["written"]
    memory = np.maximum(moved - machine.cache, 0) / c["bandwidth"]
    cache = (t["loaded"] * t["steps"] * t["workgroups"] + t["written"]) / c["cache"]
    start = c["launch"] + c["wave"] * waves
    total = start + _norm(c["sharp_whole"], loop, memory, cache)
    each = queue * t["steps"] / machine.clock
    return total, [start, memory, cache, each * arithmetic, each * loads, alone / machine.clock]


def _norm(p: Any, *terms: Numbers) -> Numbers:
    """Return the p-norm of positive numbers."""
    most = np.maximum(functools.reduce(np.maximum, terms), 1e-9)
    result: Numbers = most * sum((term / most) ** p for term in terms) ** (1 / p)
    return result


@functools.cache
def shipped() -> dict[str, Model]:
    """Return the models that come with webmm, by their files: an adapter's name, and the engine's if not wgpu."""
    return {file.stem: from_json(file.read_text()) for file in sorted(SHIPPED.glob("*.json"))}


def shipped_for(device: Device) -> tuple[Model | None, str]:
    """Return the shipped model nearest to the device, and of what: the "adapter", another of its "vendor", any "other".

    One for the device's engine goes before one for another.
    """
    words = device.info.name.lower().replace("-", " ").split()
    engine = device.engine.name
    models = shipped()
    names = sorted(models, key=lambda name: engine_of(name) != engine)
    for near, length in (("adapter", len(words)), ("vendor", 1), ("other", 0)):
        for name in names:
            adapter = name.split("-")[:-1] if engine_of(name) != "wgpu" else name.split("-")
            if adapter[:length] == words[:length] and (near != "adapter" or len(adapter) == length):
                return models[name], near
    return None, "other"


def engine_of(name: str) -> str:
    """Return of which engine the shipped model called `name` is."""
    return "dawn" if name.split("-")[-1] == "dawn" else "wgpu"


def from_json(text: str) -> Model:
    """Return the model in a document of SCHEMA; raises ValueError or KeyError where it is none."""
    document = json.loads(text)
    if document["schema"] != SCHEMA:
        raise ValueError(f"this is not a {SCHEMA} document")
    plain = {name: document[name] for name in ("coefficients", "means", "spreads", "weights")}
    return Model(Machine(**document["machine"]), **plain, rates=Rates.of(document.get("rates")))


def to_json(model: Model, **about: Any) -> str:
    """Return the model as a document of SCHEMA, with what else is to be said `about` it."""
    plain = {name: value for name, value in dataclasses.asdict(model).items() if name != "corrections"}
    weights = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in plain.pop("weights").items())
    rest = json.dumps({"schema": SCHEMA, **about, **plain})[:-1]
    return f'{rest},\n "weights": {{\n  {weights}\n }}}}\n'
