"""Random problems and sequences of calls, compared with float64 NumPy. A seed is a problem or a sequence.

    fuzz.py 30000 --seed 0                           # 30,000 problems
    fuzz.py --steps 100000 --seed 7 --engine dawn    # sequences, until they have made 100,000 calls
    fuzz.py --kills 500 --seed 3                     # products in files, interrupted by 500 kills

Seeds are checked in a process of their own, which is replaced when it has grown; one that dies is a failed seed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import itertools
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import kills
from draw import GROUP, Draw, wrong
from sequences import LENGTH, alone, shortened
from table import ALL, DEVICES, OPS
from threads import THREADS, together

from webmm import Device

TELL = 10  # seconds between lines about the progress
STUCK = 300  # seconds after which a problem is considered to hang; on a busy machine, compilation takes long
MOST_MEMORY = 3 * 2**29  # bytes of a process that is replaced


@functools.cache
def opened(name: str) -> Device:
    """Return the device with this name in the table."""
    limits = dict(DEVICES[name])
    memory = limits.pop("memory", None)
    device = Device(limits=limits)
    device.memory = memory or device.memory
    return device


def kind_of(seed: int) -> str:
    """Return the op of the problem with this seed."""
    return [*OPS][seed // GROUP % len(OPS)]


def check(seed: int) -> str:
    """Return a description of what is wrong with the problem of this seed; empty if its result is right."""
    op = kind_of(seed)
    return _check(seed, op, OPS[op].devices, _problem)


def _problem(draw: Draw) -> str:
    return wrong(*OPS[kind_of(draw.seed)].problem(draw)) or draw.strays()


def check_sequence(seed: int, shorten: bool = False) -> str:
    """Return a description of what is wrong in the sequence of this seed, of few steps if it is to be shortened.

    One of four sequences is of several threads.
    """
    kind, run = ("threads", together) if in_threads(seed) else ("sequence", alone)
    return _check(seed, kind, ALL, run, shorten)


def in_threads(seed: int) -> bool:
    return seed % 4 == 3


def _check(
    seed: int, kind: str, devices: tuple[str, ...], run: Callable[[Draw], str | None], shorten: bool = False
) -> str:
    draw = Draw(seed, opened("plain"))
    draw.device = opened(draw.setting("device", devices))
    try:
        problem = run(draw) or ""
    except Exception as error:
        problem = traceback.format_exc()
        draw = shortened(draw, error) if shorten and run is alone else draw
    return f"seed {seed}: {kind}: {problem}\n  {'; '.join(draw.words)}" if problem else ""


# Long runs


def _problems(seed: int) -> tuple[str, int]:
    return check(seed), 1


def _steps(seed: int) -> tuple[str, int]:
    return check_sequence(seed, shorten=True), LENGTH * (THREADS if in_threads(seed) else 1)


# What is counted: what is wrong with a seed, and its count.
MODES: dict[str, Callable[[int], tuple[str, int]]] = {
    "problems": _problems,
    "steps": _steps,
    "kills": kills.check,
}


def _in_child(mode: str, seed: int) -> tuple[str, int, int]:
    """Return what is wrong with a seed, its count, and the bytes of this process."""
    faulthandler.dump_traceback_later(STUCK, exit=True)
    words, count = MODES[mode](seed)
    faulthandler.cancel_dump_traceback_later()
    return words, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def results(mode: str, first: int) -> Iterator[tuple[int, str, int]]:
    """Yield each seed, what is wrong with it, and its count."""
    seeds = itertools.count(first)
    while True:
        with ProcessPoolExecutor(1, get_context("spawn"), faulthandler.enable) as process:
            for seed in seeds:
                try:
                    words, count, grown = process.submit(_in_child, mode, seed).result()
                except BrokenProcessPool:
                    words, count, grown = f"seed {seed}: the process died", 0, MOST_MEMORY
                yield seed, words, count
                if grown >= MOST_MEMORY:
                    break


def run(mode: str, wanted: int, first: int) -> int:
    """Check seeds until they have made up the wanted count, print those that failed, and return their number."""
    done, failed, start = 0, 0, time.monotonic()
    told = start
    for seed, words, count in results(mode, first):
        done += count
        if words:
            failed += 1
            again = f"--seed {seed} 1" if mode == "problems" else f"--{mode} 1 --seed {seed}"
            print(f"{words}\n  again: tests/fuzz/fuzz.py {again}", flush=True)
        now = time.monotonic()
        if done >= wanted or now - told > TELL:
            told, rate = now, done / (now - start)
            print(
                f"{done:,} {mode} in {now - start:.0f} s ({rate:.1f} per second), "
                f"{failed} seeds failed; next: --seed {seed + 1}",
                flush=True,
            )
        if done >= wanted:
            return failed
    raise AssertionError("seeds do not end")


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=int, nargs="?", default=500, help="check so many problems")
    parser.add_argument("--steps", type=int, help="check sequences instead, until they have made so many calls")
    parser.add_argument("--kills", type=int, help="multiply files instead, with so many kills")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; the others follow")
    parser.add_argument("--engine", choices=("wgpu", "dawn"))
    options = parser.parse_args()
    if options.engine:
        os.environ["WEBMM_ENGINE"] = options.engine
    mode = "steps" if options.steps else "kills" if options.kills else "problems"
    return bool(run(mode, getattr(options, mode), options.seed))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="webmm-fuzz-") as folder, contextlib.suppress(KeyboardInterrupt):
        os.environ["WEBMM_CACHE_DIR"] = folder  # records in the user's cache would change the choice of kernels
        sys.exit(main())
