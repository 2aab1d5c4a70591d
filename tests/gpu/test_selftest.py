"""Self-tests: a wrong shader is detected before its first use, reported and not used; verdicts are cached."""

import dataclasses
import importlib
import itertools

import numpy as np
import pytest
from click.testing import CliRunner

import webmm
from webmm import Device, choose
from webmm.cases import OPS
from webmm.cases.gemm import GemmOp
from webmm.choose import tuned, verdicts
from webmm.cli import main
from webmm.dtypes import F16, F32
from webmm.errors import DeviceLostError, MemoryLimitError, UnsupportedError
from webmm.kernels import LADDER
from webmm.kernels.base import LOOP_LIMIT
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.measure import selftest
from webmm.problems.gemm import gemm
from webmm.problems.product import Operand, transposes
from webmm.report.choice import title
from webmm.wgsl.epilogues import ACTIVATIONS
from webmm.wgsl.render import render

A = np.arange(33 * 20, dtype=np.float32).reshape(33, 20) % 7


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def two_candidates(monkeypatch):
    """Leave two kernels to choose from."""
    monkeypatch.setattr(choose, "candidates", lambda *_: {Tile2D(): "first", Workgroup2D(): "second"})


RIGHT, WRONG = "fma({{ vec4r }}(a_reg{{ i }}), ", "fma({{ vec4r }}(select(a_reg{{ i }}, 0.0, k == 7u)), "


@pytest.fixture
def wrong(templates):
    """Break the template of tile_2d: it skips one step of k."""
    file = templates / Tile2D().template
    assert RIGHT in file.read_text()
    file.write_text(file.read_text().replace(RIGHT, WRONG))
    return file


@pytest.mark.usefixtures("two_candidates", "wrong")
def test_a_wrong_shader_is_reported_and_not_used(folder, monkeypatch, caplog):
    with Device() as gpu:
        assert np.array_equal(webmm.matmul(A.T, A, device=gpu), A.T @ A)
        assert {kernel.name for kernel in gpu.choices.values()} == {"workgroup_2d"}
        (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert line.startswith(f"{Tile2D()} is not used on {gpu.info}: it computes wrong results: ")
        known = verdicts.verdicts(selftest.verdicts_key(gpu))
        assert sorted(bool(verdict) for verdict in known.values()) == [False, True]
    monkeypatch.setattr(selftest, "prove", lambda *_: pytest.fail("the self-test ran again"))
    with Device() as gpu:
        assert np.array_equal(webmm.matmul(A.T, A, device=gpu), A.T @ A)
    monkeypatch.setenv("WEBMM_SELFTEST", "off")
    with Device() as gpu:
        assert not np.array_equal(webmm.matmul(A.T, A, device=gpu), A.T @ A)


@pytest.mark.usefixtures("two_candidates")
def test_a_corrected_shader_is_proven_again(wrong):
    with Device() as gpu:
        webmm.matmul(A.T, A, device=gpu)
    wrong.write_text(wrong.read_text().replace(WRONG, RIGHT))
    module = importlib.import_module("webmm.wgsl.render")
    module.environment.cache_clear()
    module._render.cache_clear()
    with Device() as gpu:
        assert np.array_equal(webmm.matmul(A.T, A, device=gpu), A.T @ A)
        assert {kernel.name for kernel in gpu.choices.values()} == {"tile_2d"}


@pytest.fixture
def unlimited_loops(monkeypatch):
    """Templates that do not know how long loops may be; template choices are remembered, and so forgotten around it."""
    remembered = importlib.import_module("webmm.kernels.sizes")._specialised
    monkeypatch.setattr("webmm.kernels.product.LOOP_LIMIT", 2**31)
    remembered.cache_clear()
    yield
    remembered.cache_clear()


@pytest.mark.usefixtures("unlimited_loops")
def test_a_driver_that_stops_long_loops_is_detected(monkeypatch):
    """Mesa 22.3.6 stops after 65,535 iterations: here without unrolled loops and without the list of drivers."""
    assert not Naive().specialise(gemm(3, 3, 100_000)).long_k
    monkeypatch.setattr(choose, "candidates", lambda *_: {Naive(): "single steps", Shared(16): "steps of 16"})
    a = (np.arange(3 * 100_000, dtype=np.float32) % 3).reshape(3, 100_000)
    with Device() as gpu:
        gpu.capabilities = dataclasses.replace(gpu.capabilities, loop_limit=0)
        assert np.array_equal(webmm.matmul(a, a.T, device=gpu), a.astype(np.float64) @ a.T.astype(np.float64))


def test_another_kernel_replaces_a_refused_shader(templates, two_candidates, folder):
    file = templates / Tile2D().template
    file.write_text(file.read_text() + "nonsense")
    with Device() as gpu:
        assert np.array_equal(webmm.matmul(A.T, A, device=gpu), A.T @ A)
        assert {kernel.name for kernel in gpu.choices.values()} == {"workgroup_2d"}
        assert any("was refused by the engine" in words for words in gpu.verdicts.values())
        assert set(verdicts.verdicts(selftest.verdicts_key(gpu)).values()) == {""}  # a refusal is no verdict on results


def test_a_choice_serves_other_offsets_if_it_is_proven_there(monkeypatch):
    with Device() as gpu:
        ranked, searched, candidates = [], [], choose.candidates
        monkeypatch.setattr(choose, "candidates", lambda *given: searched.append(given) or candidates(*given))
        monkeypatch.setattr(choose, "refused", lambda kernel, problem, _: ranked.append(problem) or None)
        x = gpu.array(np.arange(1024, dtype=np.float32))
        for start in (0, choose.ALIKE, 5 * choose.ALIKE):
            assert np.array_equal((x[start : start + 40] * 2).numpy(), 2 * np.arange(start, start + 40))
        assert len(searched) == 1
        assert len({*ranked}) == 3, "each offset is proven"
        x[1:41] * 2  # aligned otherwise
        assert len(searched) == 2
        monkeypatch.setattr(choose, "refused", lambda kernel, problem, _: "no" if len(searched) == 2 else None)
        x[2 * choose.ALIKE : 2 * choose.ALIKE + 40] * 2
        assert len(searched) == 3, "the kernel is refused there, so that others are considered"


def test_wrong_shaders_give_an_error_and_no_result(wrong, monkeypatch):
    monkeypatch.setattr(choose, "candidates", lambda *_: {Tile2D(): ""})
    with Device() as gpu, pytest.raises(UnsupportedError, match="tile_2d it computes wrong results: "):
        webmm.matmul(A.T, A, device=gpu)


def test_failures_of_the_device_are_no_verdicts(monkeypatch):
    with Device() as gpu:
        problem = gemm(9, 9, 9)

        def fail(error):
            def prove(*args):
                raise error

            monkeypatch.setattr(selftest, "prove", prove)

        fail(MemoryLimitError("full"))
        assert selftest.failing(Tile2D(), problem, gpu) is None
        fail(DeviceLostError("gone"))
        with pytest.raises(DeviceLostError):
            selftest.failing(Tile2D(), problem, gpu)
        monkeypatch.undo()
        assert gpu.verdicts == {}


EPILOGUES = {
    "plain": {},
    "long": {"k": 70_001},
    "scaled": {"alpha": 3.0, "beta": -2.0},
    "row bias": {"bias": "row", "bias_offset": 5},
    "column bias": {"bias": "column", "alpha": 7.0},
    "the sum of what came before": {"bias": "matrix", "activation": "relu"},
    "float16": {"dtype": F16, "out_dtype": F32},
    "to float16": {"out_dtype": F16, "k": 70_001},
    **{name: {"activation": name} for name in ACTIVATIONS},
}


@pytest.mark.parametrize("change", EPILOGUES.values(), ids=EPILOGUES)
def test_right_shaders_pass(device, change):
    problem = dataclasses.replace(gemm(1000, 500, 300, transpose_b=True), **change)
    problem = dataclasses.replace(problem, a=Operand(problem.k + 4), b=Operand(problem.k + 1, 3, 1, transposed=True))
    small = next(selftest.stand_ins(Workgroup2D(), problem, device))
    assert selftest.prove(Workgroup2D(), small, device) == ""
    # A small error in one element does not pass.
    true = device.download
    for row, column in ((0, 0), (small.m - 1, small.n - 1)):

        def off(array, at=row * small.n + column):
            data = true(array)
            data.reshape(-1)[at] *= 1.002
            return data

        device.download = off
        try:
            assert f"first C[{row}, {column}]: " in selftest.prove(Workgroup2D(), small, device)
        finally:
            del device.download


def test_the_final_dispatch_of_a_product_is_proven(device):
    # The partial sums are the same for every epilogue.
    plain = gemm(64, 64, 64)
    biased = dataclasses.replace(plain, bias="column")
    assert verdicts.text_of(SplitK(splits=2), plain, device) != verdicts.text_of(SplitK(splits=2), biased, device)


@pytest.mark.parametrize(("splits", "size"), [(2, 64), (3, 64), (16, 64), (32, 1024)])
def test_a_stand_in_has_a_step_for_every_part_of_k(device, splits, size):
    tile = {"bm": 32, "bn": 32, "tm": 4, "tn": 4} if size == 64 else {"bm": 128, "bn": 128}
    kernel, problem = SplitK(**tile, slices=1, splits=splits), gemm(size, size, 40_001)
    small = next(selftest.stand_ins(kernel, problem, device))
    assert small.k < problem.k
    assert selftest.prove(kernel, small, device) == ""


def test_every_shader_has_a_small_stand_in(device):
    shapes = [(1, 1, 1), (64, 64, 64), (1023, 1024, 1025), (5000, 2, 90_000), (3000, 3000, 70_001), (4, 9000, 4)]
    for stage, shape, layout, (gap, offset) in itertools.product(
        LADDER, shapes, ("nn", "nt", "tn"), ((0, 0), (4, 4), (1, 0), (0, 2))
    ):
        if stage is Gemv and min(shape[:2]) > 16:
            continue  # never chosen for these shapes
        dense = gemm(*shape, **transposes(layout))
        problem = dataclasses.replace(
            dense,
            **{x: dataclasses.replace(o, ld=o.ld + gap, offset=offset) for x, o in (("a", dense.a), ("b", dense.b))},
        )
        kernel = stage()
        small = next(selftest.stand_ins(kernel, problem, device), None)
        assert small is not None, (kernel, problem)
        assert small.m * small.n * small.k <= (2**24 if problem.k <= LOOP_LIMIT else 2**30)
        assert small.k <= LOOP_LIMIT or problem.k > LOOP_LIMIT
        assert (small.k > LOOP_LIMIT) == (problem.k > LOOP_LIMIT)
        assert render(kernel, small).wgsl == render(kernel, problem).wgsl


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "webmm.selftest/2", "drivers": {}}', '{"drivers": 1}'])
def test_a_broken_verdict_file_is_replaced(folder, text):
    folder.mkdir()
    (folder / "selftest.json").write_text(text)
    assert verdicts.verdicts("d") == {}
    verdicts.keep_verdicts("d", {"a": ""})
    verdicts.keep_verdicts("e", {"a": "x"})
    verdicts.keep_verdicts("d", {"b": "y"})
    assert (verdicts.verdicts("d"), verdicts.verdicts("e")) == ({"a": "", "b": "y"}, {"a": "x"})
    tuned.clear()
    assert verdicts.verdicts("d") == {}


def test_an_unwritable_cache_folder_is_ignored(folder):
    folder.write_text("a file")
    verdicts.keep_verdicts("d", {"a": ""})
    with Device() as gpu:
        assert np.array_equal(webmm.matmul(A.T, A, device=gpu), A.T @ A)


def test_the_command_reports_each_shader(wrong, two_candidates, monkeypatch):
    monkeypatch.setattr(selftest, "candidates", choose.candidates)
    monkeypatch.setattr(GemmOp, "tried", GemmOp.tried[1:2])
    monkeypatch.setattr(selftest, "OPS", {"gemm": GemmOp()})
    done = CliRunner().invoke(main, ["selftest"])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[1].startswith(f"  65x67x63 nn float32: {Tile2D()}: it computes wrong results: ")
    assert lines[2] == "    step by step: webmm debug tile_2d 65 67 63 --at 0,0"
    assert lines[3] == f"  65x67x63 nn float32: {Workgroup2D()}: right"
    assert "shaders are wrong on" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.long)])
def test_all_shaders_are_right_on_this_driver(device, monkeypatch, step):
    cases = list(selftest._cases())[::step]
    assert {problem.op for problem in cases} == set(OPS)
    monkeypatch.setattr(selftest, "_cases", lambda: cases)
    done = CliRunner().invoke(main, ["selftest"])
    assert done.exit_code == 0, done.output
    assert [case for case in cases if f"  {title(case)}: " not in done.stdout] == []
    assert done.stdout.strip().endswith("shaders are right")
    assert set(verdicts.verdicts(selftest.verdicts_key(device)).values()) == {""}


def test_a_shader_whose_text_is_too_long_is_not_tried(device):
    assert "choose smaller tunables" in selftest.failing(Tile2D(tm=10**5), gemm(64, 64, 64), device)
