"""Random problems of every op, and calls in a row, against float64 NumPy: `make fuzz N=30000`; a seed is a problem."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import os
import sys
import tempfile
import time
import traceback

from draw import GROUP, Draw, wrong
from sequences import Sequence
from table import ALL, DEVICES, OPS

from webmm import Device

KINDS = [*OPS, "sequence"]  # of problems
STUCK = 300  # seconds after which a problem is taken to hang; compiling takes a busy machine many


@functools.cache
def opened(name: str) -> Device:
    """Return the device called so in the table."""
    limits = dict(DEVICES[name])
    memory = limits.pop("memory", None)
    device = Device(limits=limits)
    device.memory = memory or device.memory
    return device


def kind_of(seed: int) -> str:
    """Return the op of the problem of this seed, or that it is a sequence of them."""
    return KINDS[seed // GROUP % len(KINDS)]


def check(seed: int) -> str:
    """Return what is wrong with the result of the problem of this seed, empty where it is right."""
    kind = kind_of(seed)
    draw = Draw(seed, opened("plain"))
    draw.device = opened(draw.setting("device", OPS[kind].devices if kind in OPS else ALL))
    try:
        problem = Sequence(draw).run() if kind not in OPS else wrong(*OPS[kind].problem(draw)) or draw.strays()
    except Exception:
        problem = traceback.format_exc()
    return f"seed {seed}: {kind}: {problem}\n  {'; '.join(draw.words)}" if problem else ""


def main() -> int:
    """Check as many problems as asked for, and print the seeds of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=500)
    parser.add_argument("seed", type=int, nargs="?", default=0, help="of the first; the others follow")
    options = parser.parse_args()
    first, failed, start = options.seed, 0, time.monotonic()
    for seed in range(first, first + options.count):
        faulthandler.dump_traceback_later(STUCK, exit=True)
        if words := check(seed):
            failed += 1
            print(f"{words}\n  again: make fuzz SEED={seed} N=1", flush=True)
        done = seed - first + 1
        if done % 100 == 0 or done == options.count:
            print(
                f"{done} done in {time.monotonic() - start:.0f} s, {failed} failed; next: SEED={seed + 1}", flush=True
            )
    return bool(failed)


if __name__ == "__main__":
    faulthandler.enable()
    with tempfile.TemporaryDirectory(prefix="webmm-fuzz-") as folder, contextlib.suppress(KeyboardInterrupt):
        os.environ["WEBMM_CACHE_DIR"] = folder  # what a user tuned would change what is chosen
        sys.exit(main())
