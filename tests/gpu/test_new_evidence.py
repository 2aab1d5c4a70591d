"""A call uses what its process has learnt since the last call: new records, tuned shapes, rates, registered stages."""

import numpy as np
import pytest

import webmm
from webmm import Device, choose, plugins
from webmm.calls import divided
from webmm.choose import adapted, limits, tuned
from webmm.dtypes import F16, F32, F64
from webmm.engine import rates
from webmm.engine.timing import Timing
from webmm.kernels import configure
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.workgroup_1d import Workgroup1D
from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.measure import first_use
from webmm.measure.bench import record_of
from webmm.problems.gemm import gemm

A = np.arange(24 * 40, dtype=np.float32).reshape(24, 40) % 5
PROBLEM = gemm(24, 24, 40, transpose_b=True)  # A @ A.T


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(divided, "_rates", {})  # those that other tests of this process found
    with Device() as device:
        yield device


@pytest.fixture
def ran(gpu, monkeypatch):
    """Return the list of the kernels, as text, whose dispatches are queued, those of recorded plans included."""
    labels, add = [], gpu.submissions.add
    monkeypatch.setattr(gpu.submissions, "add", lambda queued: (labels.append(queued[0].label), add(queued))[1])
    return labels


def record(device, kernel, us=0.001, problem=PROBLEM):
    return record_of(device, problem, kernel, timed=Timing(us, us, 0.0, 1, "wall"))


def product(a, ran, **settings):
    """Return the kernel, as text, that computes `a @ a.T`, which is checked."""
    ran.clear()
    np.testing.assert_array_equal(np.asarray(webmm.matmul(a, a.T, **settings)), A @ A.T)
    (kernel,) = ran
    return kernel


@pytest.mark.parametrize("on_host", [False, True], ids=["Array", "NumPy"])
def test_a_new_record_decides_the_next_call(gpu, ran, on_host):
    a, device = (A, {"device": gpu}) if on_host else (gpu.array(A), {})
    for _ in range(3):  # the third call repeats a plan
        before = product(a, ran, **device)
    for kernel in (Tile2D(tm=2), Workgroup1D(64)):
        assert str(kernel) != before
        tuned.add([record(gpu, kernel)])
        assert [product(a, ran, **device) for _ in range(3)] == 3 * [str(kernel)]
    tuned.clear()
    assert product(a, ran, **device) == before


def test_a_shape_tuned_by_one_call_is_tuned_for_all(gpu, ran, monkeypatch):
    a = gpu.array(A)
    for _ in range(3):
        assert product(a, ran) != str(Tile2D(tm=2))
    monkeypatch.setattr(first_use, "quickly", lambda *_: [record(gpu, Naive(), 9.0), record(gpu, Tile2D(tm=2), 1.0)])
    assert product(a, ran, tune="quick") == str(Tile2D(tm=2))
    assert [product(a, ran) for _ in range(3)] == 3 * [str(Tile2D(tm=2))]
    assert [product(a, ran, tune="quick") for _ in range(3)] == 3 * [str(Tile2D(tm=2))]


def test_a_shape_is_tuned_again_after_its_record_was_deleted(gpu, ran, monkeypatch):
    found = [[record(gpu, Tile2D(tm=2))], [record(gpu, Workgroup2D())], []]
    monkeypatch.setattr(first_use, "quickly", lambda *_: found.pop(0))
    a = gpu.array(A)
    for kernel in (Tile2D(tm=2), Workgroup2D()):
        assert [product(a, ran, tune="quick") for _ in range(3)] == 3 * [str(kernel)]
        tuned.clear()
    for _ in range(2):  # a search without success is not repeated
        assert product(a, ran, tune="quick") not in (str(Tile2D(tm=2)), str(Workgroup2D()))
        tuned.add([record(gpu, Naive(), problem=gemm(900, 900, 900))])
    assert found == []


def test_records_added_during_a_call_decide_the_next(gpu, ran, monkeypatch):
    run = choose.run

    def and_tuned(*args, **settings):
        run(*args, **settings)
        tuned.add([record(gpu, Workgroup2D())])

    with monkeypatch.context() as patch:
        patch.setattr(choose, "run", and_tuned)
        assert product(gpu.array(A), ran) != str(Workgroup2D())
    assert product(gpu.array(A), ran) == str(Workgroup2D())


def test_other_devices_choose_anew(gpu):
    with Device() as other:
        before = choose.choose(PROBLEM, other)
        tuned.add([record(gpu, Workgroup2D())])
        assert choose.choose(PROBLEM, other) == Workgroup2D() != before


def test_repeated_calls_keep_their_plan(gpu, monkeypatch):
    a = gpu.array(A)
    for _ in range(2):
        webmm.matmul(a, a.T)
    monkeypatch.setattr(choose, "run", lambda *_, **__: pytest.fail("nothing has changed"))
    webmm.matmul(a, a.T)


def test_a_stage_registered_after_a_call_is_chosen_by_its_record(gpu, ran, examples, load_plugin, monkeypatch):
    load_plugin(examples / "columns.py")
    columns = configure("columns", {"tm": "2"})
    plugins.unregister(type(columns))
    a = gpu.array(A)
    for _ in range(3):
        before = product(a, ran)
    plugins.register(type(columns))
    tuned.add([record(gpu, columns)])
    plugins.unregister(type(columns))
    assert product(a, ran) == before
    plugins.register(type(columns))
    assert product(a, ran) == str(columns)
    plugins.unregister(type(columns))
    assert product(a, ran) == before
    plugins.register(type(columns))  # for the fixture


def test_rates_are_those_of_the_dtype_and_follow_the_records(gpu):
    assumed = limits.ASSUMED_RATE[gpu.info.kind]
    fast = {F16: 5e5, F32: 2e5, F64: 1e3}  # GFLOP/s
    size = 4096
    assert [divided.rate_of(gpu, dtype) for dtype in fast] == [assumed] * 3
    assert limits.dispatch_limits(gpu, F16).flops == limits.dispatch_limits(gpu, F32).flops == assumed
    for dtype, gflops in fast.items():
        problem = gemm(size, size, size, dtype=dtype)
        tuned.add([record(gpu, Tile2D(), 2 * size**3 / gflops / 1e3, problem)])
        assert divided.rate_of(gpu, dtype) == pytest.approx(gflops * 1e9)
        assert limits.dispatch_limits(gpu, dtype).flops >= gflops * 1e9 * (1 - 1e-6)
    assert limits.dispatch_limits(gpu, F32).flops == pytest.approx(2e14)
    assert limits.dispatch_limits(gpu, F64).flops < 1e14


def test_corrections_and_probes_count_at_once(gpu, monkeypatch):
    found = []
    monkeypatch.setattr(choose, "candidates", lambda *_: found.append(1) or {Tile2D(): "it is the only one"})
    choose.choose(PROBLEM, gpu)
    choose.choose(PROBLEM, gpu)
    assert len(found) == 1
    rates.keep(gpu, rates.Rates(1e3, 1e2, 1e3, 5.0, 4))
    choose.choose(PROBLEM, gpu)
    assert len(found) == 2
    monkeypatch.setattr(adapted, "sums", lambda *_: {"tile_2d()": (1.0, 0.5)})
    monkeypatch.setattr(adapted, "uncorrected", lambda *_: object())
    adapted.correct(gpu, [])
    choose.choose(PROBLEM, gpu)
    assert len(found) == 3
