"""The stages for CPU adapters: sharing rows between lanes, B in a texture, refusals."""

import dataclasses
import itertools

import numpy as np
import pytest
from products import check, check_exactly, every_dtype, named, runs, view

from tests.sampled import crossed
from webmm.choose import candidates
from webmm.choose.cpu import field
from webmm.engine.launches import MAX_SCRATCH
from webmm.engine.timing import submit
from webmm.kernels.base import Capabilities
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import DEPTH, CpuTexture, PackB
from webmm.problems.gemm import gemm
from webmm.wgsl.naga import translate
from webmm.wgsl.render import render

STAGES = [CpuLanes, CpuTexture]
both = pytest.mark.parametrize("cls", STAGES, ids=named)
LAYOUTS = [(ta, tb) for ta in (False, True) for tb in (False, True)]


def with_lanes_of(device, cls, **settings):
    """Return the stage with its default number of lanes, or the device's if that is smaller."""
    return cls(lanes=min(cls().lanes, device.capabilities.subgroup_size), **settings)


def test_the_subgroup_size_was_probed(device):
    if "subgroup" in device.capabilities.features:
        size = device.capabilities.subgroup_size
        assert 4 <= size <= 128
        assert size & (size - 1) == 0
    else:
        assert device.capabilities.subgroup_size == 0


# Whole tiles, edges in vec4, edges in single elements, several tiles each way, the smallest, the skinny.
SHAPES = [(16, 64, 4), (32, 128, 8), (36, 68, 12), (33, 65, 5), (50, 130, 31), (1, 1, 1), (1, 300, 77), (300, 1, 77)]


@pytest.mark.parametrize(("cls", "dtype"), crossed(STAGES, ["float32", "float16"]), ids=named)
def test_layouts_and_batches(device, cls, dtype):
    kernel = with_lanes_of(device, cls, tm=16, tn=8)
    # Every shape with one of the layouts, with another one in the other dtype and stage.
    for i, (m, n, k) in enumerate(SHAPES):
        ta, tb = LAYOUTS[(i + (dtype == "float16") + 2 * (cls is CpuTexture)) % 4]
        gaps = {"pads": (4, 8, 4), "offsets": (8, 4, 12)} if n % 4 == 0 else {"pads": (3, 1, 2), "offsets": (1, 2, 3)}
        problem = view(m, n, k, dtype, batch=2, ta=ta, tb=tb, **gaps)
        if runs(device, kernel, problem):
            check(device, kernel, problem)


@both
def test_rows_not_divisible_by_lanes(device, cls):
    # Fewer rows than lanes, as many, and several per lane.
    for lanes in (1, 2, 4, 8):
        for tm in (1, lanes, 16):
            kernel = cls(lanes=lanes, tm=tm, tn=4)
            if kernel.invalid() is None and runs(device, kernel, gemm(19, 37, 11)):
                check(device, kernel, gemm(19, 37, 11))


@both
def test_k_of_100_003(device, cls):
    for shape in ((3, 5, 100_003), (17, 34, 100_003)):
        problem = gemm(*shape)
        kernel = with_lanes_of(device, cls)
        assert runs(device, kernel, problem)
        check_exactly(device, kernel, problem)


def test_layers_of_a_deep_b(device):
    for k in (DEPTH - 1, DEPTH, DEPTH + 1, DEPTH + 4, 2 * DEPTH, 2 * DEPTH + 3):
        problem = view(5, 9, k, batch=3, pads=(1, 2, 3))
        check_exactly(device, with_lanes_of(device, CpuTexture), problem)


def test_a_reused_texture_is_filled_again(device):
    # Both products share a texture: 13 and 16 columns, 6 and 8 rows take the same texels. The padding of the smaller B
    # must not contain elements of the larger one.
    kernel = with_lanes_of(device, CpuTexture)
    large, small = gemm(9, 16, 8), gemm(9, 13, 6)
    assert kernel.scratch(large) == kernel.scratch(small)
    with (
        device.array(np.full((9, 8), np.nan, np.float32)) as a,
        device.array(np.full((8, 16), np.inf, np.float32)) as b,
        device.empty((9, 16)) as c,
    ):
        device.run(kernel, large, a, b, c)
        assert np.isnan(c.numpy()).all()
    check(device, kernel, small)
    check(device, kernel, large)


def test_every_call_reads_b_again(device):
    kernel = with_lanes_of(device, CpuTexture)
    with device.array(np.eye(8, dtype=np.float32)) as a, device.empty((8, 8)) as b, device.empty((8, 8)) as c:
        launch = device.launch(kernel, gemm(8, 8, 8), a, b, c)
        for value in (1.0, 2.0):
            device.wgpu_device.queue.write_buffer(b.storage.buffer, 0, np.full((8, 8), value, np.float32))
            submit(device, launch)
            assert (c.numpy() == value).all()


def test_launches_share_their_textures(device):
    kernel, problem = with_lanes_of(device, CpuTexture), gemm(8, 12, 16)
    with (
        device.empty((8, 16)) as a,
        device.empty((16, 12)) as b,
        device.empty((8, 12)) as c,
        device.empty((16, 12)) as d,
    ):
        device.launch(kernel, problem, a, b, c)
        before = set(device.launches.scratch)
        device.launch(kernel, problem, a, d, c)
        assert set(device.launches.scratch) == before
        for n in range(4, 4 * 24, 4):
            device.launch(kernel, gemm(1, n, 1), a, b, c)
        assert len(device.launches.scratch) <= MAX_SCRATCH
        # Nothing references the memory of evicted textures.
        bound = {left for each in device.launches.kept.values() for left in each.kernel.scratch(each.problem)}
        assert bound <= set(device.launches.scratch)
        textures = {part for key in device.launches.bindings.groups for part in key if hasattr(part, "texture")}
        assert textures
        assert textures <= set(device.launches.scratch.values())


def refusal(device, kernel, problem, **limits):
    limited = {name.replace("_", "-"): value for name, value in limits.items()}
    capabilities = dataclasses.replace(device.capabilities, name="it", limits=device.capabilities.limits | limited)
    return kernel.check(problem, capabilities)


def test_a_b_that_exceeds_texture_limits_is_refused(device):
    kernel = with_lanes_of(device, CpuTexture)
    check_it = lambda problem, **limits: refusal(device, kernel, problem, **limits)  # noqa: E731
    side = {"max_texture_dimension_2d": 8192}
    assert check_it(gemm(1, 4 * 8192, 3), **side) is None
    assert check_it(gemm(1, 4 * 8192 + 1, 3), **side) == "needs 8,193 texels along a side of b_texture, it has 8,192"
    layers = {"max_texture_array_layers": 4}
    assert check_it(gemm(1, 4, 4 * DEPTH), **layers) is None
    assert check_it(gemm(1, 4, 4 * DEPTH + 1), **layers) == "needs 5 layers of b_texture, it has 4"
    assert check_it(gemm(1, 4, 4, batch=5), **layers) == "needs 5 layers of b_texture, it has 4"
    reason = check_it(gemm(4, 4096, 4096), max_buffer_size=2**26 - 1)
    assert reason == "needs 67,108,864 bytes in b_texture, it has 67,108,863"
    assert CpuLanes(lanes=kernel.lanes).check(gemm(1, 4 * 8192 + 1, 3), device.capabilities) is None


@both
def test_too_small_subgroups_are_refused(device, cls):
    for have, words in ((0, "none"), (4, "4")):
        capabilities: Capabilities = dataclasses.replace(device.capabilities, name="it", subgroup_size=have)
        assert cls(lanes=8).check(gemm(1, 1, 1), capabilities) == f"needs subgroups of 8 lanes, it has {words}"


def test_limits_of_preceding_kernels_are_checked(device):
    # The copy of B takes a row of workgroups per 8 rows of it.
    reason = refusal(
        device, with_lanes_of(device, CpuTexture), gemm(1, 1, 8 * 1000 + 1), max_compute_workgroups_per_dimension=1000
    )
    assert reason == "needs 1,001 workgroups in one dimension, it has 1,000"


@every_dtype
def test_the_packing_kernel_is_valid_wgsl(device, dtype):
    del device
    for problem in (gemm(8, 8, 8, dtype=dtype), gemm(8, 7, 5, dtype=dtype, transpose_b=True)):
        translate(render(PackB(), problem).wgsl, f"pack_b {dtype}")


@both
def test_each_dialect_enables_subgroups(cls):
    tint, naga = (render(cls(), gemm(8, 8, 8), dialect) for dialect in ("tint", "naga"))
    assert "enable subgroups;" in tint.wgsl
    assert "subgroups" in tint.features
    assert "enable subgroups;" not in naga.wgsl
    assert "subgroup" in naga.features


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_kernels_chosen_for_a_cpu_can_run_there(device, lanes):
    if device.info.kind != "cpu":
        pytest.skip("these kernels are chosen for CPUs")
    engine = dataclasses.replace(device.capabilities, subgroup_size=lanes)
    for m, n, k in itertools.product((1, 3, 16, 33, 200, 1024), repeat=3):
        for kernel in field(gemm(m, n, k), lanes):
            assert kernel.check(gemm(m, n, k), engine) is None
            assert kernel.subgroup == lanes
    assert list(field(gemm(64, 64, 64), 0)) == []


def test_a_cpu_with_subgroups_gets_a_kernel_made_for_it(device, monkeypatch):
    if device.info.kind != "cpu":
        pytest.skip("these kernels are chosen for CPUs")
    monkeypatch.setattr("webmm.choose.tuned.nearest", lambda *_: [])
    shapes = [(64, 64, 64), (512, 512, 512), (251, 251, 251)]
    chosen = {shape: type(next(iter(candidates(gemm(*shape), device)))) for shape in shapes}
    assert chosen == {(64, 64, 64): CpuLanes, (512, 512, 512): CpuTexture, (251, 251, 251): CpuTexture}
