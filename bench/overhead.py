"""What a warm call through webmm costs on the host, beside the same dispatch written directly in wgpu-py.

    python bench/overhead.py

Both queue the same pipeline on the same buffers; the calls alternate, the median of each is printed. The product is
tiny, so that the device is never what is waited for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from webmm import Device
from webmm.kernels import KERNELS
from webmm.problems.gemm import gemm
from webmm.render import params_bytes, render

ROUNDS = 2000


def main() -> None:
    """Print the median host time of both in µs, and their difference."""
    with Device() as device:
        problem, kernel = gemm(64, 64, 64), KERNELS["tile_2d"]()
        a, b = (device.array(np.ones((64, 64), np.float32)) for _ in range(2))
        c = device.empty((64, 64))

        gpu = device.wgpu_device
        shader = render(kernel, problem)
        pipeline = device.compile(shader.wgsl, "direct", shader.bindings)
        uniform = gpu.create_buffer_with_data(data=params_bytes(kernel, problem), usage="UNIFORM")
        group = device.bind(pipeline, [uniform, *(x.storage.buffer for x in (a, b, c))])
        grid = kernel.grid.dispatch(problem)

        def direct() -> None:
            encoder = gpu.create_command_encoder()
            compute_pass = encoder.begin_compute_pass()
            compute_pass.set_pipeline(pipeline)
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(*grid)
            compute_pass.end()
            gpu.queue.submit([encoder.finish()])

        def ours() -> None:
            device.run(kernel, problem, a, b, c)

        times = alternate(device, direct, ours)
        plain, wrapped = (statistics.median(t) * 1e6 for t in times)
        print(f"{device.info}: direct {plain:.1f} µs, webmm {wrapped:.1f} µs, difference {wrapped - plain:+.1f} µs")


def alternate(device: Device, *calls: Callable[[], None]) -> list[list[float]]:
    """Return host seconds of each call, taken in turns; the queue is drained between them."""
    times: list[list[float]] = [[] for _ in calls]
    for i in range(ROUNDS + 100):
        for call, seconds in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            elapsed = time.perf_counter() - start
            device.synchronize()
            if i >= 100:
                seconds.append(elapsed)
    return times


if __name__ == "__main__":
    main()
