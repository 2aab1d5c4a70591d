"""A few public calls on lavapipe beside NumPy, commit by commit: what a change has cost or gained without a GPU.

    python bench/commits.py measure FILE           # adds a line on the commit of the webmm that is imported
    python bench/commits.py draw FILE… FOLDER      # by-commit.md, with a chart and a table for each machine

`measure` takes some two minutes. Each call and NumPy's equivalent on one thread alternate in one process, and its CPU
time is compared, which other work on the machine lengthens little; NumPy's 16-bit and 8-bit products are those of
float32, its weights are dequantised beforehand. Since processes differ by more than the samples of one do, six give a
pair of times each: a line has how many times as fast webmm is, the median of the six ratios with an interval of 95 %
(`webmm.measure.benchmark.Ratio`). An older commit is measured from a worktree:

    git worktree add OLD COMMIT; PYTHONPATH=OLD python bench/commits.py measure FILE
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from call_cases import Case, integers, row_sums, softmax, square, weights
from calls import check, placed, tried
from commits_drawn import PAGE, Line, drawn, parsed, read
from cpu_time import cpu_seconds
from numpy.typing import NDArray
from whole_numbers import whole_numbers

import webmm
from webmm.files import write_atomically
from webmm.measure.benchmark import PAIRS, Ratio

ROUNDS = 5  # in each process
LEAST = 0.06  # seconds of a sample
ADAPTER = "llvmpipe"
OTHERS = ("WEBMM_", "GALLIVM_", "LP_")  # what begins so changes webmm or lavapipe
TREE = Path(webmm.__file__).resolve().parents[1]
ALL = (slice(None),)
Pairs = dict[str, tuple[float, float]]  # of cases: the seconds of webmm and of NumPy


def cases() -> Iterator[Case]:
    """Yield the calls, each with all of its equivalent in NumPy."""
    for n in (64, 256, 512):
        yield replace(square(n, "float32"), numpy=np.matmul, part=ALL)
    yield replace(square(256, "float16"), numpy=lambda a, b: in_float32(a, b).astype(np.float16), part=ALL)
    yield replace(integers(256), numpy=lambda a, b: in_float32(a, b).astype(np.int32), part=ALL)
    of_weights = weights(1, 1024, 32, "float32")
    yield replace(of_weights, numpy=lambda x, _: x @ of_weights.dense[1], part=ALL)
    yield replace(row_sums(1024), numpy=lambda x: x.sum(1), part=ALL)
    yield replace(softmax(1024), numpy=softmax_of, part=ALL)
    yield attention(4, 128, 64)
    x = whole_numbers("float32", 1024, 1024)
    silu = lambda x: x / (1 + np.exp(-x))  # noqa: E731
    yield Case("map silu 1024² f32", [x], lambda x: webmm.map(x, "silu"), numpy=silu, part=ALL, tolerance=1e-3)


def in_float32(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float32]:
    """Return the product of small whole numbers, exactly, by the BLAS that NumPy has for float32 only."""
    return a.astype(np.float32) @ b.astype(np.float32)


def softmax_of(x: NDArray[Any]) -> NDArray[Any]:
    """Return the softmax of the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(heads: int, tokens: int, width: int) -> Case:
    """Return attention of all tokens to all."""
    q, k, v = (np.roll(whole_numbers("float32", heads, tokens, width), i) for i in range(3))

    def in_numpy(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
        return softmax_of(q @ k.swapaxes(1, 2) * np.float32(width**-0.5)) @ v

    name = f"attention {heads}×{tokens}×{width} f32"
    return Case(name, [q, k, v], webmm.attention, numpy=in_numpy, part=ALL, tolerance=1e-3)


def pair(device: webmm.Device, case: Case) -> tuple[float, float]:
    """Return the CPU seconds of a call and of NumPy's equivalent, after checking its result."""
    assert case.numpy
    ours = partial(case.call, *(placed(device, x) for x in case.operands))
    check(case, ours())
    runs = sampler(ours, device.synchronize), sampler(partial(case.numpy, *case.operands), lambda: None)
    ours_took, theirs_took = in_turns(*runs)
    return ours_took, theirs_took


def sampler(call: Callable[[], object], wait: Callable[[], object]) -> Callable[[], float]:
    """Return a function that gives the CPU seconds per call of a sample, after calls that compile and plan."""

    def repeated(count: int) -> None:
        for _ in range(count):
            call()
        wait()

    count = 1
    repeated(3)
    while cpu_seconds(partial(repeated, count)) < LEAST:
        count *= 2
    return lambda: cpu_seconds(partial(repeated, count)) / count


def in_turns(*runs: Callable[[], float]) -> tuple[float, ...]:
    """Return the median of each of the runs, which alternate; every other round is in reverse."""
    found: list[list[float]] = [[] for _ in runs]
    order = list(range(len(runs)))
    for _ in range(ROUNDS):
        for i in order:
            found[i].append(runs[i]())
        order.reverse()
    return tuple(map(statistics.median, found))


def pairs() -> tuple[Pairs, dict[str, Any]]:
    """Return the seconds of each case in this process, and what they were measured on; a failure is printed."""
    with webmm.Device(ADAPTER) as device:
        tries = {case.name: tried(case.name, None, partial(pair, device, case)) for case in cases()}
        versions = {"webmm": webmm.__version__, "engine": device.engine.version()}
        versions |= {"numpy": np.__version__, "python": platform.python_version()}
        machine = {"device": device.info.name, "driver": device.info.driver, "processor": processor()}
        return {name: each for name, each in tries.items() if each}, {**machine, "versions": versions}


def ratios(processes: list[Pairs]) -> dict[str, Ratio]:
    """Return how many times as fast as NumPy each case is that no process lacks."""
    found = {name: [each.get(name) for each in processes] for name in processes[0]}
    return {name: Ratio.of(*zip(*of, strict=True)) for name, of in found.items() if all(of)}


def processor() -> str:
    """Return the processor's model, on which ratios depend, too."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.machine()


def commit_of(tree: Path) -> tuple[str, str]:
    """Return the commit of a work tree and its date (UTC); what differs from it cannot be measured."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", tree, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"{tree} has no commit to measure: {done.stderr.strip()}")
        return done.stdout

    if changed := git("status", "--porcelain", "--", "webmm", "shaders"):
        raise click.ClickException(f"{tree} differs from its commit; commit this first:\n{changed.rstrip()}")
    commit, seconds = git("log", "-1", "--format=%H %ct").split()
    return commit, datetime.fromtimestamp(int(seconds), timezone.utc).isoformat()


def put(file: Path, line: Line) -> list[str]:
    """Add a line to a file, in place of one on the same commit; return what is wrong with others, which are kept."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    kept = [raw for raw, each in parsed(text) if not (isinstance(each, Line) and each.commit == line.commit)]
    text = "".join(f"{each}\n" for each in (*kept, line.to_json()))
    write_atomically(file, lambda out: out.write(text.encode()))
    return [f"{file.name}: {words}" for words in read(text)[1]]


def alone(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a process of its own: BLAS reads its settings when NumPy is loaded."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function).result()


@click.group(help=__doc__)
def main() -> None:
    """Measure and draw."""


@main.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def measure(file: Path) -> None:
    """Measure the commit of the webmm that is imported, and add its line to FILE."""
    commit, date = commit_of(TREE)
    with tempfile.TemporaryDirectory() as cache:  # no tuned records of this machine
        for name in [name for name in os.environ if name.startswith(OTHERS)]:
            del os.environ[name]
        os.environ |= {"OPENBLAS_NUM_THREADS": "1", "WEBMM_CACHE_DIR": cache}
        measured = [alone(pairs) for _ in range(PAIRS)]
    line = Line(commit, date, **measured[-1][1], ratios=ratios([each for each, _ in measured]))
    if not line.ratios:
        raise click.ClickException("no call could be measured")
    for words in put(file, line):
        click.echo(f"{words}; it is kept", err=True)
    for name, each in line.ratios.items():
        print(f"{name:44} {each.median:8.3g} × NumPy ({each})")


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def draw(files: tuple[Path, ...], folder: Path) -> None:
    """Write what FILES have to FOLDER: a page with a chart and a table for each machine."""
    lines, wrong = [], []
    for file in files:
        found, complaints = read(file.read_text(encoding="utf-8"))
        lines += found
        wrong += [f"{file.name}: {words}" for words in complaints]
    text, charts = drawn(lines)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {PAGE: text, **charts}.items():
        (folder / name).write_text(content, encoding="utf-8")
    for words in wrong:
        click.echo(f"{words}; it is left out", err=True)


if __name__ == "__main__":
    main()
