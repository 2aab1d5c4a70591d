"""A lost device, or one without memory: typed errors that quote the driver, no partial writes, recovery."""

import dataclasses
import gc
import re
import threading

import numpy as np
import pytest

import webmm
from webmm import Device, choose
from webmm.engine.device import default_device
from webmm.engine.engine import Mapped
from webmm.engine.wgpu import Wgpu
from webmm.errors import DeviceLostError, MemoryLimitError, ShaderError, WebmmError
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.problems.gemm import gemm
from webmm.wgsl.render import Binding

ONES = np.ones((20, 20), np.float32)


def lose(device):
    device.wgpu_device.destroy()


USES = {
    "download": lambda gpu, x, big: x.numpy(),
    "download of much": lambda gpu, x, big: big.numpy(),
    "upload": lambda gpu, x, big: gpu.array(ONES),
    "upload of much": lambda gpu, x, big: gpu.array(np.ones((1000, 1000), np.float32)),
    "assign": lambda gpu, x, big: gpu.assign(big, np.ones((700, 700), np.float32)),
    "empty": lambda gpu, x, big: gpu.empty((4,)),
    "product": lambda gpu, x, big: x @ x.T,
    "run": lambda gpu, x, big: gpu.run(Tile2D(), gemm(20, 20, 20), x, x, big),
    "launch": lambda gpu, x, big: gpu.launch(Tile2D(), gemm(10, 10, 10), x, x, big),
    "compile": lambda gpu, x, big: gpu.compile("fn main() {}", "k", (Binding(0, "x", "storage", "array<f32>"),)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_use_of_a_lost_device_raises(use):
    with Device() as gpu:
        x, big = gpu.array(ONES), gpu.empty((700, 700))
        gpu.launch(Tile2D(), gemm(20, 20, 20), x, x, big)
        lose(gpu)
        with pytest.raises(
            DeviceLostError, match=r"was lost while .*the driver says: .*([Ll]ost|destroyed).*upload them again"
        ):
            use(gpu, x, big)
        assert gpu.info.name in gpu.lost
        with pytest.raises(DeviceLostError, match="was lost while"):
            x.numpy()
        assert repr(x) == "<webmm.Array 20x20 float32 lost>"
        x.free()
        del big
        gc.collect()


def test_a_device_lost_while_staging_buffers_are_mapped():
    much = np.ones((1000, 1000), np.float32)
    with Device() as gpu:
        x = gpu.array(much)
        assert x.numpy()[-1, -1] == 1
        lose(gpu)
        for use in (lambda: gpu.assign(x, much), x.numpy):
            with pytest.raises(DeviceLostError, match="was lost while"):
                use()


def test_waiting_for_a_lost_device_ends(monkeypatch):
    """If the device is lost while a buffer is being mapped, the mapping may never complete."""

    def never(engine, buffer, mode, size):
        type(buffer._device).destroy(buffer._device)  # as a driver would: webmm's destroy() waits for this use
        return Mapped(buffer, mode, size)

    errors = []

    def work():
        with Device() as gpu:
            x = gpu.array(ONES)
            monkeypatch.setattr(Wgpu, "map", never)
            try:
                x.numpy()
            except DeviceLostError as error:
                errors.append(str(error))

    waiting = threading.Thread(target=work, daemon=True)
    waiting.start()
    waiting.join(20)
    assert not waiting.is_alive(), "it hangs"
    assert "was lost while downloading" in errors[0]


def test_the_default_device_is_replaced_when_it_is_lost():
    first = default_device()
    old = first.array(ONES)
    lose(first)
    with pytest.raises(DeviceLostError):
        webmm.matmul(ONES, ONES)
    assert webmm.matmul(ONES, ONES)[0, 0] == 20
    assert default_device() is not first
    assert default_device() is default_device()
    for stale in (lambda: old.numpy(), lambda: old @ old, lambda: webmm.matmul(old, ONES)):
        with pytest.raises(DeviceLostError, match="was lost while"):
            stale()


def test_every_use_of_a_closed_device_raises():
    gpu = Device()
    x = gpu.array(ONES)
    gpu.close()
    gpu.close()
    for use in (x.numpy, lambda: gpu.array(ONES), gpu.synchronize):
        with pytest.raises(DeviceLostError, match="was closed"):
            use()
    x.free()


def test_other_engine_errors_are_not_device_losses(device):
    encoder, buffer = device.wgpu_device.create_command_encoder(), device.empty((16,)).storage.buffer
    encoder.copy_buffer_to_buffer(buffer, 0, buffer, 0, 64)
    with pytest.raises(WebmmError) as error, device.using("copying"):
        encoder.finish()
    assert not isinstance(error.value, DeviceLostError)
    assert device.lost == ""
    with pytest.raises(RuntimeError, match="mine"), device.using("mapping"):
        raise RuntimeError("mine")


def test_an_error_that_says_so_is_a_loss(monkeypatch):
    """Dawn may tell another thread, which asks at the same time."""
    with Device() as gpu:
        monkeypatch.setattr(gpu.engine, "is_lost", lambda device: False)
        with pytest.raises(WebmmError) as quoted, gpu.guard.using("compiling"):
            raise gpu.engine.api.GPUError("unexpected token: // [Device] is lost")
        assert not isinstance(quoted.value, DeviceLostError)
        with pytest.raises(DeviceLostError, match="was lost while uploading"), gpu.guard.using("uploading"):
            raise gpu.engine.api.GPUError("[Device] is lost.\n - While calling WriteBuffer")
        with pytest.raises(DeviceLostError):
            gpu.zeros((2, 2))


def test_another_kernel_is_used_if_scratch_cannot_be_allocated(monkeypatch):
    a = np.arange(70 * 30, dtype=np.float32).reshape(70, 30) % 7
    with Device() as gpu:
        monkeypatch.setattr(choose, "candidates", lambda *_: {CpuTexture(lanes=4): "", Tile2D(): ""})
        monkeypatch.setattr(CpuTexture, "check", lambda *_: None)

        def full(left):
            raise MemoryLimitError(f"allocating {left}: the device is out of memory")

        monkeypatch.setattr(gpu.launches, "scratch_for", full)
        x = gpu.array(a)
        assert np.array_equal((x @ x.T).numpy(), a @ a.T)
        assert set(map(type, gpu.choices.values())) == {Tile2D}


def test_nothing_is_written_if_memory_runs_out(monkeypatch):
    with Device() as gpu:
        x, c = gpu.array(ONES), gpu.array(ONES * 3)
        monkeypatch.setattr(gpu.launches, "get", lambda *_: (_ for _ in ()).throw(MemoryLimitError("full")))
        with pytest.raises(MemoryLimitError):
            webmm.gemm(x, x, c)
        monkeypatch.undo()
        assert np.array_equal(c.numpy(), ONES * 3)
        assert np.array_equal((x @ x).numpy(), ONES * 20)


def test_a_refused_kernel_is_named_with_its_parameters_and_source(monkeypatch):
    with Device() as gpu:
        true = gpu.shader
        monkeypatch.setattr(
            gpu, "shader", lambda *args: dataclasses.replace(s := true(*args), wgsl=s.wgsl + "\nnonsense")
        )
        x, c = gpu.array(ONES), gpu.empty((20, 20))
        kernel = Tile2D(tm=2)
        with pytest.raises(ShaderError) as error:
            gpu.run(kernel, gemm(20, 20, 20), x, x, c)
    assert str(error.value).startswith(f"{kernel} was refused by the engine")
    assert "tm=2" in str(error.value)
    assert re.search(r"\n  line \d+: nonsense\n", str(error.value))
