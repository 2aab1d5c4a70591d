"""Benchmark of a foreign shader, with records like those of the ladder's stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from webmm.cases.base import Case, blank
from webmm.engine import timing
from webmm.engine.device import Device
from webmm.errors import ProblemError, ShaderError, UnsupportedError
from webmm.foreign import Foreign
from webmm.foreign.tasks import Size, Task, Work
from webmm.measure import diagnosis
from webmm.measure.bench import record_of
from webmm.measure.records import Record
from webmm.measure.roofline import Roofline


def measured(
    foreign: Foreign,
    device: Device,
    work: Work,
    sizes: Sequence[Size],
    ceiling: Roofline | None = None,
    warm_up: float = timing.WARM_UP,
) -> Iterator[Record]:
    """Yield a record for each size, checked against NumPy as the ladder's are, and timed if the result is right.

    Its kernel is the name of the file, and its config the values of the tunables.
    """
    for task in map(work.task, sizes):
        yield of_case(foreign, device, work, task, work.case(device, task), ceiling, warm_up)


def of_case(
    foreign: Foreign,
    device: Device,
    work: Work,
    task: Task,
    case: Case[Any],
    ceiling: Roofline | None = None,
    warm_up: float = timing.WARM_UP,
) -> Record:
    """Return the record of a text for the operands of a task."""
    problem = task.problem
    with device.array(blank(task.written), task.written.dtype) as result:
        try:
            launch = foreign.launch(device, task.lengths, {**case.inputs, task.written.name: result})
            timing.submit(device, launch)
            got = result.numpy()
            error = case.error(got)
            if not error <= case.bound:
                reason, _ = diagnosis.incorrect(case, got, error, lambda place: work.name(problem, place))
                return record_of(device, problem, foreign, "incorrect", reason, max_error=error)
            timed = timing.time_launch(device, launch, warm_up)
        except (ProblemError, UnsupportedError) as failure:
            return record_of(device, problem, foreign, "unsupported", str(failure))
        except ShaderError as failure:
            return record_of(device, problem, foreign, "compile", str(failure))
    return record_of(device, problem, foreign, timed=timed, max_error=error, bound=case.bound, ceiling=ceiling)
