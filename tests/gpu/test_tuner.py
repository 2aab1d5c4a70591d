"""The search survives every kind of bad candidate, records its outcome, and keeps only correct kernels."""

import dataclasses
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import webmm
from tests.sampled import sampled
from webmm import Device, choose
from webmm.cases import OPS, op_of
from webmm.choose import tuned
from webmm.engine import timing
from webmm.errors import ConfigError
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.tile_1d import Tile1D
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.vectorized import Vectorized
from webmm.kernels.gemm.workgroup_1d import Workgroup1D
from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.measure import first_use, tuner
from webmm.measure.bench import record_of
from webmm.problems.gemm import gemm

# A worker on a driver that crashes at one kernel, hangs at another, miscalculates a third, runs out of memory at a
# fourth, refuses to compile a fifth and loses the device at a sixth.
BAD_DRIVER = """
import dataclasses, os, sys, time
import webmm.measure.tuner as tuner
from webmm.engine import device
from webmm.errors import MemoryLimitError
true, launch, render = tuner.measure, device.Device.launch, device.Device.shader

def measure(device, kernel, operands, **settings):
    if kernel.name == "blocked":
        os._exit(11)
    if kernel.name == "shared":
        time.sleep(1000)
    if kernel.name == "workgroup_2d":
        device.wgpu_device.destroy()
    operands.checker.a[0, 0] += kernel.name == "naive"
    record = true(device, kernel, operands, **settings)
    operands.checker.a[0, 0] -= kernel.name == "naive"
    return record

def refusing(self, kernel, *args):
    if kernel.name == "tile_1d":
        raise MemoryLimitError("allocating: the device is out of memory")
    return launch(self, kernel, *args)

def broken(self, kernel, *args):
    shader = render(self, kernel, *args)
    return dataclasses.replace(shader, wgsl="nonsense " + shader.wgsl) if kernel.name == "vectorized" else shader

tuner.measure, device.Device.launch, device.Device.shader = measure, refusing, broken
tuner.serve_jobs(sys.argv[1])
"""

OUTCOMES = {
    Blocked: ("runtime", "ended with code 11"),
    Tile1D: ("runtime", "out of memory"),
    Shared: ("timeout", "no answer within"),
    Vectorized: ("compile", "refused by the engine"),
    Naive: ("incorrect", "rounding explains at most"),
    Workgroup2D: ("runtime", "was lost while"),
    Tile2D: ("ok", ""),
    Workgroup1D: ("ok", ""),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder, and searches of a few seconds."""
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("WEBMM_TUNE_BUDGET", "4")
    monkeypatch.setattr(tuner, "FIRST_ROUND", 4)
    return tmp_path


def test_bad_candidates_do_not_end_the_search(device, monkeypatch):
    monkeypatch.setattr(tuner, "drawn", lambda device, problem: iter(()))
    monkeypatch.setattr(tuner, "MAX_TIMEOUT", 4.0)
    with tuner.TunerProcess(str(device.info.index), [sys.executable, "-c", BAD_DRIVER]) as worker:
        records = tuner.tune(device, gemm(40, 40, 40), 120, worker=worker, first=[kernel() for kernel in OUTCOMES])
    first = {record.kernel: record for record in reversed(records)}
    for kernel, (status, words) in OUTCOMES.items():
        assert first[kernel.name].status == status, first[kernel.name]
        assert words in (first[kernel.name].reason or "")
    (best,) = tuned.fastest(records)
    assert best.kernel in ("tile_2d", "workgroup_1d")


@pytest.mark.parametrize("answer", ["nonsense", "{}", "[1]"])
def test_an_invalid_answer_is_an_outcome(answer):
    script = f"print('ready', flush=True); input(); print({answer!r}, flush=True); input()"
    with tuner.TunerProcess("", [sys.executable, "-c", script]) as worker:
        status, reason = worker.measure(tuner.Candidate("naive", {}, (8, 8, 8), "float32", 0.0), 10)
    assert status == "runtime"
    assert f"did not answer with a record, but '{answer}" in reason


def test_a_worker_that_cannot_start_is_an_outcome(device):
    with tuner.TunerProcess("no such adapter") as worker:
        status, reason = worker.measure(tuner.Candidate("naive", {}, (8, 8, 8), "float32", 0.0), 10)
    assert status == "runtime"
    assert "ended" in reason


def test_a_search_ends_within_its_budget(device):
    steps = []
    problem = gemm(64, 64, 64)
    with tuner.TunerProcess(str(device.info.index)) as worker:
        records = tuner.tune(device, problem, 3, worker=worker, on_step=steps.append)
    assert steps
    assert {record.status for record in records} <= {"ok"}
    (best,) = tuned.fastest(records)
    assert best.m == best.n == best.k == 64


def test_candidates_can_run_and_are_deterministic(device):
    problem = gemm(100, 100, 100)
    field = list(tuner.drawn(device, problem))
    assert field == list(tuner.drawn(device, problem))
    assert len(field) >= 10
    assert all(kernel.check(problem, device.capabilities) is None for kernel in field)


@pytest.mark.parametrize(("dtype", "layout", "batch"), [("float32", "tt", 1), ("float16", "nt", 3)])
def test_jobs_of_gemm_are_sent_to_the_worker(device, dtype, layout, batch):
    with tuner.TunerProcess(str(device.info.index)) as worker:
        record = worker.measure(
            tuner.Candidate("tile_2d", Tile2D(tm=8).config, (33, 17, 9), dtype, 0.01, layout, batch), 60
        )
    assert record.status == "ok"
    assert (record.m, record.n, record.k, record.dtype, record.config["tm"]) == (33, 17, 9, dtype, 8)
    assert (record.layout, record.batch) == (layout, batch)


SIZES = {op: (5, 96, 1) if op in ("reduce", "normalise", "elementwise") else (5, 96, 33) for op in OPS}


def small_problem(op):
    return OPS[op].problem(SIZES[op], OPS[op].dtypes[0])


@pytest.mark.parametrize("op", sampled(OPS))
def test_jobs_of_every_op_are_sent_to_the_worker(device, op):
    problem = small_problem(op)
    kernel = next(iter(choose.candidates(problem, device, "off")))
    with tuner.TunerProcess(str(device.info.index)) as worker:
        record = worker.measure(tuner.Candidate.of(kernel, problem, 0.01), 60)
    assert (record.status, record.op, record.variant) == ("ok", op, problem.variant), record.reason
    assert (record.m, record.n, record.k, record.batch) == problem.sizes
    assert tuned.kernel_of(record) == kernel


@pytest.mark.parametrize("op", OPS)
def test_candidates_of_every_op_can_run(device, op):
    problem = small_problem(op)
    field = list(tuner.drawn(device, problem))
    assert field == list(tuner.drawn(device, problem))
    assert len(set(field)) >= 5
    assert all(kernel.op == op and kernel.check(problem, device.capabilities) is None for kernel in field)


@pytest.mark.parametrize("op", sampled(OPS, first=1))
def test_the_first_use_of_every_op_is_tuned(folder, monkeypatch, op):
    searched = []

    def tune(device, problem, budget, worker):
        searched.append(problem)
        _, *others = tuner.drawn(device, problem)
        return [record_for(device, problem, min(others, key=size), 5.0)]  # drivers take long to compile large tiles

    def size(kernel):
        return math.prod(value for value in kernel.config.values() if isinstance(value, int))

    monkeypatch.setattr(tuner, "tune", tune)
    with Device() as gpu:
        problem = small_problem(op)
        kernel = choose.choose(problem, gpu, "auto")
        assert searched == [problem]
        assert kernel == next(iter(tuner.drawn(gpu, problem)))  # chosen by its record now
        assert [(r.op, r.variant, tuned.kernel_of(r)) for r in tuned.load()] == [(op, problem.variant, kernel)]
        for variant in OPS[op].variants[1:2]:  # no records of this variant yet
            other = op_of(op, variant).problem(SIZES[op], OPS[op].dtypes[0])
            choose.choose(other, gpu, "auto")
            assert searched == [problem, other]


A = np.arange(60 * 70, dtype=np.float32).reshape(60, 70) % 5


def test_only_the_first_product_of_a_bucket_is_tuned(folder, monkeypatch):
    searched = []
    true = tuner.tune
    monkeypatch.setattr(
        tuner,
        "tune",
        lambda device, problem, *args, **kw: (searched.append(problem), true(device, problem, *args, **kw))[1],
    )
    with Device() as gpu:
        a = gpu.array(A)
        assert np.array_equal(webmm.matmul(a, a.T, tune="auto").numpy(), A @ A.T)
        assert searched == [gemm(60, 60, 70, transpose_b=True)]
        kept = tuned.load()
        assert {(r.m, r.n, r.k, r.layout, r.dtype) for r in kept} == {(60, 60, 70, "nt", "float32")}
        webmm.matmul(a[:50], a.T, tune="auto")  # the same bucket
        webmm.matmul(a.T, a)  # another bucket, but without tune=
        (kernel,) = {kernel for (_, _, mode, *_), kernel in gpu.choices.items() if mode == "auto"}
        assert (kernel.name, kernel.config) == (kept[0].kernel, kept[0].config)
        portable = choose.choose(gemm(60, 60, 70, transpose_b=True), gpu, "off")
        assert portable == next(iter(choose.candidates(gemm(60, 60, 70, transpose_b=True), gpu, "off")))
    with Device() as gpu:  # as another process would
        webmm.matmul(gpu.array(A), gpu.array(A).T, tune="auto")
    assert len(searched) == 1


def record_for(device, problem, kernel, us):
    """Return a record of `kernel` with this time."""
    timed = timing.Timing(us, us, 0.0, 1, "wall")
    return record_of(device, problem, kernel, timed=timed)


@pytest.mark.parametrize("op", sampled(OPS, 2, 1))
def test_quick_tuning_times_the_likeliest_kernels_once(folder, monkeypatch, op):
    tried = []

    def time_launch(device, launch, warm_up, sample_time):
        tried.append(launch)
        return timing.Timing(9.0 - len(tried), 1.0, 0.0, 1, "wall")  # each is faster than the one before

    monkeypatch.setattr(timing, "time_launch", time_launch)
    monkeypatch.setattr(tuner, "tune", None)
    with Device() as gpu:
        problem = small_problem(op)
        likely = [k for k in choose.candidates(problem, gpu) if choose.refused(k, problem, gpu) is None][
            : first_use.MAX_KERNELS
        ]
        before = gpu.memory_stats().array_bytes
        chosen = choose.choose(problem, gpu, "quick")
        assert min(2, len(likely)) <= len(tried) <= len(likely)
        assert tuned.kernel_of(tuned.load()[0]) == chosen
        assert gpu.memory_stats().array_bytes == before
        count = len(tried)
        gpu.choices.clear()
        assert choose.choose(problem, gpu, "quick") == chosen == choose.choose(problem, gpu, "cached")
    with Device() as gpu:  # as another process would
        assert choose.choose(problem, gpu, "quick") == chosen
    assert len(tried) == count


def test_quick_tuning_is_for_one_size(folder):
    with Device() as gpu:
        a = gpu.array(A)
        for rows in (60, 50):
            assert np.array_equal(webmm.matmul(a[:rows], a.T, tune="quick").numpy(), A[:rows] @ A.T)
        assert {(r.m, r.n, r.k) for r in tuned.load()} == {(60, 60, 70), (50, 60, 70)}
        webmm.matmul(a, a.T, tune="auto")  # its bucket has a record now


@pytest.mark.parametrize("mode", ["quick", "auto"])
def test_ops_without_benchmarks_are_not_tuned(folder, monkeypatch, mode):
    monkeypatch.setenv("WEBMM_TUNE", mode)
    monkeypatch.setattr(tuner, "tune", None)
    square = webmm.Epilogue(wgsl="x * x", numpy=np.square)
    with Device() as gpu:
        a = gpu.array(A)
        assert np.array_equal((a * a[0] + 1.0).numpy(), A * A[0] + 1)
        assert tuned.load() == []
        assert np.array_equal(webmm.map(a, square).numpy(), A * A)


def test_quick_tuning_respects_its_budget(folder, monkeypatch):
    monkeypatch.setattr(first_use, "QUICK", 0.0)
    with Device() as gpu:
        choose.choose(gemm(60, 60, 70), gpu, "quick")
        records = first_use.quickly(gpu, gemm(60, 60, 70), 0.0)
    assert len(records) == 2


def test_threads_wait_for_one_search(folder, monkeypatch):
    searched = []

    def tune(device, problem, budget, worker):
        searched.append(problem)
        time.sleep(0.3)
        return [record_for(device, problem, Workgroup1D(64), 9.0), record_for(device, problem, Tile2D(tm=2), 5.0)]

    monkeypatch.setattr(tuner, "tune", tune)
    with Device() as gpu, ThreadPoolExecutor() as pool:
        chosen = list(pool.map(lambda m: choose.choose(gemm(m, 64, 64), gpu, "auto"), (64, 65, 66, 67)))
    assert chosen == [Tile2D(tm=2)] * 4
    assert len(searched) == 1


def test_a_record_covers_its_bucket_layout_and_driver_only(device, folder):
    problem = gemm(64, 64, 64, transpose_b=True)
    record = record_for(device, problem, Tile2D(), 5.0)
    others = {"layout": "nn", "driver": "another", "version": "0.0.9", "dtype": "float16", "m": 256, "op": "x"}
    tuned.add(dataclasses.replace(record, **{name: value}) for name, value in others.items())
    assert not tuned.covered(problem, device)
    tuned.add([record])
    assert tuned.covered(problem, device)
    assert tuned.covered(gemm(70, 64, 52, transpose_b=True), device)
    assert not tuned.covered(gemm(70, 64, 50, transpose_b=True), device)  # not divisible by 4: another bucket


def test_slow_stages_are_dropped_from_the_search(device, monkeypatch):
    field = [Tile2D(), Naive(), Workgroup1D(64), Tile2D(tm=2), Workgroup1D(128), Workgroup1D(256), Tile2D(tm=8)]
    monkeypatch.setattr(tuner, "drawn", lambda *_: iter(field))
    times = {Tile2D: 10.0, Workgroup1D: 50.0}
    timeouts = []

    def outcome(device, problem, kernel, warm_up, worker, timeout):
        timeouts.append(timeout)
        if isinstance(kernel, Naive):
            return record_of(device, problem, kernel, "timeout", "no answer")
        return record_for(device, problem, kernel, times[type(kernel)])

    monkeypatch.setattr(tuner, "_outcome", outcome)
    records = tuner.tune(device, gemm(64, 64, 64), 60, worker=None)
    first = [record.config.get("tm", record.kernel) for record in records[:5]]
    assert first == [4, "naive", "workgroup_1d", 2, 8]
    assert timeouts[0] == tuner.MAX_TIMEOUT
    assert set(timeouts[1:]) == {tuner.MIN_TIMEOUT}


@pytest.mark.parametrize("error", [ConfigError("full"), OSError("no process"), ZeroDivisionError()])
def test_a_search_that_fails_does_not_fail_the_product(folder, monkeypatch, caplog, error):
    def fail(*args, **settings):
        raise error

    monkeypatch.setattr(tuner, "tune", fail)
    monkeypatch.setenv("WEBMM_TUNE", "auto")
    with Device() as gpu:
        for _ in range(2):
            assert np.array_equal(webmm.matmul(A, A.T, device=gpu), A @ A.T)
    assert [record.levelname for record in caplog.records if "could not be tuned" in record.message] == ["WARNING"]


def test_a_search_without_results_is_reported_once(folder, monkeypatch, caplog):
    monkeypatch.setattr(
        tuner.TunerProcess,
        "__init__",
        lambda self, *_, **__: (
            setattr(self, "_process", None) or setattr(self, "_command", [sys.executable, "-c", "raise SystemExit(3)"])
        ),
    )
    with Device() as gpu:
        for _ in range(2):
            assert np.array_equal(webmm.matmul(A, A.T, device=gpu, tune="auto"), A @ A.T)
    assert caplog.text.count("no candidate ran: the process ended with code 3") == 1
    assert tuned.load() == []


def test_a_worker_never_tunes():
    code = "import sys; sys.stdin.readline(); from webmm import config; print(config.settings().tune)"
    with tuner.TunerProcess("", [sys.executable, "-c", f"print('ready', flush=True)\n{code}"]) as worker:
        assert "off" in worker.measure(tuner.Candidate("naive", {}, (8, 8, 8), "float32", 0.0), 60)[1]


TUNE_ONE = """
import sys, numpy as np, webmm
from webmm.measure import tuner
tuner.FIRST_ROUND = 2
m = int(sys.argv[1])
a = np.ones((m, 64), np.float32)
assert webmm.matmul(a, a.T, tune="auto")[0, 0] == 64
print("done", flush=True)
"""


def test_concurrent_and_killed_processes_leave_a_valid_cache(folder):
    env = {**os.environ, "WEBMM_LOG": "tune", "WEBMM_TUNE_BUDGET": "3"}
    start = [
        subprocess.Popen([sys.executable, "-c", TUNE_ONE, str(m)], env=env, stderr=subprocess.PIPE, text=True)
        for m in (64, 60, 256)
    ]
    *both, killed = start
    for line in killed.stderr:
        if "searching" in line or "candidates" in line:
            break
    killed.kill()
    assert [process.communicate(timeout=120) and process.returncode for process in both] == [0, 0]
    killed.communicate()
    cached = tuned.load()
    assert {(64, 64, 64), (60, 60, 64)} & {(r.m, r.n, r.k) for r in cached}
    assert len({tuned.bucket(record) for record in cached if record.m < 100}) == 1
    assert not list(folder.glob("*.bad"))
    tuned.add([dataclasses.replace(cached[0], m=1)])  # the lock is free
    assert len(tuned.load()) == len(cached) + 1
    with tuned.searching(1):
        pass
