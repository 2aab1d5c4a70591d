"""Random problems of every op against float64 NumPy: `make fuzz N=30000 SEED=0`. The same seed is the same problem."""

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
from table import DEVICES, OPS

from webmm import Device

STUCK = 300  # seconds after which a problem is taken to hang; compiling takes a busy machine many


@functools.cache
def opened(name: str) -> Device:
    """Return the device called so in the table."""
    limits = dict(DEVICES[name])
    memory = limits.pop("memory", None)
    device = Device(limits=limits)
    device.memory = memory or device.memory
    return device


def check(seed: int) -> str:
    """Return what is wrong with the result of the problem of this seed, empty where it is right."""
    op = list(OPS)[seed // GROUP % len(OPS)]
    draw = Draw(seed, opened("plain"))
    draw.device = opened(draw.setting("device", OPS[op].devices))
    try:
        got, expected, allowed, dtype = OPS[op].problem(draw)
        problem = wrong(got, expected, allowed, dtype) or draw.strays()
    except Exception:
        problem = traceback.format_exc()
    return f"seed {seed}: {op}: {problem}\n  {'; '.join(draw.words)}" if problem else ""


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
