"""Host time of a warm webmm call beside the same dispatch written in wgpu-py, and of calls whose shapes are new.

    python bench/overhead.py
    python bench/overhead.py --adapter llvmpipe --engine wgpu --shapes 400

Both dispatches queue the same pipeline on the same buffers. The calls alternate, and the median of each is printed. The
product is tiny, so that the host never waits for the device. With --shapes, each call has that many lengths which the
process has not seen, but whose shaders it has compiled; then the last one again as often.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import click
import numpy as np

import webmm
from webmm import Device
from webmm.kernels import KERNELS
from webmm.problems.gemm import gemm
from webmm.wgsl.render import params_bytes, render

ROUNDS = 2000


@click.command(help=__doc__)
@click.option("--adapter")
@click.option("--engine")
@click.option("--shapes", default=0, help="Time calls of so many lengths, instead of a dispatch.")
def main(adapter: str | None, engine: str | None, shapes: int) -> None:
    """Print medians of host times in µs."""
    with Device(adapter, engine=engine) as device:
        if shapes:
            new_shapes(device, shapes)
        else:
            warm(device)


def new_shapes(device: Device, count: int) -> None:
    """Print the thread's CPU time of each call with a new length, and with a known one."""
    rng = np.random.default_rng(0)
    first = 200
    longest = first + count
    a, b, tokens = (device.array(rng.standard_normal(s), "float32") for s in ((longest, 128), (128, 64), (longest, 64)))
    q, k = (device.array(rng.standard_normal((1, 4, n, 64)), "float32") for n in (1, longest))
    cases: dict[str, Callable[[int], object]] = {
        "matmul": lambda n: a[:n] @ b,
        "sum of two": lambda n: a[:n] + a[:n],
        "softmax": lambda n: webmm.softmax(a[:n]),
        "layer norm": lambda n: webmm.layer_norm(a[:n]),
        "row sums": lambda n: a[:n].sum(axis=-1),
        "attention of a query": lambda n: webmm.attention(q, k[:, :, :n], k[:, :, :n], causal="end"),
        "take of a row": lambda n: tokens.take([n - 1], axis=0),
    }
    print(f"{device.info}\n{'CPU time of the calling thread, µs':36}{'new':>8}{'known':>8}")
    for name, call in cases.items():
        for n in range(first - 20, first):
            call(n)
        new, known = (
            statistics.median(thread_times(call, ns)) for ns in (range(first, longest), [longest - 1] * count)
        )
        print(f"{name:36}{1e6 * new:8.0f}{1e6 * known:8.0f}")


def thread_times(call: Callable[[int], object], lengths: Sequence[int]) -> list[float]:
    """Return the thread's CPU seconds of a call of each length."""
    times = []
    for n in lengths:
        start = time.thread_time()
        call(n)
        times.append(time.thread_time() - start)
    return times


def warm(device: Device) -> None:
    """Print the median host time of a webmm launch and a direct one in µs, and their difference."""
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
    print(f"{device.info}: direct {wgpu_us:.1f} µs, webmm {webmm_us:.1f} µs, difference {webmm_us - wgpu_us:+.1f} µs")


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
