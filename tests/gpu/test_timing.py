"""Timing and roofline give plausible numbers. No test asserts a speed."""

import math
import time

import pytest
from products import check_exactly, runs

from webmm.engine.timing import MAX_SAMPLES, MIN_SAMPLES, Timing, time_call, time_launch
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.naive import Naive
from webmm.measure import roofline
from webmm.problems.gemm import gemm


def test_summary_of_samples():
    timing = Timing.of([3e-6, 1e-6, 2e-6, 10e-6], "wall")
    assert timing.median_us == pytest.approx(2.5)
    assert timing.best_us == pytest.approx(1.0)
    assert timing.samples == 4
    assert timing.clock == "wall"
    assert timing.spread_us == pytest.approx(8.25 - 1.25)
    assert Timing.of([5e-6], "wall").spread_us == 0
    assert Timing.of([1e-6, 3e-6], "wall").spread_us == pytest.approx(2.0), "not beyond the samples"


def test_timing_of_a_host_call():
    timing = time_call(lambda: time.sleep(0.01), warm_up=0.02)
    assert 10_000 <= timing.best_us <= timing.median_us < 1e6
    assert MIN_SAMPLES <= timing.samples <= MAX_SAMPLES
    assert timing.clock == "wall"


def test_timing_of_a_dispatch_agrees_with_the_wall_clock(device):
    # On a CPU, the dispatch takes much longer than its submission; on a GPU, less time than the submission.
    # A kernel that reads a texture runs first: afterwards, lavapipe's timestamps are wrong.
    kernel, problem = Naive(), gemm(64, 64, 128)
    if runs(device, CpuTexture(), gemm(64, 64, 64)):
        check_exactly(device, CpuTexture(), gemm(64, 64, 64))
    with device.empty((2**13,)) as a, device.empty((2**13,)) as b, device.empty((2**12,)) as c:
        launch = device.launch(kernel, problem, a, b, c)
        timing = time_launch(device, launch, warm_up=0.05)

        def wall():
            device.run(kernel, problem, a, b, c)
            device.synchronize()

        reference = time_call(wall, warm_up=0.05)
    assert 0 < timing.best_us <= timing.median_us
    assert timing.spread_us >= 0
    timestamps = "timestamp-query" in device.capabilities.features and device.info.kind != "cpu"
    assert timing.clock == ("timestamp" if timestamps else "wall")
    # A wrong tick or unit would cause a larger difference than a busy machine.
    assert timing.best_us < 5 * reference.median_us
    if device.info.kind == "cpu":
        assert timing.best_us > reference.best_us / 10


def test_multiprocessors_are_counted_while_the_clock_rises(device, monkeypatch):
    calls = []

    def simulated(gpu, launch, *seconds):
        calls.append(launch)
        us = 10 * math.ceil(launch.grid[0] / 24) / min(1.0, 0.3 + 0.05 * len(calls))  # of a GPU that wakes up
        return Timing(us, us, 0.0, 3, "timestamp")

    monkeypatch.setattr(roofline, "time_launch", simulated)
    assert roofline.workgroups_at_once(device) == 24
    assert len(calls) < 30


def test_more_work_takes_longer(device):
    def seconds(k):
        problem = gemm(64, 64, k)
        with device.empty((64 * k,)) as a, device.empty((k * 64,)) as b, device.empty((64 * 64,)) as c:
            launch = device.launch(Naive(), problem, a, b, c)
            return time_launch(device, launch, warm_up=0.05).best_us

    assert seconds(512) > 2 * seconds(16)


def test_roofline(device):
    ceilings = roofline.measure(device)
    assert ceilings.gflops > 0.1
    assert ceilings.gbytes > 0.1
    assert ceilings.attainable(1e9, 1) == ceilings.gflops
    assert ceilings.attainable(1, 1e9) == pytest.approx(ceilings.gbytes * 1e-9)


def test_a_copy_that_takes_no_longer_than_a_dispatch_has_a_bounded_rate():
    assert roofline.cache_rate(14.5, 4.5, 3_000.0) == pytest.approx(8 * 2**20 / 10 / 1e3)
    assert roofline.cache_rate(4.0, 4.5, 3_000.0) == 32 * 3_000.0
