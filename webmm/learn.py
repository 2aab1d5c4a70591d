"""Tuning at the first use: what `tune="quick"` and `tune="auto"` do where this adapter has no record yet."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from typing import Any

from webmm import log, tuner
from webmm.bench import record_of
from webmm.cases import op_of
from webmm.choose import candidates, refused, tuned
from webmm.choose.tuned import bucket, covered, kind, sizes_of
from webmm.config import Tune
from webmm.engine import timing
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.errors import WebmmError
from webmm.kernels import label_of
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.records import Record

QUICK = 1.0  # seconds after which a quick search tries no further kernel
MOST = 8  # kernels that it tries
WARM_UP, SAMPLE_TIME = 0.02, 0.05  # seconds of each

_one_search = threading.Lock()  # in this process; other threads wait for what it finds


def learn(problem: Problem, device: Device, tune: Tune) -> None:
    """Tune for `problem` and remember the outcome, where this adapter has no record of it yet.

    With `tune` "auto" its bucket is searched, which takes about as long as the setting `tune_budget` says; with
    "quick" the likeliest kernels are timed at its very size, about QUICK seconds. Once, whatever comes out: a search
    that fails is a warning, and the caller goes on with what it had. Another process that searches is waited for,
    since it may be after the same.
    """
    if problem.variant not in ("", *op_of(problem.op).variants):
        return  # an expression: no bench knows it, and one kernel computes it
    what = (tune, *kind(problem), problem.layout, (sizes_of if tune == "quick" else bucket)(problem))
    if what in device.learned or covered(problem, device, tune):
        return
    budget = QUICK if tune == "quick" else device.settings.tune_budget
    plain = op_of(problem.op, problem.variant).dense(problem.sizes, problem.dtype.name, problem.layout)
    with _one_search:
        if what in device.learned:
            return
        try:
            with tuned.searching(max(budget, device.settings.tune_budget)):
                if not covered(problem, device, tune):
                    _learn(plain, device, budget, quick=tune == "quick")
        except Exception as error:
            log.tuning.warning("%s could not be tuned, a default takes its place: %s", plain, error)
        finally:
            device.learned.add(what)


def _learn(problem: Problem, device: Device, budget: float, *, quick: bool) -> None:
    log.tuning.info("%s %s %s: searching for %.0f s", problem, problem.layout, problem.dtype.name, budget)
    if quick:
        records = quickly(device, problem, budget)
    else:
        with tuner.Worker.like(device) as worker:
            records = tuner.tune(device, problem, budget, worker=worker)
    tuned.add(records)
    best = tuned.fastest(records)
    words = label_of(best[0]) if best else f"nothing ran: {'; '.join(sorted({str(r.reason) for r in records}))}"
    log.tuning.log(logging.INFO if best else logging.WARNING, "%s: %d candidates, %s", problem, len(records), words)


def quickly(device: Device, problem: Problem, budget: float = QUICK) -> list[Record]:
    """Return records of the kernels that are likeliest for `problem`, each timed briefly, in this process, on zeros.

    They are those that a call would take: proven, in the order of `candidates()`. After `budget` seconds no further one
    is tried; two are at least, or nothing would be compared.
    """
    start, records = time.perf_counter(), list[Record]()
    with ExitStack() as freed:
        arrays = [freed.enter_context(device.zeros((e.end,), e.dtype)) for e in problem.buffers()]
        for kernel in list(candidates(problem, device))[:MOST]:
            if len(records) > 1 and time.perf_counter() - start > budget:
                break
            if refused(kernel, problem, device) is None:
                records.append(_timed(kernel, problem, device, arrays))
    return records


def _timed(kernel: Kernel[Any], problem: Problem, device: Device, arrays: list[Array]) -> Record:
    try:
        launch = device.launch(kernel, problem, *arrays)
        timed = timing.time_launch(device, launch, WARM_UP, SAMPLE_TIME)
    except WebmmError as error:
        return record_of(device, problem, kernel, "runtime", str(error))
    log.tuning.debug("%s: %s: %.1f µs", problem, kernel, timed.median_us)
    return record_of(device, problem, kernel, timed=timed)
