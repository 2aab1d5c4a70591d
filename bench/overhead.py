"""Host time of a warm webmm call, compared with the same dispatch written directly in wgpu-py.

    python bench/overhead.py

Both queue the same pipeline on the same buffers. The calls alternate, and the median of each is printed. The product is
tiny, so that the host never waits for the device.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from webmm import Device
from webmm.kernels import KERNELS
from webmm.problems.gemm import gemm
from webmm.wgsl.render import params_bytes, render

ROUNDS = 2000


def main() -> None:
    """Print the median host time of both calls in µs, and their difference."""
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
            compute_pass.set_bind_group(0, group, [0])
            compute_pass.dispatch_workgroups(*grid)
            compute_pass.end()
            gpu.queue.submit([encoder.finish()])

        def by_webmm() -> None:
            device.run(kernel, problem, a, b, c)

        wgpu_us, webmm_us = (statistics.median(times) * 1e6 for times in alternate(device, direct, by_webmm))
        print(
            f"{device.info}: direct {wgpu_us:.1f} µs, webmm {webmm_us:.1f} µs, difference {webmm_us - wgpu_us:+.1f} µs"
        )


def alternate(device: Device, *calls: Callable[[], None]) -> list[list[float]]:
    """Return the host seconds of the calls, measured alternately; the queue is drained after each call."""
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
