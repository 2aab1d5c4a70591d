"""Random realistic problems, to evaluate the choice of kernels on problems that it was not tuned for.

    python bench/shapes.py --adapter gpu --seeds 7,8 --count 300 FILE.json       # the chosen kernels and cuBLAS
    python bench/shapes.py --adapter gpu --regret 24 --count 100 FILE.json       # and the best of 24 candidates
    python bench/shapes.py --adapter gpu --op reduce,normalise FILE.json         # compared with a copy and PyTorch
    python bench/shapes.py --op attention FILE.json                              # beside three calls in the same run
    python bench/shapes.py --adapter gpu --engine dawn --dtype float16 FILE.json # on matrix units
    python bench/shapes.py --adapter gpu --collect 14 --seconds 200 FILE.json    # times to fit a model to
    python bench/shapes.py --adapter gpu --sizes 1x1536x8192nt --kernels gemv:lanes=64,gemv FILE.json

Problems are drawn by class (`random_problems.py`): square, arbitrary, linear-layer, batched attention, tall,
convolution and deep products; block weights with one, few and many rows; reductions along any axis. Report results
for seeds that nothing was tuned on. Several processes compile, but only one at a time measures (`shapes_timing.py`).
Records are written continuously; if the file exists, the run continues from its records.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import os
import queue
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import attention_shapes
import click
from ops import worthwhile
from random_problems import BYTES, DRAWN, default_dtype, draw, problem_of
from shapes_report import Key, grouped, report
from shapes_timing import Bench, peer

from webmm.cases import op_of
from webmm.choose import COLUMNS, choose
from webmm.choose.adapted import model_of, typical
from webmm.choose.field import divided
from webmm.choose.model import Model
from webmm.cli.options import parse_kernels
from webmm.dtypes import F32
from webmm.engine.device import Device
from webmm.errors import WebmmError
from webmm.kernels.base import Kernel
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.measure import tuner
from webmm.measure.records import Record, from_json, provenance, save, to_json
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm
from webmm.problems.product import LAYOUTS
from webmm.problems.quantized import Quantized
from webmm.problems.reduce import Reduction
from webmm.problems.weights import WeightOnly

LONG = 1.5e11  # operations from which a problem is not collected
GRACE = 25.0  # seconds after the end in which problems under way may finish
START_UP = 25.0  # seconds that a process waits until all others have chosen their first kernel
MAX_VECTOR = 32  # rows up to which `vector` is a candidate
CHECKED = 2**31  # operations up to which results are compared with NumPy


# Candidates


def spread(problem: Problem, device: Device, model: Model, count: int, seed: int) -> list[Kernel[Any]]:
    """Return `count` candidates, mostly from the best ones by `model`, the others at random.

    A third have settings that the model was not fitted to, if there are any.
    """
    source = random.Random(seed)
    field = COLUMNS[problem.op].field(problem, device, model.machine.multiprocessors)
    able = [kernel for kernel in field if not kernel.check(problem, device.capabilities)]
    times = model.times(able, problem)
    ranked = sorted(range(len(able)), key=times.__getitem__)
    known = [i for i in ranked if model.knows(able[i])]
    near, fresh = known[: 3 * count], [i for i in ranked if not model.knows(able[i])][:count]
    chosen = {*known[:2], *source.sample(fresh, min(len(fresh), count // 3))}
    chosen |= set(source.sample(near, min(len(near), count // 3 if fresh else count * 2 // 3)))
    far = [i for i in known if i not in chosen and times[i] < 5 * times[ranked[0]]]
    chosen |= set(source.sample(far, min(len(far), max(0, count - len(chosen)))))
    return [able[i] for i in ranked if i in chosen]


def parts_of_k(problem: Quantized | WeightOnly, device: Device, count: int, seed: int) -> list[Kernel[Any]]:
    """Return `count` candidates for 8-bit integers or block weights, from those of `divided` tiles predicted fastest.

    For weights with up to MAX_VECTOR rows, half of them are `vector` with random settings.
    """
    source, vectors = random.Random(seed), list[Kernel[Any]]()
    stage: Any = Packed if isinstance(problem, Quantized) else Tiles
    if isinstance(problem, WeightOnly) and problem.m <= MAX_VECTOR:
        suited = [kernel for kernel in Vector.space() if kernel.tm < 2 * problem.m]
        vectors = list(source.sample(suited, min(len(suited), count // 2 if problem.m > 1 else count)))
    usual = stage(bm=32, bn=32, tn=4).config
    tiles = [tile for tile in stage.space() if tile.unroll == tile.bk and not differs(tile.config, usual)]
    able = [kernel for tile in tiles for kernel in divided(tile, problem)]
    able = [kernel for kernel in able if not kernel.check(problem, device.capabilities)]
    near = [kernel for kernel, _, _ in model_of(device).best(able, problem)[: 4 * count]]
    return vectors + source.sample(near, min(len(near), count - len(vectors)))


def differs(config: dict[str, Any], usual: dict[str, Any]) -> bool:
    """Return whether settings other than the sizes of tiles differ from the usual ones."""
    return any(config[name] != usual[name] for name in ("group", "splits", "order", "dot") if name in usual)


def others(problem: Problem, device: Device, model: Model | None, count: int, seed: int) -> list[Kernel[Any]]:
    """Return `count` candidates: by the model of cost on GPUs, or those of `webmm tune`.

    For float32 gemm on CPUs, only the stages made for CPUs are candidates: other stages take many times as long.
    """
    if device.info.kind != "cpu" and (isinstance(problem, Reduction) or (problem.op, problem.dtype) == ("gemm", F32)):
        return spread(problem, device, model or model_of(device), count, seed)
    if isinstance(problem, Gemm) and problem.dtype == F32:
        made: list[Kernel[Any]] = [*CpuLanes.space(), *CpuTexture.space()]
        lanes = CpuLanes.on(device.capabilities).lanes
        able = [k for k in made if k.config["lanes"] == lanes and not k.check(problem, device.capabilities)]
        return random.Random(seed).sample(able, min(count, len(able)))
    if isinstance(problem, Quantized | WeightOnly) and device.info.kind != "cpu":
        return parts_of_k(problem, device, count, seed)
    tried = (k for k in tuner.drawn(device, problem) if not isinstance(problem, Reduction) or worthwhile(k, problem))
    return list(itertools.islice(tried, count))


# Processes


@dataclasses.dataclass(frozen=True)
class Task:
    """A problem, and which kernels to measure on it."""

    row: dict[str, Any]
    seed: int
    candidates: int = 0  # number of candidates
    kernels: tuple[Kernel[Any], ...] = ()  # further kernels
    chosen: bool = True  # whether to measure the chosen kernel
    checked: bool = False  # whether to compare the chosen kernel's result with NumPy


def work(tasks: Any, results: Any, lock: Any, last: Any, ready: Any, adapter: str, engine: str, models: str) -> None:
    """Measure tasks until the queue yields None.

    The first choice runs self-tests on the device, so nothing is measured until all processes are `ready`, a barrier.
    """
    bench = Bench(lock, last, adapter, engine)
    model = typical(bench.device) if models == "prior" else None
    for number in itertools.count():
        if (task := tasks.get()) is None:
            return
        problem = problem_of(task.row)
        try:
            kernels: list[Kernel[Any]] = [choose(problem, bench.device)] if task.chosen else []
            if number == 0:
                wait_for_others(ready)
            kernels += [k for k in task.kernels if not k.check(problem, bench.device.capabilities)]
            if task.candidates:
                kernels += others(problem, bench.device, model, task.candidates, task.seed)
            records = list(bench.records(problem, dict.fromkeys(kernels)))
            if task.checked and problem.flops < CHECKED:
                error, most = bench.check(problem, kernels[0])
                records[0] = dataclasses.replace(records[0], max_error=error, error_bound=most)
                if not error <= most:
                    records[0] = dataclasses.replace(records[0], status="incorrect", reason=f"error {error:.2e}")
        except WebmmError as error:
            print(f"{task.row}: {error}", flush=True)
            records = []
        results.put((task, records))


def wait_for_others(ready: Any) -> None:
    """Wait until all processes are `ready`, a barrier, or START_UP is over."""
    with suppress(BrokenBarrierError):  # measurements begin without those that are late
        ready.wait(START_UP)


def work_peers(tasks: Any, results: Any, lock: Any, last: Any, ready: Any) -> None:
    """Time the peers on tasks until the queue yields None."""
    wait_for_others(ready)
    while (task := tasks.get()) is not None:
        try:
            results.put((task, peer(problem_of(task.row), lock, last)))
        except RuntimeError as error:  # PyTorch's, if the GPU is out of memory
            print(f"{task.row}: {error}", flush=True)
            results.put((task, []))


def measure(
    tasks: list[Task], adapter: str, engine: str, workers: int, seconds: float, models: str
) -> Iterator[tuple[Task, list[Record]]]:
    """Measure tasks for about `seconds`; yield each task with its records when it is done."""
    import peers

    context, end = multiprocessing.get_context("spawn"), time.monotonic() + seconds
    lock, last, results = context.Lock(), context.Value("d", 0.0), context.Queue()
    vendor = peers.available()
    ours, theirs = context.Queue(2 * workers), context.Queue(4)
    workers = max(1, min(workers, len(tasks)))
    ready = context.Barrier(workers + vendor)
    processes = [
        context.Process(target=work, args=(ours, results, lock, last, ready, adapter, engine, models), daemon=True)
        for _ in range(workers)
    ]
    if vendor:
        processes.append(context.Process(target=work_peers, args=(theirs, results, lock, last, ready), daemon=True))
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
            print(f"{under_way} problems were abandoned", flush=True)
            break
        key = json.dumps(task.row)
        if vendor and key not in half:
            half[key] = records
            continue
        under_way -= 1
        yield task, half.pop(key, []) + records
    for process in processes:
        process.kill()


def rows_of(
    ops: str, dtype: str, seeds: str, count: int, scale: float, *, collect: bool = False, ragged: bool = False
) -> list[tuple[int, dict[str, Any]]]:
    """Return (seed, problem) for all seeds, alternating between the ops."""
    rows = []
    for seed in map(int, seeds.split(",")):
        drawn = (draw(seed, count, scale, op, dtype) for op in ops.split(","))
        rows += [(seed, row) for turn in zip(*drawn, strict=True) for row in turn]
    if collect:  # long problems are all alike
        rows = [(seed, row) for seed, row in rows if problem_of(row).flops < LONG and problem_of(row).bytes < BYTES / 2]
    return [(seed, row) for seed, row in rows if row["n"] % 4 or not ragged]


def named(text: str, op: str, dtype: str) -> Iterator[dict[str, Any]]:
    """Yield the problems in a list such as 1x1536x8192nt,64x512x512@8, or along n of m×n×k: softmax:1x900x41."""
    for words in text.split(","):
        variant, _, sizes = words.rpartition(":")
        along = op in ("reduce", "normalise")
        size, layout = (sizes[:-2], sizes[-2:]) if sizes[-2:] in LAYOUTS else (sizes, "" if along else "nn")
        m, n, k, *batch = map(int, size.split("x")) if along else op_of(op, variant).parse(size)
        row = {"op": op, "variant": variant, "dtype": dtype or default_dtype(op), "cls": words}
        yield row | {"batch": batch[0] if batch else 1, "m": m, "n": n, "k": k, "layout": layout}


def key_of(row: dict[str, Any]) -> Key:
    """Return the key of a row's problem in `grouped()`."""
    p = problem_of(row)
    m, n, k, batch = p.sizes
    return p.op, p.variant, p.dtype.name, m, n, k, batch, p.layout


def header(output: Path) -> dict[str, str]:
    """Return the header of records that are added to those in `output`, if any: with the commands of both."""
    about = provenance()
    before = json.loads(output.read_text()).get("command") if output.exists() else None
    return about | {"command": f"{before}; {about['command']}" if before else about["command"]}


@click.command()
@click.option("--adapter", default="")
@click.option("--engine", default="")
@click.option(
    "--op", "ops", default="gemm", show_default=True, help=f"Comma-separated, of {', '.join(DRAWN)}; or attention."
)
@click.option("--dtype", default="", help="Default: float32; for quantized, int8.")
@click.option("--seeds", default="1", help="Seeds of the problems, comma-separated.")
@click.option("--count", default=100, help="Problems per seed.")
@click.option("--scale", default=1.0, help="Divide the limits on a problem's size by this: 200 for a CPU.")
@click.option("--regret", default=0, help="Candidates per problem to time in addition to the chosen kernel.")
@click.option(
    "--collect", default=0, help="Candidates per problem to time for fitting a model, without the chosen one."
)
@click.option(
    "--sizes", default="", help="Problems to use instead of random ones: 1x1536x8192nt,64x512x512@8,softmax:1x900x41."
)
@click.option("--kernels", default="", help="Kernels to time in addition to the chosen one, as for `webmm bench`.")
@click.option("--seconds", default=500.0, help="Seconds after which no problem is started.")
@click.option("--workers", default=os.cpu_count() or 1, help="Number of processes that compile.")
@click.option("--models", default="", help="prior: select candidates by the initial model, which is not fitted.")
@click.option("--ragged", is_flag=True, help="Only problems whose n is not a multiple of 4.")
@click.option("--check/--no-check", "checked", default=True, help="Compare small problems' results with NumPy's.")
@click.argument("output", type=click.Path(path_type=Path))
def main(
    adapter: str,
    engine: str,
    ops: str,
    dtype: str,
    seeds: str,
    count: int,
    scale: float,
    regret: int,
    collect: int,
    sizes: str,
    kernels: str,
    seconds: float,
    workers: int,
    models: str,
    ragged: bool,
    checked: bool,
    output: Path,
) -> None:
    """Measure random problems, and write the records to OUTPUT."""
    if ops == "attention":
        attention_shapes.measure(adapter, engine, dtype, seeds, count, seconds, output)
        return
    if unknown := set(ops.split(",")) - set(DRAWN):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: choose from {', '.join(DRAWN)}", param_hint="--op")
    tried = tuple(parse_kernels(kernels, ops)) if kernels else ()
    try:
        rows = [(0, row) for row in named(sizes, ops, dtype)] if sizes else []
    except (ValueError, WebmmError) as error:
        raise click.BadParameter(
            f"{error}; such as 64x512x512, or along an axis softmax:1x900x41", param_hint="--sizes"
        ) from error
    rows = rows or rows_of(ops, dtype, seeds, count, scale, collect=bool(collect), ragged=ragged)
    classes = {key_of(row): str(row["cls"]) for _, row in rows}
    records = from_json(output.read_text()) if output.exists() else []
    about = header(output)
    known, saved = grouped(records), time.monotonic()
    tasks = {  # one of each problem, some of which are drawn twice
        key_of(row): Task(row, 1000 * seed + i, collect or regret, tried, not collect, checked and not collect)
        for i, (seed, row) in enumerate(rows)
        if key_of(row) not in known
    }
    for task, found in measure(list(tasks.values()), adapter, engine, workers, seconds, models):
        del task
        records += found
        if time.monotonic() > saved + 5:
            save(output, to_json(records, **about))
            saved = time.monotonic()
    save(output, to_json(records, **about))
    print(f"{len(grouped(records))} problems, {len(records)} records")
    report(records, classes, every=bool(sizes))


if __name__ == "__main__":
    main()
