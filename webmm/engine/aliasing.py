"""Which arrays share memory: whether an output may be written while operands are read.

The checks are in the translated subset (docs/page.md).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.arguments.buffers import check_buffers
from webmm.engine.view import AnyView, View
from webmm.errors import ProblemError
from webmm.problems.base import Problem

MOST_WORK = 10_000  # steps of the exact comparison of two strided NumPy arrays; beyond, only their ends are compared


def overlap(x: AnyView | NDArray[Any], y: AnyView | NDArray[Any]) -> bool:
    """Tell whether writing to `x` may change `y`.

    Arrays on a device overlap if they share a buffer, even where they share no element: no dispatch may both read and
    write a buffer. Arrays in host memory overlap if they share an element, or map the same bytes of a file. Raises
    FreedArrayError for an array that was freed.
    """
    if isinstance(x, View) and isinstance(y, View):
        return bool(x.storage.buffer is y.storage.buffer)
    if isinstance(x, View) or isinstance(y, View):
        return False
    if np.may_share_memory(x, y, max_work=MOST_WORK):  # type: ignore[arg-type]
        return True
    (file, start, stop), (other, first, end) = _mapped(x), _mapped(y)
    return file is not None and file == other and start < end and first < stop


def check_separate(name: str, out: AnyView | NDArray[Any], read: Mapping[str, AnyView | NDArray[Any] | None]) -> None:
    """Raise ProblemError if `out`, called `name`, overlaps one of the arrays that are read while it is written.

    A view counts by the array that it was made of, also if the call would copy it.
    """
    for each, x in read.items():
        if x is not None and overlap(out, x):
            shared = "shares its buffer with" if isinstance(out, View) else "overlaps"
            raise ProblemError(f"{name} {shared} {each}, which is read while {name} is written; pass a separate array")


def check_arrays(problem: Problem, arrays: Sequence[AnyView], device: Any) -> None:
    """Raise ProblemError unless `arrays`, all on `device`, fit a problem's buffers, and share none that is written."""
    extents = problem.buffers()
    check_buffers(problem, extents, arrays, device)
    for extent, out in zip(extents, arrays, strict=True):
        if extent.written:
            others = {other.name: x for other, x in zip(extents, arrays, strict=True) if other is not extent}
            check_separate(extent.name, out, others)


def _mapped(x: NDArray[Any]) -> tuple[tuple[int, int] | None, int, int]:
    """Return the file that `x` is a view of, None if it is not in a memory map, and its bytes' start and end there."""
    whole: Any = x
    while isinstance(whole, np.ndarray) and not (isinstance(whole, np.memmap) and isinstance(whole.base, mmap.mmap)):
        whole = whole.base
    if not isinstance(whole, np.memmap) or not whole.filename or not x.size or not os.path.exists(whole.filename):
        return None, 0, 0
    found = os.stat(whole.filename)
    reach = [(length - 1) * stride for length, stride in zip(x.shape, x.strides, strict=True)]
    start = x.__array_interface__["data"][0] - whole.__array_interface__["data"][0] + int(whole.offset)
    ends = (sum(min(0, each) for each in reach), sum(max(0, each) for each in reach))
    return (found.st_dev, found.st_ino), start + ends[0], start + ends[1] + x.itemsize
