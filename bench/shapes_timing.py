"""Timing of kernels and peers on the problems of `shapes.py`.

On a GPU, a candidate is timed in passes of several dispatches between two timestamps, a peer as a CUDA graph of ten
calls. On a CPU, which other programs use as well, all candidates run one after another, several times, and the best
time of each counts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time as clock
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.synchronize import Lock
from typing import Any

import numpy as np
import peers

from webmm import Device
from webmm.cases import op_of
from webmm.engine import timing
from webmm.engine.device import Array
from webmm.engine.launch import Launch
from webmm.engine.timing import Timing
from webmm.errors import WebmmError
from webmm.kernels.base import Kernel
from webmm.measure import roofline
from webmm.measure.bench import record_of
from webmm.measure.records import Record
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm
from webmm.problems.reduce import Reduction

COPY = "copy"  # name of the peer that copies as many bytes as the problem must move
REPEATS = 10  # dispatches between two timestamps, and calls in a CUDA graph
MIN_PASS = 300e-6  # seconds, approximately
HOPELESS = 3.0  # times the best so far: slower candidates are not timed again
ROUNDS = 5  # over the candidates on a CPU
MIN_ROUND = 3e-3  # seconds per candidate, approximately
BUSY = 2**24  # float32 elements in the copy that keeps a GPU busy
NOISE = 2**22  # elements that are drawn; larger arrays repeat them
IDLE, WAKE = 0.1, 0.4  # seconds without work after which a GPU clocks down, and of work until it clocks up again


class Bench:
    """The measurements of one process, which compiles at any time but measures only while it holds `lock`.

    `last`, which the processes share, is the time when the device was last busy.
    """

    def __init__(self, lock: Lock, last: Any, adapter: str, engine: str) -> None:
        self.lock, self.last = lock, last
        self.device = Device(adapter or None, engine=engine or None)
        self.noise: dict[np.dtype[Any], Array] = {}
        self.source, self.result = self.device.zeros((BUSY,)), self.device.empty((BUSY,))

    def records(self, problem: Problem, kernels: Iterable[Kernel[Any]]) -> Iterator[Record]:
        """Yield a record of each kernel, and for memory-bound ops (reductions) one of a copy of the same size."""
        extents = problem.buffers()
        with self.lock:
            arrays = [self.device.empty((e.end,), e.dtype) for e in extents]
            for extent, array in zip(extents, arrays, strict=True):
                if not extent.written:
                    self.fill(array)
            self.device.synchronize()
        launches: list[tuple[Kernel[Any], Launch]] = []
        for kernel in kernels:
            try:
                launches.append((kernel, self.device.launch(kernel, problem, *arrays)))
            except WebmmError as error:
                yield record_of(self.device, problem, kernel, "compile", str(error).splitlines()[0])
        with self.lock:
            each = self.times([launch for _, launch in launches])
        for (kernel, _), timed in zip(launches, each, strict=True):
            yield record_of(self.device, problem, kernel, timed=timed)
        for array in arrays:
            array.free()
        if launches and isinstance(problem, Reduction):
            copied = record_of(self.device, problem, launches[0][0], timed=self.copying(problem.bytes))
            yield dataclasses.replace(copied, kernel=COPY, config={})

    def copying(self, nbytes: int) -> Timing:
        """Return the time of a copy that moves `nbytes`: half of them are read, half written."""
        elements = max(4, nbytes // 32 * 4)
        with self.lock, self.device.empty((elements,)) as source, self.device.empty((elements,)) as out:
            self.fill(source)
            (timed,) = self.times([roofline.copy(self.device, source, out)])
        return timed

    def fill(self, array: Array) -> None:
        """Fill an array with repeated noise."""
        noise = self.noise.get(array.dtype)
        if noise is None:
            noise = self.noise[array.dtype] = self.device.array(_noise(array.dtype))
        encoder, size = self.device.wgpu_device.create_command_encoder(), array.storage.buffer.size
        for start in range(0, size, noise.storage.buffer.size):
            length = min(noise.storage.buffer.size, size - start)
            encoder.copy_buffer_to_buffer(noise.storage.buffer, 0, array.storage.buffer, start, length)
        self.device.wgpu_device.queue.submit([encoder.finish()])

    def times(self, launches: list[Launch]) -> list[Timing]:
        """Return the time of one dispatch of each launch."""
        if timing.clock_of(self.device) == "wall":
            return self.rounds(launches)
        self.wake()
        found: list[Timing] = []
        for launch in launches:
            found.append(self.time(launch, min((each.median_us for each in found), default=math.inf)))
        self.last.value = clock.monotonic()
        return found

    def wake(self) -> None:
        """Keep a GPU that was idle busy until it has clocked up."""
        start = clock.monotonic()
        idle = start - self.last.value
        if idle > IDLE:
            launch = roofline.copy(self.device, self.source, self.result)
            while clock.monotonic() < start + min(WAKE, idle):
                timing.submit(self.device, launch, 10)

    def rounds(self, launches: list[Launch]) -> list[Timing]:
        """Return the best wall-clock time of ROUNDS; launches that are hopeless are dropped, except for the first."""
        seconds: list[list[float]] = [[] for _ in launches]
        for turn in range(1 + ROUNDS):  # drivers compile in the first round
            best = min((min(mine) for mine in seconds if mine), default=math.inf)
            for launch, mine in zip(launches, seconds, strict=True):
                if mine is seconds[0] or not mine or min(mine) < HOPELESS * best:
                    count = math.ceil(MIN_ROUND / min(mine)) if mine else 1
                    start = clock.perf_counter()
                    timing.submit(self.device, launch, count)
                    if turn:
                        mine.append((clock.perf_counter() - start) / count)
        return [Timing.of([min(mine)], "wall") for mine in seconds]

    def time(self, launch: Launch, best: float) -> Timing:
        """Return the time of a dispatch, measured in passes of several; a hopeless launch is not measured further."""
        first = self.passes(launch, 1, 2)[-1]
        if 1e6 * first > HOPELESS * best:
            return Timing.of([first], "timestamp")
        repeats = max(2, min(REPEATS, math.ceil(MIN_PASS / first)))
        return Timing.of(self.passes(launch, repeats, 4)[1:], "timestamp")

    def passes(self, launch: Launch, repeats: int, count: int) -> list[float]:
        """Return the seconds per dispatch in each of `count` passes of `repeats` dispatches."""
        gpu, usage = self.device.wgpu_device, self.device.engine.api.BufferUsage
        queries = gpu.create_query_set(type="timestamp", count=2 * count)
        resolved = gpu.create_buffer(size=16 * count, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        encoder = gpu.create_command_encoder()
        for i in range(count):
            writes = {
                "query_set": queries,
                "beginning_of_pass_write_index": 2 * i,
                "end_of_pass_write_index": 2 * i + 1,
            }
            compute_pass = encoder.begin_compute_pass(timestamp_writes=writes)
            for _ in range(repeats):
                launch.encode(compute_pass)
            compute_pass.end()
        encoder.resolve_query_set(queries, 0, 2 * count, resolved, 0)
        gpu.queue.submit([encoder.finish()])
        ticks = np.frombuffer(gpu.queue.read_buffer(resolved), np.uint64).astype(np.int64).reshape(-1, 2)
        period = 1e-9 * self.device.engine.timestamp_period(gpu)
        return [max(float(end - start), 1.0) * period / repeats for start, end in ticks]

    def check(self, problem: Problem, kernel: Kernel[Any]) -> tuple[float, float]:
        """Return the largest error of a result, and its bound."""
        case = op_of(problem.op, problem.variant).case(self.device, problem)
        (written,) = (extent for extent in problem.buffers() if extent.written)
        with self.device.empty((written.end,), written.dtype) as result:
            arrays = [result if e.written else case.inputs[e.name] for e in problem.buffers()]
            self.device.run(kernel, problem, *arrays)
            error = case.error(result.numpy())
        for array in case.inputs.values():
            array.free()
        return error, case.bound


def _noise(dtype: np.dtype[Any]) -> Any:
    rng = np.random.default_rng(1)
    if dtype.kind == "f":
        return rng.standard_normal(NOISE, np.float32).astype(dtype)
    return np.frombuffer(rng.bytes(NOISE * dtype.itemsize), dtype)


def peer(problem: Problem, lock: Lock, last: Any) -> list[Record]:
    """Return the record of cuBLAS (TF32 off) for gemm or of PyTorch for reductions; none for other problems."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    if not isinstance(problem, Gemm | Reduction):
        return []
    name, config = ("cublas", {"tf32": False}) if isinstance(problem, Gemm) else ("pytorch", {})
    with lock, torch.no_grad():
        call = _product(problem) if isinstance(problem, Gemm) else _along(problem)
        idle = clock.monotonic() - last.value
        timed = peers.time_graph(call, REPEATS, 0.005 if idle < IDLE else min(WAKE, idle), 0.005)
        last.value = clock.monotonic()
    del call
    torch.cuda.empty_cache()
    return [peers.record(problem, name, "", {**config, "graph": REPEATS}, timed, (None, None), math.nan)]


def _product(p: Gemm) -> Callable[[], Any]:
    import torch

    kind = getattr(torch, p.dtype.name)
    batch = (p.batch,) if p.batch > 1 else ()
    a = torch.randn(*batch, *((p.k, p.m) if p.a.transposed else (p.m, p.k)), device="cuda").to(kind)
    b = torch.randn(*batch, *((p.n, p.k) if p.b.transposed else (p.k, p.n)), device="cuda").to(kind)
    a, b = a.mT if p.a.transposed else a, b.mT if p.b.transposed else b
    return functools.partial(torch.matmul, a, b, out=torch.empty(*batch, p.m, p.n, device="cuda", dtype=kind))


def _along(p: Reduction) -> Callable[[], Any]:
    import torch

    x = torch.randn(*p.sizes[:3], device="cuda").to(getattr(torch, p.dtype.name))
    return functools.partial(peers.along(p), x)
