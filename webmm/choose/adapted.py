"""The cost model for a device: a shipped model, adapted to the rates of `webmm probe` and corrected by `webmm tune`.

A model that was fitted on the same adapter is used as it is. For another adapter of its vendor, the rates of a probe
(arithmetic, memory, cache, dispatch overhead, multiprocessors) replace those of the adapter that the model was fitted
on; for one of another vendor, they are all that is known. Without a probe, the rates that its maker publishes take
their place, or typical ones if `webmm.choose.published` has none. Times measured by tuning correct the factor of all
kernels, and that of each measured setting in proportion to the number of its times.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from webmm.choose.model import Machine, Model, shape
from webmm.choose.published import published
from webmm.choose.tables import shipped_for
from webmm.choose.tuned import REFIT_FILE, folder, kernel_of
from webmm.dtypes import F32
from webmm.engine import generation
from webmm.engine import rates as probed
from webmm.engine.device import Device
from webmm.engine.rates import Rates
from webmm.files import note, noted
from webmm.measure.records import Record
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes
from webmm.version import __version__

SCHEMA = "webmm.refit/1"
RIDGE = 3.0  # weight of the prior (no correction), in numbers of measured times
MAX_LOG_RATIO = 1.0  # logarithms of measured ÷ predicted are clipped to this
Sums = dict[str, tuple[float, float]]  # by setting: the weighted number of times, and the sum of those logarithms


# For devices that were not probed and whose makers' figures are not known here: those of a GeForce RTX 4060 (24
# multiprocessors at 2.46 GHz, 272 GB/s), a Radeon 780M (12 compute units at 2.7 GHz, 5600 MT/s), and two cores with
# AVX2. The rates of caches and the times of dispatches are estimates.
TYPICAL: dict[str, Rates] = {
    "discrete": Rates(15_100.0, 272.0, 1_500.0, 5.0, 24),
    "integrated": Rates(8_300.0, 90.0, 500.0, 10.0, 12),
    "cpu": Rates(150.0, 10.0, 60.0, 60.0, 2),
}
LANES, CPU_LANES = 128, 16  # FMAs per cycle of a multiprocessor, and of a core


def model_of(device: Device) -> Model:
    """Return the cost model for the device: fitted on its adapter, fitted on one of its vendor, or a general one.

    The latter two are adapted to the rates of a probe, to published ones, or to those of a typical device.
    """
    return corrected(device, uncorrected(device, probed.known(device)))


def uncorrected(device: Device, rates: Rates | None) -> Model:
    """Return the model before corrections from tuning, at the `rates` of a probe, if there was any."""
    model, near = shipped_for(device)
    if model is None or near == "other":
        return at_rates_alone(rates or assumed_rates(device), device)
    if near == "adapter" or device.info.kind == "cpu":
        return model
    return at_rates(model, rates or assumed_rates(device))


def unprobed(device: Device) -> bool:
    """Return whether a probe would tell the model what it does not know of the device: a GPU without fitted times."""
    return device.info.kind != "cpu" and shipped_for(device)[1] != "adapter" and probed.known(device) is None


def origin(device: Device) -> str:
    """Return where the rates of `model_of(device)` come from, in words."""
    near, rates = shipped_for(device)[1], probed.known(device)
    if near == "adapter" or (near == "vendor" and device.info.kind == "cpu"):
        return f"fitted to times on {'this adapter' if near == 'adapter' else 'such a CPU'}, shipped with webmm"
    if rates:
        date = probed.probed_on(device)
        words = f"of a probe{f' on {date}' if date else ''}"
    else:
        rates, kind = assumed_rates(device), device.info.kind
        words = "typical of a CPU" if kind == "cpu" else f"typical of {'a' if kind == 'discrete' else 'an'} {kind} GPU"
        words = "published by its maker" if published(device.info.name) else words
        words += "" if kind == "cpu" else ", since it was not probed"
    fit = ", in the shipped fit of another adapter of its vendor" if near == "vendor" else ""
    return f"{words}{fit}: {rates}"


def assumed_rates(device: Device) -> Rates:
    """Return the rates that count for a device without a probe: published ones, or those of a typical device."""
    return published(device.info.name) or typical_rates(device)


def typical_rates(device: Device) -> Rates:
    """Return the rates of a typical device of this kind."""
    return TYPICAL.get(device.info.kind, TYPICAL["integrated"])


def typical(device: Device) -> Model:
    """Return the model of a typical device of this kind."""
    return at_rates_alone(typical_rates(device), device)


def at_rates_alone(rates: Rates, device: Device) -> Model:
    """Return the model of a device of which nothing but rates is known."""
    cpu = device.info.kind == "cpu"
    lanes = CPU_LANES if cpu else LANES
    clock = rates.gflops * 1e3 / (2 * lanes * rates.workgroups)
    subgroup = device.capabilities.subgroup_size or (8 if cpu else 32)
    machine = Machine(rates.workgroups, lanes, subgroup, clock, workgroups=1 if cpu else 32, cpu=cpu)
    return Model(machine, {}, rates)


def corrected(device: Device, model: Model) -> Model:
    """Return the model with the corrections from tuning on this device."""
    found = _valid(noted(Path(folder(), REFIT_FILE), SCHEMA).get(_driver(device)))
    return dataclasses.replace(model, corrections=corrections(found)) if found else model


def at_rates(model: Model, rates: Rates) -> Model:
    """Return the model for a device with these rates; unchanged if the rates of the fitted device are not known."""
    was = model.rates
    if was is None:
        return model
    multiprocessors = round(model.machine.multiprocessors * rates.workgroups / was.workgroups)
    each = rates.gflops / was.gflops * was.workgroups / rates.workgroups  # relative speed of one multiprocessor
    machine = dataclasses.replace(
        model.machine, multiprocessors=max(1, multiprocessors), clock=model.machine.clock * each
    )
    ratios = {
        "launch": rates.launch_us / was.launch_us,
        "bandwidth": rates.gbytes / was.gbytes,
        "cache": rates.cache_gbytes / was.cache_gbytes,
    }
    families = {
        name: dataclasses.replace(family, coefficients=scaled(family.coefficients, ratios))
        for name, family in model.families.items()
    }
    return dataclasses.replace(model, machine=machine, families=families, rates=rates)


def scaled(coefficients: Mapping[str, Mapping[str, float]], ratios: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the coefficients multiplied by the ratios of the same names."""
    return {
        kind: {name: value * ratios.get(name, 1.0) for name, value in known.items()}
        for kind, known in coefficients.items()
    }


# Corrections from tuning


def correct(device: Device, records: Iterable[Record]) -> int:
    """Correct the device's model with measured records, and return the number of corrected settings.

    Raises ConfigError if the corrections cannot be written.
    """
    found = sums(uncorrected(device, probed.known(device)), records)
    if found:
        note(Path(folder(), REFIT_FILE), SCHEMA, _driver(device), lambda known: _added(_valid(known), found))
        generation.advance()
    return len(found)


def sums(model: Model, records: Iterable[Record]) -> Sums:
    """Return the sums of log(measured ÷ predicted) by setting; times near the best of a problem have more weight."""
    found: Sums = {}
    last = {(_problem(r), str(r.kernel), str(r.config)): r for r in records if r.median_us and _is_plain(r)}
    best: dict[Gemm, float] = {}
    for (problem, *_), record in last.items():
        best[problem] = min(best.get(problem, math.inf), record.median_us or math.inf)
    for (problem, *_), record in last.items():
        kernel = kernel_of(record)
        try:
            predicted = model.times([kernel], problem)[0] if kernel else math.nan
        except KeyError:  # the model does not cover this stage
            continue
        weight = math.exp(1 - (record.median_us or math.inf) / best[problem])
        log_ratio = math.log((record.median_us or math.nan) / predicted)
        if kernel and math.isfinite(log_ratio):
            count, total = found.get(shape(kernel), (0.0, 0.0))
            clipped = max(-MAX_LOG_RATIO, min(MAX_LOG_RATIO, log_ratio))
            found[shape(kernel)] = count + weight, total + weight * clipped
    return found


def _is_plain(record: Record) -> bool:
    return (record.op, record.variant, record.dtype, record.status) == ("gemm", "", F32.name, "ok")


@functools.lru_cache(maxsize=256)
def _gemm(m: int, n: int, k: int, batch: int, layout: str) -> Gemm:
    return gemm(m, n, k, batch=batch, **transposes(layout))


def _problem(r: Record) -> Gemm:
    return _gemm(r.m, r.n, r.k, r.batch, r.layout)


def corrections(found: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return the logarithm of the factor for each measured setting, and under "" for all others."""
    count, total = (sum(each) for each in zip(*found.values(), strict=True))
    common = total / (count + RIDGE)
    return {"": common} | {
        setting: common + (total - count * common) / (count + RIDGE) for setting, (count, total) in found.items()
    }


def _driver(device: Device) -> str:
    return f"{probed.rates_key(device)}, webmm {__version__}"


def _valid(known: Any) -> Sums:
    """Return the valid part of an entry that was read from the file."""
    found: Sums = {}
    for setting, pair in known.items() if isinstance(known, dict) else ():
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, (int, float)) for x in pair):
            count, total = map(float, pair)
            if count > 0 and math.isfinite(count) and abs(total) <= MAX_LOG_RATIO * count:
                found[setting] = count, total
    return found


def _added(known: Sums, found: Sums) -> Sums:
    return known | {
        setting: (count + known.get(setting, (0.0, 0.0))[0], total + known.get(setting, (0.0, 0.0))[1])
        for setting, (count, total) in found.items()
    }
