"""The number of the current generation of what the choice of kernels rests on, and how a new one begins.

That is: tuned records, corrections of the cost model, probed rates, and the registered stages. What is cached of them
(chosen kernels, plans of repeated calls, rates) has the generation in its key, read before anything else, so that a
change counts for the next call of every device, and what another thread caches meanwhile is not found again. Only
changes by this process count: another process's are read with whatever is chosen next.

This module is in the translated subset (docs/page.md).
"""

import itertools

_numbers = itertools.count(1)
current = 0


def advance() -> None:
    """Begin a new generation, after a change."""
    global current
    current = next(_numbers)  # never a number that was in use, in whatever order threads come here
