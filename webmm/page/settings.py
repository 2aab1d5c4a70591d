"""Which settings of a stage the page offers and tries next.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from webmm.dtypes import FLOATS
from webmm.kernels.base import Kernel
from webmm.measure.records import Record
from webmm.page.browser import Browser, first_able, spelled, stage_for
from webmm.page.stages import configurations, offered
from webmm.problems.gemm import Gemm

Stage = Kernel[Any]
EXPLORED = 3  # every so manyth candidate of a search is any one, so that it leaves the neighbourhood of the best
SLOWER = 2.5  # times the best so far: a kernel whose first run takes longer is not timed
OTHER_STAGE = 4  # how many settings a kernel of another stage counts for


def choices(kernel: Stage, name: str) -> list[Any]:
    """Return the values to choose from for the tunable `name`, numbers in order: its candidates and the present one."""
    field = next(field for field in dataclasses.fields(kernel) if field.name == name)
    found = list(dict.fromkeys((*field.metadata["candidates"], kernel.config[name])))
    return found if any(isinstance(value, str) for value in found) else sorted(found)


def nearest(kernel: Stage, name: str, value: Any, starts: Sequence[Stage] | None) -> Stage:
    """Return the valid kernel with the tunable `name` set to `value` that differs least from `kernel`.

    It has the other settings of `kernel` or of one of `starts`, by default of kernels with one other value than
    `kernel`. If there is none, it is `kernel` itself.
    """
    same = _with(kernel, name, value)
    if same:
        return same[0]
    others = [
        made for start in (neighbours(kernel) if starts is None else starts) for made in _with(start, name, value)
    ]
    return min(others, key=lambda other: _distance(kernel, other, name), default=kernel)


def neighbours(kernel: Stage) -> list[Stage]:
    """Return the valid kernels that differ from `kernel` in at most one tunable, which has one of its candidates."""
    return [
        made
        for field in dataclasses.fields(kernel)
        for value in field.metadata["candidates"]
        for made in _with(kernel, field.name, value)
    ]


def _with(kernel: Stage, name: str, value: Any) -> list[Stage]:
    """Return the kernel with another value of a tunable; [] if it is not valid."""
    made = dataclasses.replace(kernel, **{name: value})
    return [made] if made.invalid() is None else []


def changes(kernel: Stage, other: Stage) -> list[tuple[str, Stage | None]]:
    """Return each setting of `other` that differs, in words, with `kernel` changed so; None if that is invalid."""
    changed = [(name, value) for name, value in other.config.items() if kernel.config[name] != value]
    return [
        (f"{name} {kernel.config[name]} → {value}", next(iter(_with(kernel, name, value)), None))
        for name, value in changed
    ]


def _distance(kernel: Stage, other: Stage, name: str) -> float:
    """Return how much two kernels differ in other tunables than `name`: 1 for each, more for larger ratios."""
    pairs = [(x, other.config[key]) for key, x in kernel.config.items() if key != name]
    return sum(1 + _ratio(x, y) / 8 for x, y in pairs if x != y)


def _ratio(x: Any, y: Any) -> float:
    """Return by how many factors of two two values differ; 0 if they are no numbers."""
    return 0.0 if isinstance(x, str) or isinstance(y, str) else abs(math.log2(x / y))


def searched(problem: Gemm, browser: Browser, records: Sequence[Record]) -> Iterator[tuple[Stage, float, str]]:
    """Yield the page's configurations in the order in which a search for the fastest tries them.

    The chosen one and the defaults of the stages, the last stage first, come first, then neighbours of the best so far,
    and every third time another one. With each come the seconds of a first run after which it is not timed, and its
    turn in words. `records` has one of each that was tried.
    """
    left = _every(problem, browser)
    total = len(left)
    best, least = None, math.inf  # its seconds
    for turn in range(total):
        kernel = left.pop(upcoming(left, best, turn))
        yield kernel, SLOWER * least + 0.001, f"{turn + 1} of {total}"
        seconds = (records[-1].median_us or math.inf) / 1e6
        if seconds < least:
            best, least = kernel, seconds


def _every(problem: Gemm, browser: Browser) -> list[Stage]:
    """Return the page's configurations: the chosen one, the defaults of the stages from the last on, and all others."""
    stages = offered()
    defaults = [stage_for(stage.name, None, browser) for stage in reversed(stages)]
    every = [spelled(kernel, browser) for stage in stages for kernel in configurations(stage, browser.capabilities)]
    return list(dict.fromkeys([first_able(problem, browser), *defaults, *every]))


def upcoming(left: Sequence[Stage], best: Stage | None, turn: int) -> int:
    """Return the index in `left` of the next kernel that a search tries, after `turn` others.

    The first ones, the chosen kernel and the defaults of the stages, come in order; then mostly those nearest to the
    best.
    """
    if best is None or turn <= len({kernel.name for kernel in left}):
        return 0
    if turn % EXPLORED == 0:
        return turn * 7919 % len(left)
    return min(range(len(left)), key=lambda i: _changes(left[i], best))


def suited(kernel: Stage, problem: Gemm) -> Gemm:
    """Return the problem with an element type that the kernel supports, or as it is if there is none."""
    if kernel.unsuited(problem) is None:
        return problem
    others = [dataclasses.replace(problem, dtype=dtype, out_dtype=dtype) for dtype in FLOATS]
    return next((other for other in others if kernel.unsuited(other) is None), problem)


def _changes(kernel: Stage, best: Stage) -> int:
    """Return in how many settings a kernel differs from the best one."""
    changed = [name for name, value in kernel.config.items() if best.config.get(name) != value]
    return len(changed) + (0 if kernel.name == best.name else OTHER_STAGE)
