"""Search over the tunables of a foreign shader: each combination is checked before it is timed."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from webmm.cases.base import Case
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError, ShaderError, UnsupportedError
from webmm.foreign import Foreign, tunables
from webmm.foreign.bench import of_case
from webmm.foreign.check import SizeCheck
from webmm.foreign.tasks import Size, Work
from webmm.measure.bench import record_of
from webmm.measure.records import Record


@dataclass(frozen=True)
class Combination:
    """What a record says of a text that may not even take these values."""

    name: str
    config: dict[str, int]
    matrix_shape: None = None


def combinations(foreign: Foreign) -> list[dict[str, int]]:
    """Return the combinations of values of the tunables: the first ones, then the others in a fixed random order.

    Raises ConfigError as `webmm.foreign.tunables.combinations()`.
    """
    first, *rest = tunables.combinations(foreign.tunables)
    random.Random(0).shuffle(rest)
    return [first, *rest]


def search(
    foreign: Foreign,
    device: Device,
    work: Work,
    size: Size,
    budget: float,
    on_progress: Callable[[str, int, int], object] = lambda label, done, total: None,
) -> Iterator[Record]:
    """Yield a record for each combination of the tunables, until `budget` seconds have passed.

    A combination must be right at `size`, and at a size that is no multiple of tiles if it takes several; those that
    are not are recorded with the reason.
    """
    start, tried = time.perf_counter(), combinations(foreign)
    sizes = [size] if work.fixed or not foreign.sized else [size, _ragged(work)]
    checks = [SizeCheck(work, work.task(each)) for each in dict.fromkeys(sizes)]
    case = functools.cache(lambda: work.case(device, checks[0].task))  # the operands of all combinations
    for done, config in enumerate(tried):
        if done and time.perf_counter() - start > budget:
            return
        on_progress(",".join(f"{name}={value}" for name, value in config.items()), done, len(tried))
        yield _outcome(foreign, config, device, work, checks, case)


def _outcome(
    foreign: Foreign,
    config: dict[str, int],
    device: Device,
    work: Work,
    checks: list[SizeCheck],
    case: Callable[[], Case[Any]],
) -> Record:
    problem = checks[0].task.problem
    named = Combination(foreign.name, config)
    try:
        text = foreign.configured(config)
        for each in checks:
            if words := each.errors(each.run(text, device)):
                return record_of(device, problem, named, "incorrect", f"{each.task.label}: {words}")
    except (ConfigError, ProblemError, UnsupportedError) as failure:
        return record_of(device, problem, named, "unsupported", str(failure))
    except ShaderError as failure:
        return record_of(device, problem, named, "compile", str(failure))
    return of_case(text, device, work, checks[0].task, case(), warm_up=0.05)


def _ragged(work: Work) -> Size:
    """Return a size that is no multiple of common tiles."""
    return next((size for size in work.sizes if size[0] % 2 and size[1] % 2), work.sizes[-1])
