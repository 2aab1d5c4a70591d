"""Benchmark of a foreign shader, with records like those of the ladder's stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from webmm.cases import op_of
from webmm.engine.device import Device
from webmm.engine.timing import submit, time_launch
from webmm.errors import ProblemError, ShaderError, UnsupportedError
from webmm.foreign import Foreign, Size
from webmm.measure import diagnosis
from webmm.measure.bench import record_of
from webmm.measure.records import Record
from webmm.measure.roofline import Roofline


def measured(
    foreign: Foreign, device: Device, sizes: Sequence[Size], dtype: str, ceiling: Roofline
) -> Iterator[Record]:
    """Yield a record for each size, checked against NumPy as the ladder's are, and timed if the result is right."""
    op = op_of("gemm")
    for size in sizes:
        problem = op.problem(size, dtype)
        case = op.case(device, problem)
        plain = record_of(device, problem, op.stages[0](), "runtime")
        record = dataclasses.replace(plain, kernel=foreign.name, config={})
        with device.array(np.full(problem.m * problem.n, np.nan), problem.out_dtype) as result:
            try:
                launch = foreign.launch(device, size, {**case.inputs, "c": result})
                submit(device, launch)
                got = result.numpy()
                error = case.error(got)
                if error <= case.bound:
                    timed = time_launch(device, launch)
                    known = record_of(
                        device, problem, op.stages[0](), timed=timed, max_error=error, bound=case.bound, ceiling=ceiling
                    )
                    yield dataclasses.replace(known, kernel=foreign.name, config={})
                else:
                    reason, _ = diagnosis.incorrect(case, got, error)
                    yield dataclasses.replace(record, status="incorrect", reason=reason, max_error=error)
            except (ProblemError, UnsupportedError) as failure:
                yield dataclasses.replace(record, status="unsupported", reason=str(failure))
            except ShaderError as failure:
                yield dataclasses.replace(record, status="compile", reason=str(failure))
