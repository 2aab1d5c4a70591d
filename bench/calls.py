"""What a user calls, by the wall clock: `A @ B`, `gemm()` into an array, `qmatmul()`, softmax, sums; operands resident.

    python bench/calls.py --engine wgpu,dawn bench/results/my-gpu-calls.json

As many calls as a quarter of a second takes are queued, one wait ends them, and the time is divided by their number;
the median of five such rounds counts. Beside it stands the kernel that such a call runs, timed alone by the device's
clock, and PyTorch's eager call, timed as ours, where PyTorch has a CUDA device (TF32 off). Every product is checked
once, on whole numbers. The records of calls have `kernel` "call" and `clock` "wall".
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import peers
from numpy.typing import NDArray

import webmm
from webmm import Device
from webmm.bench import record_of
from webmm.engine.array import Array
from webmm.engine.timing import Timing, time_launch
from webmm.problems.base import Problem
from webmm.records import Record, save, to_json

ROUNDS, ROUND = 5, 0.25  # and seconds of one
WARM_UP = 0.4  # seconds: an idle GPU clocks down
SIDES = (64, 512, 1024, 2048, 4096)
SQUARE = 8192  # of what is reduced and normalised


@dataclass(frozen=True)
class Case:
    """A call on resident operands, its meaning in NumPy for a part of its results, and in PyTorch."""

    name: str
    operands: list[NDArray[Any]]
    call: Callable[..., Array]
    into: str = ""  # the type of an array that the call writes into, if it takes one
    torch: Callable[..., Any] | None = None
    numpy: Callable[..., NDArray[Any]] | None = None


def cases() -> Iterator[Case]:
    """Yield the cases, the small ones first."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float16"):
        for n in SIDES:
            a, b = (rng.integers(-2, 3, (n, n)).astype(dtype) for _ in range(2))
            top = lambda a, b: a[:2].astype(np.float64) @ b.astype(np.float64)  # noqa: E731
            product = lambda a, b: a @ b  # noqa: E731
            yield Case(f"A @ B {n}³ {dtype}", [a, b], product, torch=product, numpy=top)
            yield Case(f"gemm {n}³ {dtype}", [a, b], webmm.gemm, dtype, numpy=top)
    for n in SIDES[2:]:
        a, b = (rng.integers(-9, 10, (n, n)).astype(np.int8) for _ in range(2))
        sums = lambda a, b: webmm.qmatmul(a, b, 1.0, 0, 1.0, 0, out_dtype="int32")  # noqa: E731
        exact = lambda a, b: a[:2].astype(np.int64) @ b.astype(np.int64)  # noqa: E731
        yield Case(f"qmatmul {n}³ int8", [a, b], sums, numpy=exact)
    x = rng.integers(-2, 3, (SQUARE, SQUARE)).astype(np.float32)
    yield Case(
        f"sum of rows {SQUARE}² float32",
        *([x], lambda x: webmm.reduce(x, "sum", 1), "", lambda x: x.sum(1), lambda x: x[:2].sum(1)),
    )
    yield Case(f"softmax {SQUARE}² float32", [x], webmm.softmax, torch=lambda x: x.softmax(-1))


def per_call(call: Callable[[], object], wait: Callable[[], object]) -> Timing:
    """Return the seconds of a call: of many that are queued, and one wait."""
    call()
    wait()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < WARM_UP:
        call()
        count += 1
    wait()
    count = max(1, round(count * ROUND / (time.perf_counter() - start)))
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        times.append((time.perf_counter() - start) / count)
    return Timing.of(times, "wall")


def run(device: Device, case: Case) -> tuple[Record, Record]:
    """Return the records of the call and of the kernel that it runs."""
    arrays = [device.array(x) for x in case.operands]
    if case.into:
        arrays.append(device.empty(case.operands[0].shape, case.into))
    device.choices.clear()
    result = case.call(*arrays)
    if case.numpy:
        assert np.array_equal(result[:2].numpy(), case.numpy(*case.operands)), f"{case.name} is wrong"
    ((problem, _), kernel) = next(iter(device.choices.items()))
    launch = device.launch(kernel, problem, *arguments(problem, arrays, result))
    timed = per_call(lambda: case.call(*arrays), device.synchronize)
    alone = record_of(device, problem, kernel, timed=time_launch(device, launch))
    for array in (*arrays, result):
        array.free()
    words = {"kernel": "call", "config": {"call": case.name, "runs": kernel.name}}
    return Record(**{**vars(record_of(device, problem, kernel, timed=timed)), **words}), alone


def arguments(problem: Problem, operands: list[Array], result: Array) -> list[Array]:
    """Return an array for each buffer of the problem, whose results are written to `result`."""
    given = iter(operands)
    return [result if extent.written else next(given) for extent in problem.buffers()]


def in_pytorch(case: Case) -> float:
    """Return the µs of PyTorch's eager call; NaN where there is none."""
    if case.torch is None or not peers.available():
        return float("nan")
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    on_gpu = [torch.from_numpy(x).cuda() for x in case.operands]
    with torch.no_grad():
        return per_call(lambda: case.torch(*on_gpu), torch.cuda.synchronize).median_us


@click.command()
@click.option("--adapter")
@click.option("--engine", "engines", default="wgpu", show_default=True, help="Such as wgpu,dawn.")
@click.option("--only", default="", help="Part of a case's name.")
@click.argument("output", type=click.Path(path_type=Path))
def main(adapter: str | None, engines: str, only: str, output: Path) -> None:
    """Time the calls and write their records to OUTPUT."""
    records: list[Record] = []
    shares: dict[str, list[float]] = {}
    for case in (case for case in cases() if only in case.name):
        peer = in_pytorch(case)
        for engine in engines.split(","):
            with Device(adapter, engine=engine) as device:
                call, alone = run(device, case)
            records += (call, alone)
            assert call.median_us is not None
            assert alone.median_us is not None
            shares.setdefault(engine, []).append(alone.median_us / call.median_us)
            rate = f", {call.gflops / 1e3:.1f} TFLOP/s" if call.gflops and call.op in ("gemm", "quantized") else ""
            print(
                f"{case.name} by {engine}: {call.median_us:,.1f} µs a call{rate}; {alone.kernel} alone "
                f"{alone.median_us:,.1f}; PyTorch {peer:,.1f}",
                flush=True,
            )
            save(output, to_json(records))
    for engine, each in shares.items():
        print(f"{engine}: kernel ÷ call, geometric mean of {len(each)}: {statistics.geometric_mean(each):.2f}")


if __name__ == "__main__":
    main()
