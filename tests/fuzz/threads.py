"""Several threads run a sequence of calls each, on one device, with common operands."""

from __future__ import annotations

import threading
import traceback
from itertools import product

import numpy as np
from draw import Draw
from live import Live, Pair
from sequences import Sequence, fast_kernels, without_leaks

THREADS = 3
STUCK = 120  # seconds


def together(draw: Draw) -> None:
    """Run sequences of a seed in threads; what one finds wrong raises."""
    wrong: list[str] = []
    sequences = [Sequence(Draw(draw.seed, draw.device, thread)) for thread in range(1, THREADS + 1)]
    with fast_kernels(draw.device), without_leaks(draw.device):
        shared = common(Live(draw))

        def work(sequence: Sequence) -> None:
            try:
                sequence.shared += shared
                sequence.run()
            except Exception:
                wrong.append(f"{traceback.format_exc()}{'; '.join(sequence.draw.words)}")
            finally:
                sequence.live.clear()

        threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in sequences]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(STUCK)
            if thread.is_alive():
                raise AssertionError("a thread hangs")
        if wrong:
            raise AssertionError("\n".join(wrong))
        for each in sequences:
            each.shared.clear()
        while shared:
            sequences[0].check(shared.pop())


def common(s: Live) -> list[Pair]:
    """Return arrays of every shape, which all threads read."""
    values = [s.whole(shape) for shape in product(s.lengths, s.lengths)]
    return [Pair(s.device.array(each), each.astype(np.float64)) for each in values]
