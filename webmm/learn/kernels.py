"""What directives need of kernels: stages and problems by the words of a chapter."""

from __future__ import annotations

from typing import Any

from webmm.cases import op_of
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem


def stage_of(words: str, **tunables: Any) -> Kernel[Any]:
    """Return the kernel of OP/STAGE with tunables; raises ConfigError if there is no such stage or tunable."""
    op, _, name = words.partition("/")
    cls = _stages(op).get(name)
    if cls is None:
        raise ConfigError(f"{words} is not a stage; write OP/STAGE, such as gemm/naive")
    known = {tunable for tunable, _, _ in cls().constants}
    if unknown := set(tunables) - known:
        raise ConfigError(f"{words} has no tunable {min(unknown)!r}; it has {', '.join(sorted(known)) or 'none'}")
    kernel: Kernel[Any] = cls(**tunables)
    return kernel


def _stages(op: str) -> dict[str, type[Kernel[Any]]]:
    """Return the stages of an op by name, with those that only its prepared ladders have: float64's."""
    if op not in STAGES:
        return {}
    prepared = (kernel for ladder in op_of(op).ladders for kernels in ladder.kernels.values() for kernel in kernels)
    return {kernel.name: type(kernel) for kernel in prepared} | dict(STAGES[op])


def problem_for(words: str, size: str, dtype: str = "float32") -> Problem:
    """Return the dense problem of an op, OP[:VARIANT] or OP/STAGE, and a size: one number for all sides, or MxNxK."""
    row = op_of(words.partition("/")[0])
    problem: Problem = row.problem(row.parse(str(size)), dtype)
    return problem
