"""The search survives every kind of bad candidate, says what became of it, and keeps only what is right."""

import sys

import pytest

from webmm import cache, tuner
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.tile_1d import Tile1D
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.workgroup_1d import Workgroup1D
from webmm.problem import gemm

# A worker on a driver that crashes at one kernel, hangs at another, miscalculates a third and refuses a fourth.
BAD_DRIVER = """
import dataclasses, os, sys, time
import webmm.tuner as tuner
from webmm.device import Device
from webmm.errors import MemoryLimitError
true, launch = tuner.measure, Device.launch

def measure(device, kernel, operands, **settings):
    if kernel.name == "blocked":
        os._exit(11)
    if kernel.name == "shared":
        time.sleep(1000)
    operands.checker.a[0, 0] += kernel.name == "naive"
    record = true(device, kernel, operands, **settings)
    operands.checker.a[0, 0] -= kernel.name == "naive"
    return record

def refusing(self, kernel, *args):
    if kernel.name == "tile_1d":
        raise MemoryLimitError("allocating: the device is out of memory")
    return launch(self, kernel, *args)

tuner.measure, Device.launch = measure, refusing
tuner.serve_jobs(sys.argv[1])
"""


def test_bad_candidates_do_not_end_the_search(device, monkeypatch):
    monkeypatch.setattr(tuner, "drawn", lambda device, problem: iter(()))
    monkeypatch.setattr(tuner.Worker.measure, "__defaults__", (8.0,))
    field = [Blocked(), Tile1D(), Shared(), Workgroup1D(), Naive(), Tile2D()]
    with tuner.Worker(str(device.info.index), [sys.executable, "-c", BAD_DRIVER]) as worker:
        records = tuner.tune(device, gemm(40, 40, 40), 120, worker=worker, first=field)
    outcome = {record.kernel: record for record in reversed(records)}
    assert outcome["blocked"].status == "runtime"
    assert "code 11" in (outcome["blocked"].reason or "")
    assert outcome["shared"].status == "timeout"
    assert outcome["tile_1d"].status == "runtime"
    assert "out of memory" in (outcome["tile_1d"].reason or "")
    assert outcome["naive"].status == "incorrect"
    assert outcome["tile_2d"].status == outcome["workgroup_1d"].status == "ok"
    (best,) = cache.fastest(records)
    assert best.kernel in ("tile_2d", "workgroup_1d")


def test_a_worker_that_cannot_start_is_an_outcome(device):
    with tuner.Worker("no such adapter") as worker:
        status, reason = worker.measure(tuner.Job("naive", {}, (8, 8, 8), "float32", 0.0))
    assert status == "runtime"
    assert "ended" in reason


def test_a_search_ends_within_its_budget_and_finds_no_worse_than_the_default(device):
    steps = []
    problem = gemm(64, 64, 64)
    with tuner.Worker(str(device.info.index)) as worker:
        records = tuner.tune(device, problem, 6, worker=worker, on_step=steps.append)
    assert steps
    assert {record.status for record in records} <= {"ok"}
    (best,) = cache.fastest(records)
    assert best.m == best.n == best.k == 64


def test_what_is_drawn_can_run_and_is_always_the_same(device):
    problem = gemm(100, 100, 100)
    field = list(tuner.drawn(device, problem))
    assert field == list(tuner.drawn(device, problem))
    assert len(field) >= 10
    assert all(kernel.check(problem, device.capabilities) is None for kernel in field)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_jobs_travel(device, dtype):
    with tuner.Worker(str(device.info.index)) as worker:
        record = worker.measure(tuner.Job("tile_2d", Tile2D(tm=8).config, (33, 17, 9), dtype, 0.01))
    assert record.status == "ok"
    assert (record.m, record.n, record.k, record.dtype, record.config["tm"]) == (33, 17, 9, dtype, 8)
