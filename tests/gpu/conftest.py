"""The device shared by a file's GPU tests. Without an adapter they fail; in CI a skipped test fails, too."""

import itertools
import os

import numpy as np
import pytest

from webmm import Device
from webmm.choose import cpu
from webmm.engine.pool import Pool
from webmm.kernels.gemm.cpu_lanes import CpuLanes

# In these files, new buffers are filled with NaN: no result may depend on their initial contents.
POISONED = {"test_random", "test_shapes", "test_weights", "test_quantized", "test_reduce", "test_special_values"}

# These files are about calls. On CPUs their products have small tiles, which a driver compiles in a seventh of the
# time; the tiles of users are those of test_layouts.py, test_cpu_lanes.py, the fuzzer and most other files.
SMALL_TILES = {"test_matmul", "test_float64", "test_plans", "test_expression_epilogues", "test_any_size"}


@pytest.fixture(scope="module", autouse=True)
def small_tiles(request):
    if request.module.__name__.rpartition(".")[2] not in SMALL_TILES:
        yield
        return
    field = cpu.field

    def smaller(problem, lanes):
        return [
            CpuLanes(kernel.lanes, min(kernel.tm, 2), kernel.tn)
            for kernel in itertools.islice(field(problem, lanes), 1)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "field", smaller)
        yield


@pytest.fixture(scope="module")
def device(small_tiles):
    """Return a device that is closed after the file: a CPU's pipelines take gigabytes in the course of all tests."""
    with Device() as device:
        yield device


@pytest.fixture(autouse=True)
def poisoned(request, monkeypatch):
    if request.module.__name__.rpartition(".")[2] not in POISONED:
        return
    take = Pool.take

    def full_of_nan(pool, nbytes):
        block, _ = take(pool, nbytes)
        with pool._guard.using("filling"):
            pool._guard.device.queue.write_buffer(block.buffer, 0, np.full(block.size, 0xFF, np.uint8))
        return block, False

    monkeypatch.setattr(Pool, "take", full_of_nan)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped; in CI that is a failure: {call.excinfo.value}"
    return report
