"""Stages and ops from outside the package are proven, chosen, tuned and benchmarked like those of the package."""

import dataclasses
import importlib
import logging

import numpy as np
import pytest
from products import check, view

import webmm
from webmm import choose
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
