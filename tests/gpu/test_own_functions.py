"""Timing and profiling of a user's own code: a function in turns with another, and a whole program until its exit."""

import dataclasses
import functools
import json
import subprocess
import sys
import time

import numpy as np
import pytest

import webmm
from webmm import config
from webmm.engine import timing
from webmm.kernels.gemm.naive import Naive
from webmm.measure import benchmark as module
from webmm.measure.bench import Bench
from webmm.measure.benchmark import Benchmark, Ratio, Samples, benchmark
from webmm.measure.references import Reference
from webmm.measure.roofline import Roofline
from webmm.problems.gemm import gemm
from webmm.report import at_exit


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "WARM_UP", 0.02)
    monkeypatch.setattr(module, "WAKE", 0.0)
    monkeypatch.setattr(timing, "SAMPLE_TIME", 0.05)


def sleeper(seconds):
    def sleep():
        time.sleep(seconds)

    return sleep


def test_summary_of_samples():
    found = Samples.averaging([1e-6, 2e-6, 3e-6, 10e-6], 7, "wall")
    assert (found.median_us, found.best_us, found.mean_us) == pytest.approx((2.5, 1.0, 4.0))
    assert (found.samples, found.calls, found.clock) == (4, 7, "wall")


def test_the_interval_of_a_ratio_is_that_of_the_sign_test():
    six = Ratio.of([1, 1, 1, 1, 1, 1], [3, 1, 2, 6, 4, 5])
    assert (six.median, six.low, six.high) == (3.5, 1, 6)
    nine = Ratio.of([1.0] * 9, [float(i) for i in range(1, 10)])  # 2 · (1 + 9) / 2⁹ ≤ 5 % < 2 · (1 + 9 + 36) / 2⁹
    assert (nine.median, nine.low, nine.high) == (5, 2, 8)
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(500):
        found = Ratio.of([1.0] * 11, list(draw.lognormal(0, 1, 11)))  # whose median is 1
        held += found.low <= 1 <= found.high
    assert held >= 0.95 * 500


@pytest.mark.usefixtures("quick")
def test_a_function_against_another():
    found = benchmark(sleeper(0.002), against=functools.partial(sleeper(0.006)))
    assert 2_000 <= found.wall.best_us <= found.wall.median_us
    assert found.wall.best_us <= found.wall.mean_us
    assert found.wall.clock == "wall"
    assert found.wall.samples == found.against.wall.samples >= module.PAIRS
    assert found.against.wall.best_us >= 6_000
    assert found.ratio.low <= found.ratio.median <= found.ratio.high
    assert found.ratio.median > 1.2
    assert (found.device, found.operations) == (None, 0)
    row = str(found)
    assert "\n" not in row
    for words in ("sleep: median ", "minimum ", "mean ", "spread ", "× as fast as sleep ("):
        assert words in row
    assert "on the device" not in row


@pytest.mark.usefixtures("quick")
def test_queued_work_is_waited_for(device):
    kernel, problem = Naive(), gemm(64, 64, 64)
    with device.zeros((64, 64)) as a, device.empty((64, 64)) as c:

        def product(a, c):
            device.run(kernel, problem, a, a, c)

        found = benchmark(product, a, c)
        assert found.wall.median_us > 0.2 * found.device.median_us, "only the queueing was timed"
        assert found.operations == problem.flops
        assert found.device.clock == timing.clock_of(device)
        assert f"on the device {timing.duration(found.device.median_us)} ({found.device.clock})" in str(found)
        assert "GOP/s" in str(found)
        with webmm.profile(device), pytest.raises(webmm.ConfigError, match="already being profiled"):
            benchmark(product, a, c)
    assert device.profile is None


def test_what_cannot_be_timed():
    later = "a coroutine function or a generator"
    for wrong, words in ((webmm.matmul_async, later), (lambda: (yield), later), (np.eye(2), "ndarray")):
        with pytest.raises(webmm.ConfigError, match=f"takes a function to call.*, not {words}"):
            benchmark(wrong)
        with pytest.raises(webmm.ConfigError, match="takes a function to call"):
            benchmark(min, against=wrong)
    with pytest.raises(ZeroDivisionError):
        benchmark(lambda: 1 / 0)
    stopped = Samples.averaging([0.0], 1, "timestamp")
    assert str(Benchmark("f", stopped, stopped, 8)).endswith("on the device 0 µs (timestamp)")

    async def later():
        return 1

    with pytest.raises(webmm.ConfigError, match="this one returns a coroutine, which never runs"):
        benchmark(lambda: later())


class Dot(Reference):
    """NumPy's product, as if it were another library."""

    name, packages, dtypes = "torch", ("numpy",), ("float32",)

    def find_device(self):
        return "cpu"

    def product(self, problem, a, b):
        assert problem.a.transposed
        c = np.empty((problem.m, problem.n), np.float32)
        return lambda: np.dot(a.T, b, out=c), lambda: None, lambda: np.dot(a.T, b) + (problem.n == 9)


def test_a_reference_is_checked_and_timed(device, monkeypatch):
    monkeypatch.setattr(timing, "QUEUED_TIME", 0.01)
    bench = Bench(device, [], [(8, 7, 5), (8, 9, 5)], ceiling=Roofline(1.0, 1.0), layout="tn", reference=Dot())
    bench.kernels = [Naive()]
    monkeypatch.setattr(Bench, "_case", lambda self, kernel, case, spent: None)
    right, wrong = (record for record in bench.run() if record)
    assert (right.kernel, right.engine, right.adapter) == ("torch", f"torch {np.__version__}", "cpu")
    assert right.median_us > 0
    assert right.max_error <= right.error_bound < wrong.max_error
    with pytest.raises(webmm.ConfigError, match="takes float32, not float16"):
        bench.reference.check("float16")
    failing = dataclasses.replace(bench, layout="nn")
    assert {record.status for record in failing.run() if record} == {"skipped"}


# The profile of a program that knows nothing of it

PROGRAM = """
import os, numpy as np, webmm
a = np.ones((20, 20), np.float32)
for engine in os.environ["ENGINES"].split():
    gpu = webmm.Device(engine=engine)
    if os.environ.get("IDLE"):
        continue
    for _ in range(3):
        webmm.matmul(a, a, device=gpu)
    with webmm.profile(gpu) as own:  # as if there were no other
        webmm.softmax(gpu.array(a))
    assert sum(event.kind == "product" for event in own.events) == 1
    if engine == "wgpu":
        gpu.close()  # the other is open until the end
os.chdir("/")
raise SystemExit("the end") if os.environ.get("IDLE") else KeyError("the end")
"""


def run(environment, tmp_path, **more):
    command, env = [sys.executable, "-c", PROGRAM], {"ENGINES": "wgpu", **environment, **more}
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=280)


def test_a_table_at_exit(swiftshader, tmp_path):
    done = run(swiftshader, tmp_path, WEBMM_PROFILE="summary", ENGINES="wgpu dawn")
    assert (done.returncode, done.stdout) == (1, "")
    _, _, tables = done.stderr.partition("KeyError: 'the end'\n")
    first, second = tables.split("webmm on ")[1:]
    for table in (first, second):
        caption, *lines = table.splitlines()
        assert "kernels by wall clock, of peak: of " in caption
        head, *rows = [line.split() for line in lines if line.strip(" ─")]
        assert head == ["kernel", "op", "calls", "total", "mean", "share", "rate", "of", "peak"]
        (product,) = [row for row in rows if "gemm" in row]
        assert product[product.index("gemm") + 1] == "3", "self-tests are no calls"
        assert product[-2] == "GOP/s"
        assert product[-1].endswith("%")
        assert {"normalise"} & {cell for row in rows for cell in row}, "what another profile saw is here, too"
        assert {"upload", "download", "prepare", "self-test"} <= {row[0] for row in rows}
    assert "SwiftShader" in second.partition("\n")[0]


def test_a_trace_at_exit(tmp_path, swiftshader):
    done = run(swiftshader, tmp_path, WEBMM_PROFILE="trace.json", ENGINES="wgpu wgpu", WEBMM_SELFTEST="off")
    assert done.stderr.endswith("KeyError: 'the end'\n")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert len(names) == 2
    for device in (1, 2):
        products = [event["name"] for event in events if event["pid"] == device and event.get("cat") == "product"]
        assert sum("gemm 20x20x20" in name for name in products) >= 3
        assert sum("normalise" in name for name in products) >= 1


@pytest.mark.parametrize("value", ["summary", "trace.json"])
def test_nothing_at_exit_of_a_program_without_a_kernel(tmp_path, swiftshader, value):
    if value == "trace.json":
        (tmp_path / value).write_text("of an earlier program")
    done = run(swiftshader, tmp_path, WEBMM_PROFILE=value, IDLE="1")
    assert done.stderr == "the end\n"
    assert list(tmp_path.iterdir()) == []


def test_values_that_cannot_be_used_are_refused_when_a_device_is_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    for value, words in (
        ("table", r"WEBMM_PROFILE: profile must be summary, or .* ends in \.json, not 'table'"),
        ("missing/trace.json", r"cannot write the trace .*missing is no folder"),
        ("folder.json", "it is a folder"),
    ):
        monkeypatch.setenv("WEBMM_PROFILE", value)
        with pytest.raises(webmm.ConfigError, match=words):
            webmm.Device()
    config.set(profile="summary")
    assert config.settings().profile == "summary"
    config.set(profile=None)


def test_the_fraction_of_the_peak_is_over_all_problems():
    total = at_exit.Total(kernel=Naive(), seconds=1.0)
    total.problems[gemm(100, 100, 100)] += 400
    total.problems[gemm(100, 100, 50)] += 200
    assert (total.rate(), total.of_peak(Roofline(2.0, 1.0)), total.of_peak(None)) == ("1 GOP/s", "50%", "–")
