"""Random problems and sequences of calls, compared with float64 NumPy: `make fuzz N=30000`. A seed is a problem."""

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
STUCK = 300  # seconds after which a problem is considered to hang; on a busy machine, compilation takes long


@functools.cache
def opened(name: str) -> Device:
    """Return the device with this name in the table."""
    limits = dict(DEVICES[name])
    memory = limits.pop("memory", None)
    device = Device(limits=limits)
    device.memory = memory or device.memory
    return device


def kind_of(seed: int) -> str:
    """Return the op of the problem with this seed, or "sequence"."""
    return KINDS[seed // GROUP % len(KINDS)]


def check(seed: int) -> str:
    """Return a description of what is wrong with the problem of this seed; empty if its result is right."""
    kind = kind_of(seed)
    draw = Draw(seed, opened("plain"))
    draw.device = opened(draw.setting("device", OPS[kind].devices if kind in OPS else ALL))
    try:
        problem = Sequence(draw).run() if kind not in OPS else wrong(*OPS[kind].problem(draw)) or draw.strays()
    except Exception:
        problem = traceback.format_exc()
    return f"seed {seed}: {kind}: {problem}\n  {'; '.join(draw.words)}" if problem else ""


def main() -> int:
    """Check problems with consecutive seeds, and print the seeds of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=500)
    parser.add_argument("seed", type=int, nargs="?", default=0, help="seed of the first problem; the others follow")
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
        os.environ["WEBMM_CACHE_DIR"] = folder  # records in the user's cache would change the choice of kernels
        sys.exit(main())
