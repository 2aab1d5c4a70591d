"""How good the choice by the model of cost is: best recorded time ÷ time of the kernel that it takes.

The model was fitted to these records of bench/results, so that the bounds guard against a worse choice and against
counting the work of kernels differently; docs/results.md has problems that nothing was fitted to. Before there was one
model, four predictors and thresholds chose: `before` has the means and lowest tenths that they reached over the same
records; those for reductions and normalisations over 300 problems of `h200-along-collected`.
"""

import gzip
import math
from functools import cache
from pathlib import Path
from statistics import geometric_mean

import pytest
from test_choose_fields import ABLE, DAWN, LAVAPIPE, on

from tests.sampled import sampled
from webmm.cases import op_of
from webmm.choose import COLUMNS, adapted, tables
from webmm.errors import ConfigError
from webmm.kernels import STAGES, configure
from webmm.measure.records import from_json

RESULTS = Path(__file__).parents[2] / "bench" / "results"
DEVICES = {"wgpu": on(ABLE), "dawn": DAWN, "lavapipe": LAVAPIPE}


@cache
def records(name):
    """Return the records in a file of bench/results."""
    return from_json(gzip.decompress((RESULTS / f"{name}.json.gz").read_bytes()).decode())


@cache
def recorded(name, op):
    """Return the times in µs of each kernel, by problem, of the records of `op` in a file of bench/results."""
    found = {}
    for r in records(name):
        if r.op != op or r.status != "ok" or r.kernel not in STAGES[op]:
            continue
        try:
            kernel = configure(r.kernel, {key: str(value) for key, value in r.config.items()}, op)
        except ConfigError:  # of an earlier version
            continue
        times = found.setdefault((r.variant, r.m, r.n, r.k, r.batch, r.dtype, r.layout), {})
        times[kernel] = min(r.median_us, times.get(kernel, math.inf))
    return [
        (op_of(op, variant).dense((m, n, k, batch), dtype, layout), times)
        for (variant, m, n, k, batch, dtype, layout), times in found.items()
        if len(times) > 1
    ]


def shares(problems, predicting, device):
    """Return best ÷ taken of each problem whose field has recorded kernels."""
    found = []
    for problem, times in problems:
        field = COLUMNS[problem.op].field(problem, device, predicting.machine.multiprocessors)
        known = [kernel for kernel in field if kernel in times]
        if known:
            taken = predicting.best(known, problem)[0][0]
            found.append(min(times.values()) / times[taken])
    return sorted(found)


def mean_and_tenth(found):
    return geometric_mean(found), found[len(found) // 10]


@pytest.mark.parametrize(
    ("name", "op", "where", "step", "least", "before"),
    sampled(
        [
            ("h200-shapes-collected", "gemm", "wgpu", 4, 280, (0.981, 0.947)),
            ("h200-dawn-shapes-collected", "gemm", "dawn", 1, 155, (0.990, 0.974)),
            ("h200-dawn-matrix-unit-collected", "gemm", "dawn", 1, 180, (0.975, 0.907)),
            ("h200-divided-collected", "quantized", "wgpu", 1, 80, (0.964, 0.908)),
            ("h200-divided-collected", "weights", "wgpu", 1, 60, (0.967, 0.897)),
            ("h200-dawn-integers-collected", "quantized", "dawn", 1, 110, (0.904, 0.689)),
            ("h200-dawn-weights-collected", "weights", "dawn", 1, 70, (0.911, 0.689)),
            ("lavapipe-shapes", "gemm", "lavapipe", 1, 480, (0.961, 0.879)),
            ("h200-along-fields-collected", "reduce", "wgpu", 4, 160, (0.955, 0.850)),
            ("h200-along-fields-collected", "normalise", "wgpu", 2, 320, (0.979, 0.934)),
            ("h200-dawn-along-collected", "reduce", "dawn", 4, 160, (0.955, 0.850)),
            ("h200-dawn-along-collected", "normalise", "dawn", 4, 160, (0.979, 0.934)),
        ]
    ),
)
def test_the_choice_is_no_worse_than_four_predictors_were(name, op, where, step, least, before):
    device = DEVICES[where]
    found = shares(recorded(name, op)[::step], adapted.uncorrected(device, None), device)
    assert len(found) >= least
    reached = mean_and_tenth(found)
    assert all(now >= then - 0.01 for now, then in zip(reached, before, strict=True)), reached


# A device that was never measured: nothing that was fitted is used, only rates. Those of the H200 are a probe's, those
# of lavapipe the typical ones of two cores.


@pytest.mark.parametrize(
    ("name", "op", "where", "rates", "reached"),
    [
        ("h200-shapes-collected", "gemm", "wgpu", tables.shipped()["nvidia-h200"].rates, (0.9, 0.7)),
        ("h200-dawn-shapes-collected", "gemm", "dawn", tables.shipped()["nvidia-h200-dawn"].rates, (0.9, 0.7)),
        ("lavapipe-shapes", "gemm", "lavapipe", adapted.TYPICAL["cpu"], (0.85, 0.6)),
        ("h200-along-fields-collected", "reduce", "wgpu", tables.shipped()["nvidia-h200"].rates, (0.9, 0.7)),
        ("h200-along-fields-collected", "normalise", "wgpu", tables.shipped()["nvidia-h200"].rates, (0.9, 0.7)),
    ],
)
def test_a_device_that_was_never_measured(name, op, where, rates, reached):
    device = DEVICES[where]
    found = shares(recorded(name, op)[::4], adapted.at_rates_alone(rates, device), device)
    assert len(found) >= 35
    assert all(now >= least for now, least in zip(mean_and_tenth(found), reached, strict=True)), mean_and_tenth(found)
