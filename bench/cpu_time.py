"""Run `webmm` with the CPU time of its process in place of the wall clock: for CPU adapters, beside other work.

    python bench/cpu_time.py bench --ablate pipelined --sizes 128x256x128 --adapter cpu --json FILE

A CPU driver computes in threads of the process. What else runs on the machine lengthens their wall time by any factor,
their CPU time by little. It is the sum over the threads, so that idle cores do not show; rates are per second of it.
The records' clock is then `cpu`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from webmm.cli import main
from webmm.engine import timing


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of the process during a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    timing._wall = cpu_seconds
    timing.clock_of = lambda device: "cpu"
    main()
