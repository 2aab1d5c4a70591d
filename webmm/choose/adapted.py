"""The model of time for a device: a shipped one, at the rates that `webmm probe` found, corrected by `webmm tune`.

What was fitted on this very adapter stays as it is. For another one the rates of a probe are put in place of those of
the adapter that the model was fitted on: arithmetic, memory, cache, a dispatch, multiprocessors. What tuning measures
corrects the factors: of all kernels, and of each setting by as much as times of it are known.
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
from webmm.engine import rates as probed
from webmm.engine.device import Device
from webmm.engine.rates import Rates
from webmm.files import note, noted
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes
from webmm.records import Record
from webmm.version import __version__

SCHEMA = "webmm.refit/1"
RIDGE = 3.0  # times of a setting that count as much as that nothing was known of it
FARTHEST = 1.0  # the largest logarithm of measured ÷ predicted that is believed
Sums = dict[str, tuple[float, float]]  # by setting: how many times, and the sum of those logarithms


def model_of(device: Device) -> Model | None:
    """Return the model of time for the device; None where there is none of its vendor and nobody probed it."""
    return adapted(device, *shipped_for(device))


def adapted(device: Device, model: Model | None, near: str) -> Model | None:
    """Return what becomes of the shipped model, which is `near` as `shipped_for()` says, by what is known here."""
    model = _at_home(device, model, near)
    found = _sound(noted(Path(folder(), REFIT_FILE), SCHEMA).get(_driver(device))) if model else {}
    return dataclasses.replace(model, corrections=corrections(found)) if model and found else model


def _at_home(device: Device, model: Model | None, near: str) -> Model | None:
    """Return the model at the rates of the device, before any correction."""
    rates = probed.known(device) if near != "adapter" else None
    if model is None or (near == "other" and rates is None):
        return None
    model = model if near != "other" else without_factors(model)
    return at_rates(model, rates) if rates else model


def without_factors(model: Model) -> Model:
    """Return the model without what is a compiler's doing: for another vendor's."""
    return dataclasses.replace(model, means=(), spreads=(), weights={})


def at_rates(model: Model, rates: Rates) -> Model:
    """Return the model for a device of these rates; as it is where those that it was fitted at are not known."""
    was = model.rates
    if was is None:
        return model
    multiprocessors = round(model.machine.multiprocessors * rates.workgroups / was.workgroups)
    each = rates.gflops / was.gflops * was.workgroups / rates.workgroups  # how fast a multiprocessor is
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


# What tuning teaches


def learn(device: Device, records: Iterable[Record]) -> int:
    """Correct the device's model by what was measured there, and return of how many settings.

    Raises ConfigError where that cannot be written.
    """
    model = _at_home(device, *shipped_for(device))
    found = sums(model, records) if model else {}
    if found:
        note(Path(folder(), REFIT_FILE), SCHEMA, _driver(device), lambda known: _added(_sound(known), found))
    return len(found)


def sums(model: Model, records: Iterable[Record]) -> Sums:
    """Return what the times of kernels that the model knows say of their settings, near ones of each product most."""
    found: Sums = {}
    last = {(_problem(r), str(r.kernel), str(r.config)): r for r in records if r.median_us and _is_plain(r)}
    best: dict[Gemm, float] = {}
    for (problem, *_), record in last.items():
        best[problem] = min(best.get(problem, math.inf), record.median_us or math.inf)
    for (problem, *_), record in last.items():
        kernel = kernel_of(record)
        try:
            predicted = model.times([kernel], problem)[0] if kernel else math.nan
        except KeyError:  # of a stage that the model knows nothing of
            continue
        counts = math.exp(1 - (record.median_us or math.inf) / best[problem])
        apart = math.log((record.median_us or math.nan) / predicted)
        if kernel and math.isfinite(apart):
            count, total = found.get(shape(kernel), (0.0, 0.0))
            found[shape(kernel)] = count + counts, total + counts * max(-FARTHEST, min(FARTHEST, apart))
    return found


def _is_plain(record: Record) -> bool:
    return (record.op, record.variant, record.dtype, record.status) == ("gemm", "", F32.name, "ok")


@functools.lru_cache(maxsize=256)
def _of(m: int, n: int, k: int, batch: int, layout: str) -> Gemm:
    return gemm(m, n, k, batch=batch, **transposes(layout))


def _problem(r: Record) -> Gemm:
    return _of(r.m, r.n, r.k, r.batch, r.layout)


def corrections(found: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return the logarithm of a factor for each setting that was measured, and under "" for all others."""
    count, total = (sum(each) for each in zip(*found.values(), strict=True))
    common = total / (count + RIDGE)
    return {"": common} | {
        setting: common + (total - count * common) / (count + RIDGE) for setting, (count, total) in found.items()
    }


def _driver(device: Device) -> str:
    return f"{probed.driver(device)}, webmm {__version__}"


def _sound(known: Any) -> Sums:
    """Return what is sound of an entry in a document."""
    found: Sums = {}
    for setting, pair in known.items() if isinstance(known, dict) else ():
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, (int, float)) for x in pair):
            count, total = map(float, pair)
            if count > 0 and math.isfinite(count) and abs(total) <= FARTHEST * count:
                found[setting] = count, total
    return found


def _added(known: Sums, found: Sums) -> Sums:
    return known | {
        setting: (count + known.get(setting, (0.0, 0.0))[0], total + known.get(setting, (0.0, 0.0))[1])
        for setting, (count, total) in found.items()
    }
