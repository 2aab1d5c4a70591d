"""The stage that distributes fragments by subgroup shuffles: any arrangement of lanes, both dialects, refusals."""

import dataclasses

import pytest
from products import check_exactly, runs

from tests.sampled import crossed
from webmm.choose import candidates, choose, suited
from webmm.errors import UnsupportedError
from webmm.kernels.gemm.subgroup import Subgroup
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.tree import Alone
from webmm.measure import selftest
from webmm.problems.gemm import gemm
from webmm.problems.reduce import reduction
from webmm.wgsl import naga
from webmm.wgsl.render import render

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@pytest.mark.parametrize(("lanes", "ly"), crossed([4, 8], [1, 2, 4, 8]))
def test_every_arrangement_of_lanes(device, lanes, ly):
    # More rows of A than lanes, equally many, and fewer; likewise vec4 of B.
    for tm, tn in ((4, 4), (8, 8), (4, 16)):
        kernel = Subgroup(lanes=lanes, ly=ly, tm=tm, tn=tn, group=1)
        problem = gemm(kernel.grid.tile_m + 3, kernel.grid.tile_n + 5, 10)
        if kernel.invalid() is None and runs(device, kernel, problem):
            check_exactly(device, kernel, problem)


@pytest.mark.parametrize("size", SIZES)
def test_the_stage_adapts_to_the_subgroup_size(device, size):
    it = dataclasses.replace(device.capabilities, name="it", subgroup_size=size)
    kernel = Subgroup.on(it)
    assert kernel.lanes == size
    assert kernel.check(gemm(100, 100, 100), it) is None
    fewer = dataclasses.replace(it, subgroup_size=size // 2)
    assert kernel.check(gemm(1, 1, 1), fewer) == f"needs subgroups of {size} lanes, it has {size // 2 or 'none'}"


@pytest.mark.parametrize("size", SIZES)
def test_the_shader_is_valid_for_every_subgroup_size(size, device):
    kernel = Subgroup.on(dataclasses.replace(device.capabilities, subgroup_size=size))
    for problem in (gemm(512, 512, 512), gemm(33, 35, 37, dtype="f16", transpose_a=True)):
        naga.translate(render(kernel, problem).wgsl, str(kernel))
        assert "workgroupBarrier" not in render(kernel, problem).wgsl


def test_each_dialect_enables_subgroups():
    tint, wgpu = (render(Subgroup(), gemm(8, 8, 8), dialect) for dialect in ("tint", "naga"))
    assert "enable subgroups;" in tint.wgsl
    assert "enable subgroups;" not in wgpu.wgsl
    assert (tint.features, wgpu.features) == ({"subgroups"}, {"subgroup"})


@pytest.fixture
def uncertain(device, monkeypatch):
    """Return the device as if a driver chose 4 to 64 lanes for each shader, and had chosen 64 for the probe."""
    lanes = device.capabilities.subgroup_size
    if lanes not in (4, 8, 16):
        pytest.skip("the device has none of the sizes that are played")
    played = dataclasses.replace(device.capabilities, subgroup_size=64, other_sizes=(32, 16, 8, 4))
    monkeypatch.setattr(device, "capabilities", played)
    monkeypatch.setattr(device, "choices", {})
    monkeypatch.setattr(device, "verdicts", {})
    monkeypatch.setattr("webmm.measure.selftest.keep_verdicts", lambda *_: None)
    return device, lanes


def test_a_stage_is_rendered_for_the_size_that_its_pipeline_has(uncertain):
    device, lanes = uncertain
    assert suited(Subgroup, gemm(64, 64, 64), device).lanes == lanes


def test_an_unproven_size_is_refused_whatever_the_settings(uncertain, monkeypatch):
    device, lanes = uncertain
    monkeypatch.setattr(device, "settings", dataclasses.replace(device.settings, selftest=False))
    with device.array([[1.0]], "float32") as a, device.array([[1.0]], "float32") as b, device.empty((1, 1)) as c:
        with pytest.raises(UnsupportedError, match="its subgroups may have other sizes than 32 lanes"):
            device.run(Subgroup(lanes=32), gemm(1, 1, 1), a, b, c)
        device.run(Subgroup(lanes=lanes), gemm(1, 1, 1), a, b, c)
        assert c.numpy() == 1


def test_a_refused_size_stays_refused_in_recycled_buffers(device, monkeypatch):
    """The self-test's own launch is not kept: the pool lends its buffers to the next call of the same shape."""
    lanes = 2 * device.capabilities.subgroup_size
    played = dataclasses.replace(device.capabilities, other_sizes=(lanes,))
    monkeypatch.setattr(device, "capabilities", played)
    monkeypatch.setattr(device, "verdicts", {})
    monkeypatch.setattr("webmm.measure.selftest.keep_verdicts", lambda *_: None)
    kernel = Alone(lanes, 1)
    problem = next(selftest.stand_ins(kernel, reduction(64, 64), device))
    for _ in range(5):
        x, y = device.zeros((problem.outer, problem.length, problem.inner)), device.empty((problem.results,))
        with x, y, pytest.raises(UnsupportedError):
            device.run(kernel, problem, x, y)


def test_short_rows_keep_their_stage(uncertain, monkeypatch):
    device, _ = uncertain
    monkeypatch.setattr(device, "info", dataclasses.replace(device.info, kind="discrete"))
    problem = reduction(4096, 300)
    first, second, *_ = candidates(problem, device, "off")
    assert (type(first), first.combine) == (RowTiles, "subgroup")
    assert second == dataclasses.replace(first, combine="tree")
    assert choose(problem, device, "off") == second
