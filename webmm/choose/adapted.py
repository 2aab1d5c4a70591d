"""The cost model for a device: a shipped model, adapted to the rates of `webmm probe` and corrected by `webmm tune`.

A model that was fitted on the same adapter is used as it is. For another adapter, the rates of a probe (arithmetic,
memory, cache, dispatch overhead, multiprocessors) replace those of the adapter that the model was fitted on. Times
measured by tuning correct the factor of all kernels, and that of each measured setting in proportion to the number of
its times.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from webmm.choose.model import Model, shape, shipped_for
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


def model_of(device: Device) -> Model | None:
    """Return the cost model for the device, or None if no model of its vendor is shipped and it was not probed."""
    return adapted(device, *shipped_for(device))


def adapted(device: Device, model: Model | None, near: str) -> Model | None:
    """Return the shipped model `model`, `near` as in `shipped_for()`, adapted to the device and corrected."""
    model = _uncorrected(device, model, near)
    found = _valid(noted(Path(folder(), REFIT_FILE), SCHEMA).get(_driver(device))) if model else {}
    return dataclasses.replace(model, corrections=corrections(found)) if model and found else model


def _uncorrected(device: Device, model: Model | None, near: str) -> Model | None:
    """Return the model at the rates of the device, before corrections from tuning."""
    rates = probed.known(device) if near != "adapter" else None
    if model is None or (near == "other" and rates is None):
        return None
    model = model if near != "other" else without_factors(model)
    return at_rates(model, rates) if rates else model


def without_factors(model: Model) -> Model:
    """Return the model without the fitted factors, which depend on the compiler, for use with another vendor."""
    return dataclasses.replace(model, means=(), spreads=(), weights={})


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
    coefficients = {
        kind: {name: value * ratios.get(name, 1.0) for name, value in known.items()}
        for kind, known in model.coefficients.items()
    }
    return dataclasses.replace(model, machine=machine, coefficients=coefficients, rates=rates)


# Corrections from tuning


def correct(device: Device, records: Iterable[Record]) -> int:
    """Correct the device's model with measured records, and return the number of corrected settings.

    Raises ConfigError if the corrections cannot be written.
    """
    model = _uncorrected(device, *shipped_for(device))
    found = sums(model, records) if model else {}
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
