"""Ten thousand rounds of allocate, compute and free hold memory flat, on the host and on the device."""

import gc

import numpy as np
import psutil

from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.problems.gemm import gemm

ROUNDS = 10_000
PROBLEM = gemm(64, 64, 16)
GROWTH = 24 * 2**20  # bytes; a round that kept its 24 KiB of arrays would add 240 MB, one that kept 4 KiB 40 MB


def round_trip(device, a, b):
    with device.array(a) as x, device.array(b) as y, device.empty((64, 64)) as z:
        device.run(Workgroup2D(), PROBLEM, x, y, z)
        return z.numpy()


def test_memory_stays_flat(device):
    process = psutil.Process()  # the device memory of a CPU adapter is this process's, too
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 9, (64, 16)).astype(np.float32), rng.integers(-8, 9, (16, 64)).astype(np.float32)
    expected = a @ b
    for _ in range(1000):
        round_trip(device, a, b)
    gc.collect()
    launches, uniforms, before = len(device.launches.kept), len(device.launches.uniforms), process.memory_info().rss
    for i in range(ROUNDS):
        got = round_trip(device, a, b)
        if i % 1000 == 0:
            assert np.array_equal(got, expected)
    gc.collect()
    after = process.memory_info().rss
    assert (len(device.launches.kept), len(device.launches.uniforms)) == (launches, uniforms)
    assert after - before < GROWTH, f"{ROUNDS:,} rounds grew the process from {before:,} to {after:,} bytes"


def test_arrays_larger_than_memory_pass_through_it(device):
    # 200 × 64 MiB = 12.5 GiB in turn, on a device that could not hold them at once.
    for _ in range(200):
        device.empty((2**24,)).free()
    for _ in range(200):
        device.empty((2**24,))  # left to the garbage collector
    gc.collect()
    with device.empty((2**24,)) as array:
        assert array.nbytes == 2**26
