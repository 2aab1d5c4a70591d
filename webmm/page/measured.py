"""The steps in which the page measures a kernel, as `webmm.measure.bench.measure()` does: it is checked, then timed.

This module is in the translated subset (docs/page.md): benches, operands and tasks are JavaScript's there.
"""

from __future__ import annotations

import math
from typing import Any

from webmm.engine.timing import PROBE_TIME, Timing, duration, wall
from webmm.errors import UnsupportedError
from webmm.page.labels import too_slow

CALLS = 5  # calls whose wall-clock time is measured


def measured(bench: Any, kernel: Any, on: Any, longest: float) -> dict[str, Any]:
    """Return what the record of a kernel says; raises UnsupportedError if it cannot run, and what running it raises.

    `bench` is a `Bench` of the page, `on` a task with its operands. A kernel is not timed if it is predicted to exceed
    the bench's limit, nor if a first run takes more than `longest` seconds.
    """
    if reason := on.reason(kernel):
        raise UnsupportedError(reason)
    if bench.limit < math.inf and kernel.label not in bench.rates:
        _probe(bench, kernel, on)
    if slow := too_slow(on.problem, bench.rates.get(kernel.label, math.inf), bench.limit):
        return {"status": "skipped", "reason": slow}
    launch = bench.start(kernel, on)
    verdict = bench.verdict(on)
    errors = {"max_error": verdict.max_error, "error_bound": verdict.error_bound}
    if verdict.wrong:
        return {"status": "incorrect", "reason": verdict.wrong, **errors}
    seconds = wall(bench.device, launch)
    if seconds > longest:
        reason = f"one run took {duration(1e6 * seconds)}, much longer than the best so far"
        return {"status": "skipped", "reason": reason, **errors}
    timed = bench.time(launch)
    calls = [wall(bench.device, launch) for _ in range(CALLS)]
    gflops = on.problem.flops / timed.median_us / 1e3
    bench.rates[kernel.label] = gflops
    of_peak = bench.roofline and not kernel.matrix  # matrix units exceed the FMA rate
    return {
        **{"median_us": timed.median_us, "best_us": timed.best_us, "spread_us": timed.spread_us},
        **{"samples": timed.samples, "clock": timed.clock, "call_us": Timing.of(calls, "wall").median_us},
        **{"gflops": gflops, "peak_fraction": gflops / bench.roofline.gflops if of_peak else None, **errors},
    }


def _probe(bench: Any, kernel: Any, on: Any) -> None:
    """Estimate the rate of a kernel on smaller tasks, until a run takes 20 ms."""
    for small in on.probes():
        seconds = bench.probe(kernel, small)
        bench.rates[kernel.label] = small.problem.flops / seconds / 1e9
        if seconds > PROBE_TIME:
            return
