"""The model of cost: the predicted time of a kernel on a device, from the work of its dispatches (`Kernel.traffic()`).

A multiprocessor (of a CPU: a core) runs several workgroups at once. Its throughput of arithmetic and of memory
instructions limits all of them, and the latency of a step from barrier to barrier limits each workgroup. The whole
dispatch is also limited by the bandwidths of memory and caches. The limits are combined by p-norms instead of maxima,
since two limits of similar size both add to the time.

A device's table of rates has a coefficient for each of these costs: those of a kind of device in general (`START`), at
the speeds that a probe measured, or those fitted to times on this device, one set for each kind of dispatch. What
remains of fitted times, such as how a compiler handles the tiles, is a factor whose logarithm is linear in the ASPECTS
of the case, with weights for each setting; kernels that are ranked among each other, a family, share their scale.
Tables that were fitted (`bench/fit.py`) are shipped for each engine and device (`webmm.choose.tables`);
`webmm.choose.adapted` adapts one to the results of a probe and of tuning. This module is in the translated subset.

Speed ÷ cuBLAS's over random products (docs/results.md): 0.53 by the nearest record; 0.92 with tiles ranked by an
unfitted model, loads without conditions, and scalars read by neighbouring lanes; 0.99 fitted; 1.01 with coalesced
stores of C where vec4 do not fit; 1.06 now. Fitted to the lanes and groups of gemv as well, best ÷ chosen over problems
held out is 0.97, a tenth below 0.91.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from webmm.engine.rates import Rates, of_fragments
from webmm.kernels.base import Kernel
from webmm.kernels.traffic import Traffic
from webmm.problems.base import Problem

Numbers = NDArray[np.float64]  # of several rows; on the page, the number of one
Table = list[list[float]]
K = TypeVar("K", bound=Kernel[Any])

# The costs of a GPU in general, and the initial values of a fit: µs and bytes/µs for whole dispatches, and cycles of a
# multiprocessor within them.
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
    "texel": 4.0,  # a load of a vec4 from a texture
    "shuffle": 2.0,
    "meeting": 8.0,  # a vec4 of partial sums that passes through workgroup memory at the end
    "step": 30.0,  # additional cycles per workgroup and step
    "latency": 500.0,  # minimum cycles of a step
    "issue": 1.3,  # cycles per instruction of a subgroup that does not share its scheduler
    "sharp_step": 4.0,  # exponents of the p-norms
    "sharp_loop": 3.0,
    "sharp_whole": 3.0,
}
NAMES = tuple(START)
# What differs from START, for dispatches of a kind: the cycles of one multiply-add of words of four bytes.
OTHERWISE: dict[str, dict[str, float]] = {"quantized.tiles": {"fma": 1.5}}
# The costs of a CPU in general: its lanes are the elements of vector registers. Loads from buffers are a checked load
# for each lane and component, those from textures are loads of vectors; a workgroup is a task of one core.
CPU: dict[str, float] = START | {
    "launch": 60.0,
    "wave": 0.0001,
    "bandwidth": 1.0e4,
    "cache": 1.0e5,
    "fma": 1.0,
    "vector_load": 96.0,
    "scalar_load": 24.0,
    "vector_store": 96.0,
    "scalar_store": 40.0,
    "texel": 12.0,
    "shuffle": 12.0,
    "step": 10.0,
    "latency": 10.0,
    "issue": 0.1,
}
LIMITS = ("launching", "memory", "cache", "arithmetic", "loads", "latency")  # the possible main parts of a time
LOADED = ("workgroup_load", "workgroup_store", "vector_load", "scalar_load", "texel", "shuffle")
ASPECTS = (
    *(f"share of {limit}" for limit in LIMITS),
    *("k divided", "idle in the last wave", "scalars", "steps", "queue", "waste", "stores per load", "loads per FMA"),
    "scalar stores",
)
FAR, MOST = 3.0, 0.7  # ASPECTS are clipped to this many spreads from the mean, the logarithm of a factor to ±MOST
COLUMNS = Traffic._fields
WEIGHTS = ("weight", *(f"weight of {aspect}" for aspect in ASPECTS))
PARTIALS = "partials"  # what the last dispatch reads if the first one does most of the work
ALIKE = ("splits", "group", "prefetch", "operands", "sums", "spelling", "dot")  # settings that share a factor
FITTING = ("rows", "strips")  # stages whose `unroll` follows from the problem


@dataclass(frozen=True)
class Machine:
    """The hardware of a device: the number of multiprocessors, and the resources of each."""

    multiprocessors: int
    lanes: int = 128  # FMAs per cycle
    subgroup: int = 32
    clock: float = 1980.0  # cycles per µs
    registers: int = 65_536
    invocations: int = 2048
    workgroup_bytes: int = 228 * 1024
    workgroups: int = 32
    cache: float = 40e6  # bytes that the shared cache keeps from one product to the next
    cpu: bool = False


@dataclass(frozen=True)
class Family:
    """What was fitted for kernels that are ranked among each other: coefficients by kind of dispatch, and factors."""

    coefficients: Mapping[str, Mapping[str, float]]
    means: tuple[float, ...]  # means and standard deviations of the ASPECTS over the measured times
    spreads: tuple[float, ...]
    weights: Mapping[str, tuple[float, ...]]  # by `shape()`, "" for others


@dataclass(frozen=True)
class Model:
    """The rates of one device."""

    machine: Machine
    families: Mapping[str, Family]
    rates: Rates | None = None  # as a probe measured them
    corrections: Mapping[str, float] | None = None  # logarithms of factors from tuning, by `shape()`

    def coefficients(self, family: str, kind: str) -> Mapping[str, float]:
        """Return the costs of a kind of dispatch: fitted ones, or those of such devices in general."""
        fitted = self.families[family].coefficients if family in self.families else {}
        return fitted[kind] if kind in fitted else general(self, kind)

    def knows(self, kernel: Kernel[Any]) -> bool:
        """Return whether the model was fitted to the kernel's settings; True for kernels of a family without fit."""
        found = self.families.get(family_of(kernel))
        return found is None or not found.weights or shape(kernel) in found.weights

    def times(self, kernels: Sequence[Kernel[Any]], problem: Problem) -> list[float]:
        """Return the predicted µs of each kernel; raises KeyError for a kernel whose work is not counted."""
        return [us for us, _ in self.judged(kernels, problem)]

    def best(self, kernels: Sequence[K], problem: Problem) -> list[tuple[K, float, str]]:
        """Return the kernels by their predicted times, the shortest first: these µs, and the main limit of each."""
        found = self.judged(kernels, problem)
        ranked = sorted(range(len(kernels)), key=lambda i: found[i][0])
        return [(kernels[i], *found[i]) for i in ranked]

    def judged(self, kernels: Sequence[Kernel[Any]], problem: Problem) -> list[tuple[float, str]]:
        """Return the predicted µs of each kernel and its main limit; raises as `times()`."""
        found: dict[int, tuple[float, str]] = {}
        families = [family_of(kernel) for kernel in kernels]
        for family in dict.fromkeys(families):
            owners = [i for i in range(len(kernels)) if families[i] == family]
            some = [kernels[i] for i in owners]
            total, aspects, limits = self.judge(family, some, problem)
            times = self._corrected(family, total, aspects, some)
            for i, us, each in zip(owners, times, limits, strict=True):
                found[i] = us, LIMITS[each.index(max(each))]
        return [found[i] for i in range(len(kernels))]

    def _corrected(
        self, family: str, total: list[float], aspects: Table, kernels: Sequence[Kernel[Any]]
    ) -> list[float]:
        """Return the times multiplied by their factors and corrections."""
        fitted = self.families.get(family)
        if fitted is not None and fitted.weights:
            other = fitted.weights[""]
            weights = (fitted.weights.get(shape(kernel), other) for kernel in kernels)
            rows = [(*near, *weight) for near, weight in zip(aspects, weights, strict=True)]
            means, spreads = fitted.means, fitted.spreads
            factors = by_row(rows, (*ASPECTS, *WEIGHTS), lambda t: factor(t, means, spreads))
            total = [us * factor for us, (factor,) in zip(total, factors, strict=True)]
        if self.corrections:
            rest = self.corrections[""]
            logarithms = (self.corrections.get(shape(kernel), rest) for kernel in kernels)
            total = [us * math.exp(logarithm) for us, logarithm in zip(total, logarithms, strict=True)]
        return total

    def judge(self, family: str, kernels: Sequence[Kernel[Any]], problem: Problem) -> tuple[list[float], Table, Table]:
        """Return the µs of each kernel before its factor, its ASPECTS, and the µs for each of LIMITS by itself.

        The ASPECTS and limits are those of the main dispatch of a kernel, without the dispatches before and after it.
        """
        total, divided = [0.0] * len(kernels), [float(getattr(kernel, "splits", 1) > 1) for kernel in kernels]
        limits: dict[int, list[float]] = {}
        figures: dict[int, tuple[float, ...]] = {}  # of the main dispatch
        for kind, (owners, rows) in dispatches_by_kind(kernels, problem).items():
            costs = self.coefficients(family, kind)
            cycles = [costs["fma"]] * len(owners)
            if kind.endswith(".units") and family not in self.families:  # each kernel has the rate of its fragments
                shapes = (kernels[i].matrix_shape for i in owners)
                cycles = [START["fma"] / of_fragments(self.rates, each) for each in shapes if each]
            is_main = any(kind_of_dispatch(main(kernels[i])) == kind for i in owners)
            for i, row, (us, *each) in zip(owners, rows, self._parts(rows, cycles, costs), strict=True):
                total[i] = total[i] + us
                if is_main:
                    limits[i] = each
                    figures[i] = (*row, us, *each, divided[i])
        order = range(len(kernels))
        aspects = by_row(
            [figures[i] for i in order],
            (*COLUMNS, "longest", *LIMITS, "divided"),
            lambda t: aspects_of(t, self.machine),
        )
        return total, aspects, [limits[i] for i in order]

    def _parts(self, rows: Sequence[Sequence[float]], cycles: Sequence[float], costs: Mapping[str, float]) -> Table:
        """Return `parts_of_time()` of dispatches of a kind, with the `cycles` of an FMA of each."""
        known = [(*row, each) for row, each in zip(rows, cycles, strict=True)]
        return by_row(known, (*COLUMNS, "fma"), lambda t: parts_of_time(t, {**costs, "fma": t["fma"]}, self.machine))


def general(model: Model, kind: str) -> dict[str, float]:
    """Return the costs of a kind of dispatch on such devices in general, at the device's rates."""
    costs = CPU if model.machine.cpu else START | OTHERWISE.get(kind, {})
    rates = model.rates
    if rates is None:
        return costs
    measured = {"launch": rates.launch_us, "bandwidth": rates.gbytes * 1e3, "cache": rates.cache_gbytes * 1e3}
    return costs | measured


def family_of(kernel: Kernel[Any]) -> str:
    """Return the family of a kernel: its op, apart on matrix units."""
    return f"{kernel.op}.units" if kernel.matrix_shape else kernel.op


def main(kernel: Kernel[Any]) -> Kernel[Any]:
    """Return the dispatch of a kernel that does most of the work: the first one, if the last reads its sums."""
    return kernel.before[0] if getattr(kernel, "reads", "") == PARTIALS else kernel


def kind_of_dispatch(kernel: Kernel[Any]) -> str:
    """Return the kind of a dispatch, which selects its coefficients; kernels with workgroup tiles share one."""
    if kernel.matrix_shape:
        return family_of(kernel)
    return f"{kernel.op}.tiles" if hasattr(kernel, "bm") else kernel.name


@functools.cache
def shape(kernel: Kernel[Any]) -> str:
    """Return the key of a kernel's weights: its name and settings, without those that share a factor."""
    alike = (*ALIKE, "unroll") if kernel.name in FITTING else ALIKE
    config = {name: value for name, value in kernel.config.items() if name not in alike}
    return f"{kernel.name}({','.join(f'{name}={value}' for name, value in config.items())})"


def dispatches_by_kind(
    kernels: Sequence[Kernel[Any]], problem: Problem
) -> dict[str, tuple[list[int], list[Sequence[float]]]]:
    """Return the dispatches of all `kernels` by kind: the indices of their kernels, and their traffic, a row each."""
    found: dict[str, tuple[list[int], list[Sequence[float]]]] = {}
    for i, kernel in enumerate(kernels):
        for step in kernel.dispatches:
            traffic = step.traffic(problem)
            if traffic is None:
                raise KeyError(step.name)
            owners, rows = found.setdefault(kind_of_dispatch(step), ([], []))
            owners.append(i)
            rows.append(traffic)
    return found


def by_row(
    rows: Sequence[Sequence[float]], names: Sequence[str], formula: Callable[[Mapping[str, Numbers]], Sequence[Numbers]]
) -> Table:
    """Return what `formula` makes of each row, whose figures it gets by their `names`: of all rows, as arrays.

    The page has no arrays, and gives it the numbers of one row after another.
    """
    made = formula(dict(zip(names, np.array(rows, float).T, strict=True)))
    table: Table = np.stack(made, axis=1).tolist()
    return table


def parts_of_time(t: Mapping[str, Numbers], c: Mapping[str, Any], machine: Machine) -> list[Numbers]:
    """Return the µs of dispatches from their traffic, and those that each of LIMITS would take by itself."""
    subgroups = np.ceil(t["invocations"] / machine.subgroup)
    queue = np.ceil(t["workgroups"] / machine.multiprocessors)  # on the busiest multiprocessor
    held = np.minimum(machine.registers // ((t["registers"] + 24) * subgroups * machine.subgroup), machine.workgroups)
    held = np.minimum(held, machine.workgroup_bytes // (t["workgroup_bytes"] + 1024))
    held = np.maximum(1, np.minimum(held, machine.invocations // t["invocations"]))
    waves = np.ceil(queue / held)

    arithmetic = c["fma"] * subgroups * machine.subgroup * t["fmas"] / machine.lanes
    loads = subgroups * sum(c[name] * t[name + "s"] for name in LOADED)
    throughput = queue * t["steps"] * (_norm(c["sharp_step"], arithmetic, loads) + c["step"] * (1 + t["barriers"]))
    instructions = t["fmas"] + sum(t[name + "s"] for name in LOADED)
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
    return [total, start, memory, cache, each * arithmetic, each * loads, latency / machine.clock]


def aspects_of(t: Mapping[str, Numbers], machine: Machine) -> list[Numbers]:
    """Return the ASPECTS of main dispatches, from their traffic, times, and whether k is divided."""
    queue = np.ceil(t["workgroups"] / machine.multiprocessors)
    loads = t["vector_loads"] + t["scalar_loads"] + t["texels"]
    return [
        *(t[limit] / t["longest"] for limit in LIMITS),
        t["divided"],
        np.minimum(np.log(queue * machine.multiprocessors / t["workgroups"]), 3),
        t["scalar_loads"] / (t["scalar_loads"] + 4 * t["vector_loads"] + 4 * t["texels"]),
        np.log(t["steps"]),
        np.log(queue),
        np.log(t["waste"]),
        t["workgroup_stores"] / loads,
        np.log(loads / t["fmas"]),
        np.minimum(t["scalar_stores"], 1),
    ]


def factor(t: Mapping[str, Numbers], means: Sequence[float], spreads: Sequence[float]) -> list[Numbers]:
    """Return the factors of times, from the ASPECTS and WEIGHTS of the cases, as the only ones of a list."""
    fitted = zip(ASPECTS, means, spreads, strict=True)
    near = [t[f"weight of {name}"] * _clipped((t[name] - mean) / spread, FAR) for name, mean, spread in fitted]
    return [np.exp(_clipped(t["weight"] + sum(near), MOST))]


def _norm(p: Any, *terms: Numbers) -> Numbers:
    """Return the p-norm of positive numbers."""
    most: Any = 1e-9
    for term in terms:
        most = np.maximum(most, term)
    result: Numbers = most * sum((term / most) ** p for term in terms) ** (1 / p)
    return result


def _clipped(x: Numbers, most: float) -> Numbers:
    """Return numbers between -`most` and `most`."""
    result: Numbers = np.minimum(np.maximum(x, -most), most)
    return result
