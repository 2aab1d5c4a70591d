"""Random products as users call them, for judging a choice of kernels by what nobody tuned it to.

    python bench/shapes.py --adapter gpu --seeds 7,8 --count 300 FILE.json       # what is chosen, beside cuBLAS
    python bench/shapes.py --adapter gpu --regret 24 --count 100 FILE.json       # and the best of so many candidates
    python bench/shapes.py --adapter gpu --collect 14 --seconds 200 FILE.json    # times to fit a model to

Problems are drawn by class: squares, any sizes, linear layers, batches of attention, tall, convolutions as products,
deep ones. Report on seeds that nothing was tuned on. Several processes compile, one at a time measures: a candidate is
timed in passes of some dispatches between two timestamps, cuBLAS (TF32 off) as a CUDA graph of ten. Records are written
as they come; a run that finds its file goes on where that ends, so that it may be cut into parts.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import multiprocessing
import os
import queue
import random
import statistics
import time
from collections.abc import Iterable, Iterator
from multiprocessing.synchronize import Lock
from pathlib import Path
from typing import Any

import click
import numpy as np
from random_problems import BYTES, CLASSES, draw, problem_of

from webmm import Device
from webmm.bench import record_of
from webmm.choose import choose
from webmm.choose.field import field
from webmm.choose.model import START, Machine, Model, model_of
from webmm.engine.array import Array
from webmm.engine.launch import Launch
from webmm.engine.timing import Timing
from webmm.errors import WebmmError
from webmm.kernels import label_of
from webmm.kernels.base import Kernel
from webmm.problems.gemm import Gemm
from webmm.records import Record, from_json, save, to_json
from webmm.verify import Checker, bound

TOGETHER = 10  # dispatches between two timestamps, and products in a CUDA graph
LEAST = 300e-6  # seconds that a pass lasts about
LONG = 1.5e11  # operations of a product that is not collected
GRACE = 25.0  # seconds that what has begun may take longer
CHECKED = 2**31  # operations up to which a result is compared with NumPy
HOPELESS = 3.0  # times the best so far: what takes so long is not timed again


# Candidates


def spread(problem: Gemm, device: Device, model: Model, count: int, seed: int) -> list[Kernel[Any]]:
    """Return `count` candidates: most from among those that `model` expects to be best, others at random."""
    source = random.Random(seed)
    able = [k for k in field(problem, model.machine.multiprocessors) if not k.check(problem, device.capabilities)]
    times = model.times(able, problem)
    ranked = sorted(range(len(able)), key=times.__getitem__)
    near = ranked[: 3 * count]
    chosen = {*ranked[:2], *source.sample(near, min(len(near), count * 2 // 3))}
    far = [i for i in ranked if i not in chosen and times[i] < 5 * times[ranked[0]]]
    chosen |= set(source.sample(far, min(len(far), max(0, count - len(chosen)))))
    return [able[i] for i in ranked if i in chosen]


# Timing


class Bench:
    """A process of its own: it compiles as it likes, and measures while it holds `lock`."""

    def __init__(self, lock: Lock, adapter: str, engine: str) -> None:
        self.lock = lock
        self.device = Device(adapter or None, engine=engine or None)
        noise = np.random.default_rng(1).standard_normal(2**22).astype(np.float32)
        self.noise = self.device.array(noise)

    def records(self, problem: Gemm, kernels: Iterable[Kernel[Any]]) -> Iterator[Record]:
        """Yield a record of each kernel that compiles."""
        shapes = [extent.end for extent in problem.buffers()]
        best = math.inf
        with self.lock:
            arrays = [self.device.empty((size,)) for size in shapes]
            for array in arrays[:2]:
                self.fill(array)
            self.device.synchronize()
        launches: list[tuple[Kernel[Any], Launch]] = []
        for kernel in kernels:
            try:
                launches.append((kernel, self.device.launch(kernel, problem, *arrays)))
            except WebmmError as error:
                yield record_of(self.device, problem, kernel, "compile", str(error).splitlines()[0])
        with self.lock:
            for kernel, launch in launches:
                timing = self.time(launch, best)
                best = min(best, timing.median_us)
                yield record_of(self.device, problem, kernel, timed=timing)
        for array in arrays:
            array.free()

    def fill(self, array: Array) -> None:
        """Copy noise over an array, again and again."""
        encoder, size = self.device.wgpu_device.create_command_encoder(), 4 * array.size
        for start in range(0, size, 2**24):
            length = min(2**24, size - start)
            encoder.copy_buffer_to_buffer(self.noise.storage.buffer, 0, array.storage.buffer, start, length)
        self.device.wgpu_device.queue.submit([encoder.finish()])

    def time(self, launch: Launch, best: float) -> Timing:
        """Return the time of a dispatch within passes of several, of the second of two where it is hopeless."""
        first = self.passes(launch, 1, 2)[-1]
        if 1e6 * first > HOPELESS * best:
            return Timing.of([first], "timestamp")
        together = max(2, min(TOGETHER, math.ceil(LEAST / first)))
        return Timing.of(self.passes(launch, together, 4)[1:], "timestamp")

    def passes(self, launch: Launch, together: int, count: int) -> list[float]:
        """Return the seconds that a dispatch takes in each of `count` passes."""
        gpu, usage = self.device.wgpu_device, self.device.engine.buffer_usage
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
            for _ in range(together):
                launch.encode(compute_pass)
            compute_pass.end()
        encoder.resolve_query_set(queries, 0, 2 * count, resolved, 0)
        gpu.queue.submit([encoder.finish()])
        ticks = np.frombuffer(gpu.queue.read_buffer(resolved), np.uint64).astype(np.int64).reshape(-1, 2)
        period = 1e-9 * self.device.engine.timestamp_period(gpu)
        return [max(float(end - start), 1.0) * period / together for start, end in ticks]


def cublas(problem: Gemm, lock: Lock) -> Record:
    """Return cuBLAS's record: TF32 off, the median of replays of a graph of TOGETHER products."""
    import peers
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    p = problem
    with lock:
        batch = (p.batch,) if p.batch > 1 else ()
        a = torch.randn(*batch, *((p.k, p.m) if p.a.transposed else (p.m, p.k)), device="cuda")
        b = torch.randn(*batch, *((p.n, p.k) if p.b.transposed else (p.k, p.n)), device="cuda")
        a, b = a.mT if p.a.transposed else a, b.mT if p.b.transposed else b
        out = torch.empty(*batch, p.m, p.n, device="cuda")
        timed = peers.time_graph(functools.partial(torch.matmul, a, b, out=out), TOGETHER, 0.005, 0.005)
    del a, b, out
    torch.cuda.empty_cache()
    return peers.record(p, "cublas", "", {"tf32": False, "graph": TOGETHER}, timed, (None, None), math.nan)


def check(bench: Bench, problem: Gemm, kernel: Kernel[Any]) -> tuple[float, float]:
    """Return the largest error of sampled rows, as a multiple of |A|·|B|, and what rounding explains."""
    rng = np.random.default_rng(2)
    p = problem
    a, b = (rng.standard_normal((p.batch, *size)).astype(np.float32) for size in ((p.m, p.k), (p.k, p.n)))
    checker = Checker(p, a, b) if p.batch > 1 else Checker(p, a[0], b[0])
    arrays = [
        bench.device.array(np.ascontiguousarray(x.swapaxes(-1, -2) if o.transposed else x))
        for x, o in ((a, p.a), (b, p.b))
    ]
    c = bench.device.array(np.full((p.batch, p.m, p.n), np.nan, np.float32))
    bench.device.run(kernel, p, *arrays, c)
    found = c.numpy()
    for array in (*arrays, c):
        array.free()
    return checker.error(found if p.batch > 1 else found[0]), bound(p)


# Processes


@dataclasses.dataclass(frozen=True)
class Task:
    """A problem, and what to measure of it."""

    row: dict[str, Any]
    seed: int
    candidates: int = 0  # beside what is chosen
    chosen: bool = True
    checked: bool = False


def work(tasks: Any, results: Any, lock: Lock, adapter: str, engine: str, models: str) -> None:
    """Measure tasks until there are none."""
    bench = Bench(lock, adapter, engine)
    model = prior() if models == "prior" else None
    while (task := tasks.get()) is not None:
        problem = problem_of(task.row)
        try:
            kernels: list[Kernel[Any]] = [choose(problem, bench.device)] if task.chosen else []
            if task.candidates:
                used = model or model_of(bench.device) or prior()
                kernels += spread(problem, bench.device, used, task.candidates, task.seed)
            records = list(bench.records(problem, dict.fromkeys(kernels)))
            if task.checked and problem.flops < CHECKED:
                error, most = check(bench, problem, kernels[0])
                records[0] = dataclasses.replace(records[0], max_error=error, error_bound=most)
                if not error <= most:
                    records[0] = dataclasses.replace(records[0], status="incorrect", reason=f"error {error:.2e}")
        except WebmmError as error:
            print(f"{task.row}: {error}", flush=True)
            records = []
        results.put((task, records))


def work_cublas(tasks: Any, results: Any, lock: Lock) -> None:
    """Time cuBLAS on tasks until there are none."""
    while (task := tasks.get()) is not None:
        results.put((task, [cublas(problem_of(task.row), lock)]))


def prior() -> Model:
    """Return a model that nothing was fitted to."""
    return Model(Machine(), dict.fromkeys(("tiles", "gemv", "sum_splits"), START))


def measure(
    tasks: list[Task], adapter: str, engine: str, workers: int, seconds: float, models: str
) -> Iterator[tuple[Task, list[Record]]]:
    """Yield tasks as they are done, with their records, for about so many seconds."""
    import peers

    context, end = multiprocessing.get_context("spawn"), time.monotonic() + seconds
    lock, results = context.Lock(), context.Queue()
    vendor = peers.available()
    ours, theirs = context.Queue(2 * workers), context.Queue(4)
    processes = [
        context.Process(target=work, args=(ours, results, lock, adapter, engine, models), daemon=True)
        for _ in range(workers)
    ]
    if vendor:
        processes.append(context.Process(target=work_cublas, args=(theirs, results, lock), daemon=True))
    for process in processes:
        process.start()
    waiting, half = list(reversed(tasks)), dict[str, list[Record]]()
    under_way = 0
    while (waiting and time.monotonic() < end) or under_way:
        while waiting and time.monotonic() < end and under_way < 3 * workers:
            ours.put(waiting[-1])
            if vendor:
                theirs.put(waiting[-1])
            under_way += 1
            waiting.pop()
        try:
            task, records = results.get(timeout=max(1.0, end + GRACE - time.monotonic()))
        except queue.Empty:
            print(f"{under_way} problems are given up", flush=True)
            break
        key = json.dumps(task.row)
        if vendor and key not in half:
            half[key] = records
            continue
        under_way -= 1
        yield task, half.pop(key, []) + records
    for process in processes:
        process.kill()


# Reports


def geometric(values: Iterable[float]) -> float:
    """Return the geometric mean, NaN of none."""
    values = list(values)
    return statistics.geometric_mean(values) if values else math.nan


def tenth(values: Iterable[float]) -> float:
    """Return what a tenth of the values lie below."""
    values = sorted(values)
    return values[len(values) // 10] if values else math.nan


def table(shares: list[tuple[str, float, float]]) -> str:
    """Return mean, tenth and worst per class of (class, share, vendor's µs), and of long and short products."""
    groups = {name: [s for cls, s, _ in shares if cls == name] for name in sorted(set(CLASSES))}
    groups["all"] = [s for _, s, _ in shares]
    groups["where the vendor takes ≥ 200 µs"] = [s for _, s, us in shares if us >= 200]
    groups["< 20 µs"] = [s for _, s, us in shares if us < 20]
    lines = ["| | problems | mean | a tenth below | worst |", "|---|---|---|---|---|"]
    for name, found in groups.items():
        if found:
            lines.append(f"| {name} | {len(found)} | {geometric(found):.2f} | {tenth(found):.2f} | {min(found):.2f} |")
    return "\n".join(lines)


def report(records: list[Record], classes: dict[tuple[Any, ...], str]) -> None:
    """Print the chosen kernels' shares of cuBLAS's rate, and of the best candidate's."""
    shares, regrets, worst = [], [], []
    for key, found in grouped(records).items():
        vendor = next((r for r in found if r.kernel == "cublas"), None)
        ours = [r for r in found if r.kernel != "cublas" and r.median_us]
        if not ours:
            continue
        chosen, best = ours[0], min(ours, key=lambda r: r.median_us or math.inf)
        share = (vendor.median_us or 0) / (chosen.median_us or 1) if vendor else math.nan
        if vendor:
            shares.append((classes.get(key, "?"), share, vendor.median_us or 0))
            words = f"{share:.2f} {classes.get(key, '?')} {key}: {chosen.median_us:.1f} µs {label_of(chosen)}"
            worst.append((share, f"{words}; best {best.median_us:.1f} {label_of(best)}"))
        if len(ours) > 1:
            regrets.append((best.median_us or 0) / (chosen.median_us or 1))
    if shares:
        print(table(shares))
    if regrets:
        words = f"{geometric(regrets):.3f}, a tenth below {tenth(regrets):.2f}, worst {min(regrets):.2f}"
        print(f"best ÷ chosen over {len(regrets)}: {words}")
    wrong = [r for r in records if r.status == "incorrect"]
    print(f"{sum(r.max_error is not None for r in records)} checked, {len(wrong)} wrong")
    for _, line in sorted(worst)[:40]:
        print(line)


def grouped(records: Iterable[Record]) -> dict[tuple[Any, ...], list[Record]]:
    """Return the records by problem, in the order in which they came."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        found.setdefault((record.m, record.n, record.k, record.batch, record.layout), []).append(record)
    return found


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return how `grouped()` knows the problem of a row."""
    return row["m"], row["n"], row["k"], row["batch"], row["layout"]


@click.command()
@click.option("--adapter", default="")
@click.option("--engine", default="")
@click.option("--seeds", default="1", help="Seeds of the problems, by commas.")
@click.option("--count", default=100, help="Problems per seed.")
@click.option("--scale", default=1.0, help="By how much the problems are smaller: 200 for a CPU.")
@click.option("--regret", default=0, help="Candidates per problem that are timed beside what is chosen.")
@click.option("--collect", default=0, help="Candidates per problem, without what is chosen: what a model is fitted to.")
@click.option("--seconds", default=500.0, help="After which no problem is begun.")
@click.option("--workers", default=os.cpu_count() or 1, help="Processes that compile.")
@click.option("--models", default="", help="prior: candidates are spread by a model that nothing was fitted to.")
@click.option("--ragged", is_flag=True, help="Only problems whose C no vec4 fits.")
@click.option("--check/--no-check", "checked", default=True, help="Compare results with NumPy's, where that is quick.")
@click.argument("output", type=click.Path(path_type=Path))
def main(
    adapter: str,
    engine: str,
    seeds: str,
    count: int,
    scale: float,
    regret: int,
    collect: int,
    seconds: float,
    workers: int,
    models: str,
    ragged: bool,
    checked: bool,
    output: Path,
) -> None:
    """Measure random problems, and write the records to OUTPUT."""
    rows = [(int(seed), row) for seed in seeds.split(",") for row in draw(int(seed), count, scale)]
    if collect:  # what takes long is all alike
        rows = [(seed, row) for seed, row in rows if problem_of(row).flops < LONG and problem_of(row).bytes < BYTES / 2]
    rows = [(seed, row) for seed, row in rows if row["n"] % 4 or not ragged]
    classes = {key_of(row): str(row["cls"]) for _, row in rows}
    records = from_json(output.read_text()) if output.exists() else []
    known, saved = grouped(records), time.monotonic()
    tasks = [
        Task(row, 1000 * seed + i, collect or regret, not collect, checked and not collect)
        for i, (seed, row) in enumerate(rows)
        if key_of(row) not in known
    ]
    for task, found in measure(tasks, adapter, engine, workers, seconds, models):
        del task
        records += found
        if time.monotonic() > saved + 5:
            save(output, to_json(records))
            saved = time.monotonic()
    save(output, to_json(records))
    print(f"{len(grouped(records))} problems, {len(records)} records")
    report(records, classes)


if __name__ == "__main__":
    main()
