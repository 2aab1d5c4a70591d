"""Stages and ops from outside the package are proven, chosen, tuned and benchmarked like those of the package."""

import dataclasses
import importlib
import logging

import numpy as np
import pytest
from products import check, view

import webmm
from webmm import ProblemError, choose
from webmm.calls import pieces
from webmm.cases import op_of
from webmm.choose import tuned
from webmm.kernels import STAGES, configure
from webmm.kernels.gemm.naive import Naive
from webmm.measure import selftest, tuner
from webmm.measure.bench import measure
from webmm.measure.roofline import Roofline
from webmm.problems.gemm import gemm

CEILING = Roofline(100.0, 10.0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_stage_agrees_with_float64(device, examples, load_plugin, dtype):
    load_plugin(examples / "columns.py")
    op = op_of("gemm")
    for size in ((64, 64, 64), (33, 70, 19), (1, 300, 5)):
        record = measure(device, configure("columns", {}), op.case(device, op.problem(size, dtype)), CEILING)
        assert (record.status, record.kernel) == ("ok", "columns"), record.reason
        assert record.peak_fraction > 0


def test_an_op_agrees_with_float64_and_can_be_called(device, examples, load_plugin):
    load_plugin(examples / "cumsum.py")
    op = op_of("cumsum")
    for dtype in ("float32", "float16", "bfloat16"):
        record = measure(device, configure("one_by_one", {}, "cumsum"), op.case(device, op.problem((70, 90, 1), dtype)))
        assert record.status == "ok", record.reason
    x = np.random.default_rng(0).random((37, 20), np.float32)
    cumsum = importlib.import_module(STAGES["cumsum"]["one_by_one"].__module__).cumsum
    np.testing.assert_allclose(cumsum(device.array(x)).numpy(), x.cumsum(axis=1), rtol=1e-5)


@pytest.fixture
def cumsum(examples, load_plugin):
    load_plugin(examples / "cumsum.py")
    return importlib.import_module(STAGES["cumsum"]["one_by_one"].__module__).cumsum


ROWS = np.random.default_rng(1).integers(-9, 9, (1003, 70)).astype(np.float32)


def test_an_op_that_is_cut_exceeds_bindings_and_memory(cumsum, tmp_path):
    """By its `cut()` alone: arrays on the device, in NumPy and in a memory map."""
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=ROWS.shape)
    x[:] = ROWS
    with webmm.Device(limits={"max-storage-buffer-binding-size": 2**16}) as small:
        small.memory = 2**16
        for given in (ROWS, x, small.array(ROWS)):
            got = cumsum(given, device=small)
            assert isinstance(got, webmm.Array) == isinstance(given, webmm.Array)
            host = got.numpy() if isinstance(got, webmm.Array) else got
            np.testing.assert_array_equal(host, ROWS.cumsum(axis=1))


def test_an_op_that_is_cut_is_divided_among_devices(device, cumsum, monkeypatch):
    monkeypatch.setattr(pieces, "LEAST_MOVED", 0)
    used, run = set(), choose.run
    monkeypatch.setattr(choose, "run", lambda problem, on, *arrays: used.add(on) or run(problem, on, *arrays))
    with webmm.Device(device.info.index) as other:
        np.testing.assert_array_equal(cumsum(ROWS, devices=[device, other]), ROWS.cumsum(axis=1))
        assert used == {device, other}


def test_views_are_computed(device, cumsum):
    with device.array(ROWS) as x:
        for first in (5, 64):  # 64 rows are a multiple of 256 bytes, at which a binding could start
            np.testing.assert_array_equal(cumsum(x[first:90]).numpy(), ROWS[first:90].cumsum(axis=1))
        np.testing.assert_array_equal(cumsum(x[::3, 64:]).numpy(), ROWS[::3, 64:].cumsum(axis=1))


def test_transposed_operands_are_computed(device, cumsum):
    """Kernels of such problems read rows one after another, whatever the order in the host's memory."""
    columns = np.asfortranarray(ROWS)
    np.testing.assert_array_equal(cumsum(columns, device=device), ROWS.cumsum(axis=1))
    with webmm.Device(device.info.index) as small:
        small.memory = 2**16
        np.testing.assert_array_equal(cumsum(columns, device=small), ROWS.cumsum(axis=1))


def test_operands_of_a_problem_are_checked(device, cumsum):
    problem = op_of("cumsum").problem((4, 5, 1), "float32")
    with pytest.raises(ProblemError, match=r"cumsum takes 1 operands \(x\), not 2"):
        webmm.compute(problem, ROWS, ROWS)
    with pytest.raises(
        ProblemError, match=r"x of cumsum of 4x5 float32 must be float32 of shape \(4, 5\), not float32"
    ):
        webmm.compute(problem, ROWS)
    with pytest.raises(ProblemError, match="problems of gemm do not say how they are cut"):
        webmm.compute(gemm(4, 5, 6), ROWS)


def test_a_stage_is_chosen_if_a_record_says_it_is_fast(device, examples, load_plugin, tmp_path, monkeypatch):
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path))
    load_plugin(examples / "columns.py")
    problem = gemm(90, 91, 92)
    assert choose.candidates(problem, device)[configure("columns", {})] == "registered"
    measured = measure(device, configure("columns", {"tm": "2"}), op_of("gemm").case(device, problem))
    tuned.add([dataclasses.replace(measured, median_us=1e-3)])
    device.choices.clear()
    assert choose.choose(problem, device) == configure("columns", {"tm": "2"})
    a = np.ones((90, 92), np.float32)
    np.testing.assert_array_equal(webmm.matmul(a, a.T, device=device), a @ a.T)
    device.choices.clear()


@pytest.mark.parametrize(
    ("example", "op", "kernel", "edit"),
    [
        ("columns.wgsl", "gemm", "columns", ("row0 + i, k)", "row0, k)")),
        ("one_by_one.wgsl", "cumsum", "one_by_one", ("sum += x_reg", "sum = x_reg")),
    ],
)
def test_a_wrong_plugin_is_not_used(device, examples, load_plugin, example, op, kernel, edit):
    stage, problem = examples / example, {"gemm": (64, 64, 64), "cumsum": (64, 64, 1)}[op]
    stage.write_text(stage.read_text().replace(*edit))
    load_plugin(examples / f"{'columns' if op == 'gemm' else op}.py")
    verdict = selftest.failing(configure(kernel, {}, op), op_of(op).problem(problem, "float32"), device)
    assert verdict.startswith("it computes wrong results: ")


def test_a_plugin_that_does_not_compile_is_not_used(device, examples, load_plugin):
    (examples / "columns.wgsl").write_text("{{ nothing }}")
    load_plugin(examples / "columns.py")
    assert "'nothing' is undefined" in selftest.failing(configure("columns", {}), gemm(64, 64, 64), device)


def test_the_tuner_measures_plugins_in_its_worker(device, examples, load_plugin):
    load_plugin(examples / "columns.py")
    columns = configure("columns", {"tm": "2"})
    assert any(type(kernel) is type(columns) for kernel in tuner.drawn(device, gemm(64, 64, 64)))
    with tuner.TunerProcess.like(device) as worker:
        record = worker.measure(tuner.Candidate.of(columns, gemm(64, 64, 64), 0.01), 60)
    assert (record.status, record.kernel, record.config["tm"]) == ("ok", "columns", 2)


def test_a_class_defined_in_main_is_not_tuned(device, load_plugin, caplog, monkeypatch):
    cls = type("Typed", (Naive,), {"name": "typed", "follows": "naive", "template": "gemm/naive.wgsl"})
    webmm.register(cls)
    cls.__module__ = "__main__"
    with caplog.at_level(logging.WARNING):
        assert cls not in {type(kernel) for kernel in tuner.drawn(device, gemm(64, 64, 64))}
    assert "typed is not tuned" in caplog.text
    assert check(device, cls(), view(5, 6, 7)) is None
