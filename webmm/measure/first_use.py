"""Tuning at first use: `tune="quick"` and `tune="auto"` search when this adapter has no record of a problem."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from typing import Any

from webmm import log
from webmm.cases import op_of
from webmm.choose import candidates, refused, tuned
from webmm.choose.tuned import bucket, covered, kind, sizes_of
from webmm.config import Tune
from webmm.engine import timing
from webmm.engine.device import Array, Device
from webmm.errors import WebmmError
from webmm.kernels import label_of
from webmm.kernels.base import Kernel
from webmm.measure import tuner
from webmm.measure.bench import record_of
from webmm.measure.records import Record
from webmm.problems.base import Problem

QUICK = 1.0  # seconds after which a quick search tries no more kernels
MAX_KERNELS = 8  # in a quick search
WARM_UP, SAMPLE_TIME = 0.02, 0.05  # seconds per kernel

_search_lock = threading.Lock()  # other threads wait for the search, and use its result


def tune_at_first_use(problem: Problem, device: Device, tune: Tune) -> None:
    """Tune for `problem` and save the outcome, unless this adapter has a record of it.

    `tune="auto"` searches for the problem's bucket of sizes, for about `tune_budget` seconds (a setting); "quick" times
    the likeliest kernels at the exact size, for about QUICK seconds. A search without success is logged as a warning
    and not repeated on this device; the caller continues with its default kernel. While another process searches, this
    one waits, since both may search for the same problem.
    """
    if problem.variant not in ("", *op_of(problem.op).variants):
        return  # an expression: only one kernel can compute it, and no bench covers it
    key = (tune, *kind(problem), problem.layout, (sizes_of if tune == "quick" else bucket)(problem))
    if key in device.learned or covered(problem, device, tune):
        return
    budget = QUICK if tune == "quick" else device.settings.tune_budget
    dense = op_of(problem.op, problem.variant).dense(problem.sizes, problem.dtype.name, problem.layout)
    with _search_lock:
        if key in device.learned or covered(problem, device, tune):  # another thread was faster
            return
        try:
            with tuned.searching(max(budget, device.settings.tune_budget)):
                if not covered(problem, device, tune):
                    _learn(dense, device, budget, quick=tune == "quick")
        except Exception as error:
            log.tuning.warning("%s could not be tuned, its default kernel is used: %s", dense, error)
        finally:
            if not covered(problem, device, tune):
                device.learned.add(key)


def _learn(problem: Problem, device: Device, budget: float, *, quick: bool) -> None:
    log.tuning.info("%s %s %s: searching for %.0f s", problem, problem.layout, problem.dtype.name, budget)
    if quick:
        records = quickly(device, problem, budget)
    else:
        with tuner.TunerProcess.like(device) as worker:
            records = tuner.tune(device, problem, budget, worker=worker)
    tuned.add(records)
    best = tuned.fastest(records)
    words = (
        label_of(best[0])
        if best
        else f"no candidate ran: {'; '.join(sorted({str(r.reason).partition(chr(10))[0] for r in records}))}"
    )
    log.tuning.log(logging.INFO if best else logging.WARNING, "%s: %d candidates, %s", problem, len(records), words)


def quickly(device: Device, problem: Problem, budget: float = QUICK) -> list[Record]:
    """Return records of the likeliest kernels for `problem`, each timed briefly in this process, on zeros.

    The kernels are those that a call may use: proven by the self-test, in the order of `candidates()`. After `budget`
    seconds no more kernels are tried, but at least two are, so that there is a comparison.
    """
    start, records = time.perf_counter(), list[Record]()
    with ExitStack() as freed:
        arrays = [freed.enter_context(device.zeros((e.end,), e.dtype)) for e in problem.buffers()]
        for kernel in list(candidates(problem, device))[:MAX_KERNELS]:
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
