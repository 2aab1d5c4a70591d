"""Fault injection for one call: `python tests/gpu/faulty.py wgpu matmul` tries all points and kinds at some uses.

`--everywhere` tries all kinds at every use, of many about `MOST_USES`, under both engines; `make test-long` does.

Each call runs in a separate process: lavapipe leaks 4 MB for every lost device.
"""

import argparse
import gc
import os
import re
import traceback
from pathlib import Path

import numpy as np
import pytest
from faults import KINDS, POINTS, Fault, watched

import webmm
from webmm import Device, log
from webmm.choose import gemm
from webmm.engine.submissions import Submissions
from webmm.errors import DeviceLostError, MemoryLimitError, WebmmError
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.naive import Naive

RNG = np.random.default_rng(0)
A, B, C = (RNG.integers(-3, 4, (24, 24)).astype(np.float32) for _ in range(3))
BIAS = RNG.integers(-3, 4, 24).astype(np.float32)
BYTES = RNG.integers(0, 256, (24, 24)).astype(np.uint8)
LARGE = RNG.standard_normal((1200, 1000)).astype(np.float32)  # transferred in several pieces, each by a thread
WEIGHTS = webmm.quantize_blocks(B)


class Scene:
    """The operands of the calls, on a device and on the host."""

    def __init__(self, gpu):
        self.gpu, self.out = gpu, np.full((24, 24), -77, np.float32)
        self.given = {"a": A, "b": B, "bias": BIAS, "bytes": BYTES}
        self.a, self.b, self.bias, self.bytes = map(gpu.array, self.given.values())
        self.wide = gpu.array(np.full((40, 30), -77, np.float32))
        self.c = self.wide[8:32, 3:27]
        gpu.assign(self.wide, np.pad(C, ((8, 8), (3, 3)), constant_values=-77))
        self.weights = WEIGHTS.to(gpu)


def streamed(scene):
    memory, scene.gpu.memory = scene.gpu.memory, 2**12
    try:
        return webmm.matmul(A, B, bias=BIAS, device=scene.gpu)
    finally:
        scene.gpu.memory = memory


def synchronized(scene):
    y = webmm.gelu(scene.a)
    scene.gpu.synchronize()
    return y


CALLS = {
    "matmul": lambda s: s.a @ s.b,
    "matmul with scratch": lambda s: s.a @ s.b,
    "matmul of NumPy arrays": lambda s: webmm.matmul(A, B, device=s.gpu),
    "matmul with all": lambda s: webmm.matmul(s.a, s.b, bias=s.bias, activation="relu", residual=C, alpha=2.0),
    "matmul into out": lambda s: webmm.matmul(A, B, out=s.out, device=s.gpu),
    "streamed": streamed,
    "gemm": lambda s: webmm.gemm(s.a, s.b, s.c, beta=1.0),
    "qmatmul": lambda s: webmm.qmatmul(s.bytes, BYTES, 1.0, 3, 0.5, 7),
    "qmatmul_weights": lambda s: webmm.qmatmul_weights(s.a, s.weights),
    "reduce": lambda s: webmm.reduce(s.a, "sum", 1),
    "softmax": lambda s: webmm.softmax(s.a[:, ::2]),
    "layer_norm": lambda s: webmm.layer_norm(s.a, s.bias, s.bias),
    "rms_norm": lambda s: webmm.rms_norm(A, BIAS, device=s.gpu),
    "gelu": lambda s: webmm.gelu(s.a),
    "wait": synchronized,
    "assign": lambda s: s.gpu.assign(s.wide, s.wide.numpy()) or s.a,
    "much": lambda s: s.gpu.array(LARGE),
}
# wgpu-native aborts the process if a device is destroyed (the "lost" fault) while another thread maps a buffer.
MOVED_BY_THREADS = {"wgpu": ("streamed", "much"), "dawn": ()}
MOST_USES = 32  # of an engine call that are tried everywhere; a streamed product copies 300 times in a loop
MOST_MEMORY = 2 * 10**9  # bytes of the process
RAISED = {"out of memory": MemoryLimitError, "refused": WebmmError, "lost": DeviceLostError}


def fetch(call, scene):
    return np.asarray(CALLS[call](scene))


def faults(engine, call, uses, everywhere=False):
    """Yield (point, kind, nth) for every use, of many every so many; or the first and the last by turns.

    Under Dawn, whose drivers are slower, each call has one fault per point; all calls combined cover every kind.
    """
    for i, (point, count) in enumerate(uses.items()):
        for j, kind in enumerate(KINDS):
            some = {1 if kind == "late" or (i + j) % 2 else count}
            if engine == "dawn":
                some = {count} if kind == KINDS[(i + list(CALLS).index(call)) % len(KINDS)] else set()
            if everywhere:
                some = set(range(1, count + 1, max(1, count // MOST_USES))) | {count}
            if not (kind == "lost" and call in MOVED_BY_THREADS[engine]):
                yield from ((point, kind, nth) for nth in sorted(some & set(range(1, count + 1))))


def try_all(engine, call, monkeypatch, everywhere=False, only=None):
    """Check that the call ends as documented under each fault, or only that one, and return the number of faults."""
    # Every fault opens a device and compiles: use the kernel that compiles fastest, or one with scratch memory.
    kernels = [CpuTexture(lanes=4, tm=1, tn=4)] * (call == "matmul with scratch") + [Naive()]
    monkeypatch.setattr(gemm, "candidates", lambda problem, device: kernels)
    monkeypatch.setattr(log.choice, "disabled", True)  # every injected error would be logged
    # The background thread would make the number of uses vary, and abort the process by submitting to a lost device.
    monkeypatch.setattr(Submissions, "check", lambda submissions: False)
    with Device(engine=engine) as gpu:  # the first call runs the self-test
        right = fetch(call, Scene(gpu))
    with Device(engine=engine) as gpu:
        scene = Scene(gpu)
        with monkeypatch.context() as patch:
            counted = {point: Fault(patch, engine, point) for point in POINTS}
            fetch(call, scene)
        kept = kept_bytes(gpu)
    gc.freeze()  # the collections after each fault need not visit modules
    attempts = list(faults(engine, call, {point: each.uses for point, each in counted.items()}, everywhere))
    for point, kind, nth in only or attempts:
        if everywhere:  # the last line says where a process died
            print(f"{call}: {kind} at use {nth} to {point}", flush=True)
        check(engine, call, point, kind, nth, right, kept, monkeypatch)
        if kind == "lost":
            gc.collect()  # destructors of objects left by the error run now, not during a later call
    return len(only or attempts)


def check(engine, call, point, kind, nth, right, kept, monkeypatch):
    """Check that the call ends as documented, leaves no partial writes or memory, and succeeds if repeated."""
    words = f"{call}: {kind} at use {nth} to {point}"
    gpu = Device(engine=engine)  # not a context manager: closing would wait for a thread that hangs
    scene = Scene(gpu)
    with monkeypatch.context() as patch:
        fault = Fault(patch, engine, point, kind, nth)
        got = watched(lambda: fetch(call, scene), words)
    if not fault.triggered:
        assert call == "streamed", words  # its threads decide how often it copies
        kind = "late"
    if isinstance(got, Exception):
        assert kind != "late", f"{words}: {got!r}"
        assert isinstance(got, RAISED[kind]), f"{words}: {got!r}"
    else:
        assert np.array_equal(got, right), words
    assert bool(gpu.lost) == (kind == "lost"), words
    if not gpu.lost:
        del got
        assert kept_bytes(gpu) <= kept, f"{words}: memory is leaked"
        check_operands(scene, call, right, words)
        again = watched(lambda: fetch(call, Scene(gpu)), f"{words}, and again")
        assert np.array_equal(again, right), f"{words}, and again: {again!r}"
    gpu.close()


def kept_bytes(gpu):
    gc.collect()
    return gpu.memory_stats().array_bytes


def check_operands(scene, call, right, words):
    """Check that operands are unchanged, and results complete or untouched."""
    for name, host in scene.given.items():
        assert np.array_equal(getattr(scene, name).numpy(), host), f"{words}: {name} changed"
    wide = scene.wide.numpy()
    assert any(np.array_equal(wide[8:32, 3:27], c) for c in (C, *[right] * (call == "gemm"))), f"{words}: c"
    wide[8:32, 3:27] = -77
    assert (wide == -77).all(), f"{words}: around c"
    assert (scene.out == -77).all() or (call == "matmul into out" and np.array_equal(scene.out, right)), f"{words}: out"


def most_memory():
    """Return the peak memory of this process in bytes (getrusage() includes the parent's)."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def main():
    """Try a call, and print the number of faults, or the failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine")
    parser.add_argument("call", choices=CALLS)
    parser.add_argument("--everywhere", action="store_true", help="at every use, under Dawn as well")
    parser.add_argument("--only", nargs=3, metavar=("POINT", "KIND", "USE"), help="such as: map lost 2")
    options = parser.parse_args()
    only = options.only and [(*options.only[:2], int(options.only[2]))]
    with pytest.MonkeyPatch.context() as monkeypatch:
        count = try_all(options.engine, options.call, monkeypatch, options.everywhere, only)
    memory = most_memory()
    assert memory < MOST_MEMORY, f"the process took {memory:,} bytes"
    print(count, "faults", flush=True)


if __name__ == "__main__":
    try:
        main()
    except AssertionError:
        traceback.print_exc()
        os._exit(1)  # a thread that hangs would keep the process alive
