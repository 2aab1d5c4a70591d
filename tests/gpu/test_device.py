"""Devices: choice of the adapter, caching of pipelines and launches, threads, and refusals."""

import os
import threading

import numpy as np
import pytest
from products import check_exactly, exact, small, whole_numbers

import webmm
from webmm import Device
from webmm.engine.bindings import ALIGNMENT
from webmm.engine.launches import MAX_LAUNCHES
from webmm.engine.transfer import LEAST
from webmm.errors import ConfigError, DeviceLostError, ShaderError
from webmm.kernels import LADDER
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.problems.gemm import gemm
from webmm.wgsl.render import Binding


def test_the_ci_adapter_has_every_wanted_feature(device):
    # Without f16, half of the tests would only check a refusal.
    if os.environ.get("CI"):
        assert device.capabilities.features == set(device.engine.wanted)


def test_an_unknown_adapter_lists_the_known_ones(device):
    with pytest.raises(ConfigError, match="no adapter matches 'no such adapter'; the adapters are 0: ") as error:
        Device("no such adapter")
    assert device.info.name in str(error.value)


def test_an_adapter_is_chosen_by_environment_index_and_name(device, monkeypatch):
    for wanted in (device.info.index, device.info.name, device.info.kind):
        with Device(wanted) as other:
            assert str(other.info) == str(device.info)
    monkeypatch.setenv("WEBMM_ADAPTER", "no such adapter")
    with pytest.raises(ConfigError, match="no such adapter"):
        Device()


def test_limits_are_those_of_the_adapter(device):
    # Kernels and arrays are checked against these limits; an engine grants lower ones unless asked.
    sizes = ["max-buffer-size", "max-storage-buffer-binding-size"]
    for name in [*sizes, *(name for name in device.capabilities.limits if name.startswith("max-compute-"))]:
        assert device.capabilities.limits[name] == device.wgpu_device.limits[name], name
    assert set(device.capabilities.features) <= set(device.wgpu_device.features)


def test_every_stage_can_run_with_defaults(device):
    for cls in LADDER:
        assert cls().check(gemm(100, 100, 100), device.capabilities) is None, cls.name


def test_pipelines_and_launches_are_reused():
    kernel, problem = Shared(8), gemm(20, 21, 22)
    with (
        Device() as device,
        device.empty((20 * 22,)) as a,
        device.empty((22 * 21,)) as b,
        device.empty((20 * 21,)) as c,
        device.empty((20 * 21,)) as d,
    ):
        assert device.pipelines.compilations == 0
        launch = device.launch(kernel, problem, a, b, c)
        assert device.pipelines.compilations == 1
        assert device.launch(kernel, problem, a, b, c) is launch
        other = device.launch(kernel, problem, a, b, d)
        assert other is not launch
        assert other.pipeline is launch.pipeline
        # Shapes of the same specialisation share the shader; another specialisation has another shader.
        assert device.launch(kernel, gemm(12, 13, 14), a, b, c).pipeline is launch.pipeline
        assert device.pipelines.compilations == 1
        device.launch(kernel, gemm(16, 16, 16), a, b, c)
        assert device.pipelines.compilations == 2


def test_the_number_of_cached_launches_is_bounded(device):
    with device.empty((4096,)) as a, device.empty((4096,)) as b, device.empty((4096,)) as c:
        for k in range(1, MAX_LAUNCHES + 50):
            device.run(Naive(), gemm(1, 1, k), a, b, c)
        assert len(device.launches.kept) <= MAX_LAUNCHES
        assert len(device.launches.bindings.uniforms) <= MAX_LAUNCHES
    # The first launches were evicted, and are created again.
    check_exactly(device, Naive(), gemm(1, 1, 1))


def test_a_buffer_forgets_evicted_launches(device):
    # Weights outlive the results of their products.
    device.trim()  # else `a` may get a buffer of an earlier test, with launches that bind a buffer that `b` gets
    with device.empty((4096,)) as a, device.empty((4096,)) as b:
        for _ in range(3):
            with device.empty((4096,)) as c:
                device.run(Naive(), gemm(1, 1, 1), a, b, c)
        device.trim()
        assert not a.storage.block.launches
        with device.empty((4096,)) as c:
            for k in range(1, MAX_LAUNCHES + 50):
                device.run(Naive(), gemm(1, 1, k), a, b, c)
            assert len(a.storage.block.launches) <= MAX_LAUNCHES


def test_problems_of_other_sizes_share_a_bind_group(device, monkeypatch):
    bindings, bind, made = device.launches.bindings, device.bind, []
    a, b, c = (device.array(np.full(4096, x, np.float32)) for x in (2, 3, 0))
    device.run(Naive(), gemm(1, 1, 1), a, b, c)
    bound = len(bindings.groups)
    monkeypatch.setattr(device, "bind", lambda *given: made.append(given) or bind(*given))
    for k in (2, 3, 5, 7):
        device.run(Naive(), gemm(1, 1, k), a, b, c)
        assert c[0].numpy() == 6 * k
    assert len(made) <= 1, "another buffer of uniforms may have begun"
    monkeypatch.setattr("webmm.engine.bindings.MAX_GROUPS", 2)
    with device.empty((4096,)) as d, device.empty((4096,)) as e:
        for out in (d, e, d):
            device.run(Naive(), gemm(1, 1, 4), a, b, out)
        assert len(bindings.groups) <= max(2, bound)
        assert d[0].numpy() == e[0].numpy() == 24
        blocks = [x.storage.block for x in (d, e)]
    device.trim()
    assert not any(block in found for block in blocks for _, found in bindings.groups.values())
    assert not any(block.groups for block in blocks)


def test_uniforms_of_queued_dispatches_stay(monkeypatch):
    # More of them than a buffer holds, and than are cached, before the first dispatch has run.
    monkeypatch.setattr("webmm.engine.bindings.CHUNK", 4 * ALIGNMENT)
    monkeypatch.setattr("webmm.engine.bindings.MAX_UNIFORMS", 3)
    with Device() as device:
        one = device.array(np.ones((1, 1), np.float32))
        with device.submissions.held():
            found = [webmm.matmul(one, one, alpha=float(i)) for i in range(14)]
        assert len(device.launches.bindings.uniforms) == 3
        assert [float(x.numpy()[0, 0]) for x in found] == [*range(14)]


def test_threads_share_a_device(device):
    problems = [gemm(30 + i, 40 - i, 20 + i) for i in range(4)]
    failures = []

    def work(problem, kernel):
        try:
            a, b = whole_numbers(problem)
            expected = exact(problem, a, b)
            for _ in range(25):
                with device.array(a) as x, device.array(b) as y, device.empty((problem.m, problem.n)) as z:
                    device.run(kernel, problem, x, y, z)
                    assert np.array_equal(z.numpy(), expected[0]), problem
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(problem, kernel)) for problem in problems for kernel in (Naive(), Tile2D())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert not failures, failures[0]


def test_dispatches_run_in_order(device):
    # Each product reads the result of the previous one; only the queue orders them.
    problem = gemm(16, 16, 16)
    step = np.roll(np.eye(16, dtype=np.float32), 1, axis=1)
    with device.array(np.eye(16, dtype=np.float32)) as x, device.array(step) as b, device.empty((16, 16)) as y:
        for _ in range(50):
            device.run(Shared(), problem, x, b, y)
            device.run(Shared(), problem, y, b, x)
        assert np.array_equal(x.numpy(), np.linalg.matrix_power(step, 100))


def test_a_refused_shader_is_quoted_with_its_line(device):
    wgsl = "@compute @workgroup_size(1)\nfn main() {\n    nonsense;\n}"
    with pytest.raises(ShaderError, match=r"(?s)broken was refused by the engine: line 3: .*\n  line 3: nonsense;\n"):
        device.compile(wgsl, "broken", (Binding(0, "x", "storage", "array<f32>"),))
    check_exactly(device, Naive(), gemm(3, 3, 3))  # the device still works


def test_queued_launches_share_partial_sums(device):
    # Equal sizes, so that launches of all threads share one buffer for split_k's partial sums.
    kernel, problem, failures = small(SplitK, slices=1, splits=2), gemm(33, 36, 70), []
    a, b = whole_numbers(problem)
    expected = exact(problem, a, b)[0]

    def work(factor):
        try:
            with device.array(a * factor) as x, device.array(b) as y:
                results = [device.empty((problem.m, problem.n)) for _ in range(20)]
                for z in results:
                    device.run(kernel, problem, x, y, z)
                failures.extend(z for z in results if not np.array_equal(z.numpy(), factor * expected))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_transfers_during_close_raise(monkeypatch):
    device = Device()
    array, close = device.array(np.zeros(4 * LEAST, np.float32)), device.staging.close

    def move():
        close()
        for use in (array.numpy, lambda: device.assign(array, np.ones(array.shape, np.float32))):
            with pytest.raises(DeviceLostError, match="was closed"):
                use()

    monkeypatch.setattr(device.staging, "close", move)
    device.close()


@pytest.mark.parametrize("value", [-1, 0, 1.5, "x", None, True])
def test_invalid_limits_are_refused(value):
    with pytest.raises(ConfigError, match="the limit max-buffer-size must be a whole number from 1 on, not"):
        Device(limits={"max-buffer-size": value})
