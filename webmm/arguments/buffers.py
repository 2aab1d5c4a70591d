"""Arrays as the buffers of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webmm.arguments.arrays import element_of
from webmm.errors import ProblemError
from webmm.problems.base import Extent, Problem


def check_buffers(problem: Problem, extents: Sequence[Extent], arrays: Sequence[Any], device: Any) -> None:
    """Raise ProblemError unless `arrays`, all on `device`, hold the `extents` that are the problem's buffers."""
    if len(arrays) != len(extents):
        names = ", ".join(extent.name for extent in extents)
        raise ProblemError(f"the problem needs {len(extents)} arrays ({names}); {len(arrays)} were given")
    for extent, array in zip(extents, arrays, strict=True):
        name, expected, found = extent.name, extent.dtype, element_of(array)
        if array.device is not device:
            raise ProblemError(f"{name} is on another device; copy it to this one")
        if found != expected:
            raise ProblemError(f"{name} is {found.name}; the problem expects {expected.name}")
        if array.capacity < extent.end:
            raise ProblemError(f"{name} has {array.capacity:,} elements; the problem {problem} needs {extent.end:,}")
