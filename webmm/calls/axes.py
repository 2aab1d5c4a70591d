"""Arrays as x[i, k, j] with k along the reduced axes: views if their strides allow it, else of a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from webmm.arguments.rows import each_ikj
from webmm.calls.executor import Data
from webmm.calls.operands import Temporaries
from webmm.calls.sides import is_resident, laid_out, on_host, permuted, reshaped

# The steps, in both languages


def each_as_ikj(call: Temporaries, xs: Sequence[Any], axes: tuple[int, ...]) -> list[list[Data]]:
    """Return arrays of one shape, all on a device or none, as x[i, k, j] with k along all of `axes`.

    Each element of the list has a view of every array; they are in the order of their (i, j) in the result.
    """
    layouts = each_ikj(xs, axes) if is_resident(*xs) else []
    if layouts:
        return [[laid_out(x, layout) for x, layout in zip(xs, each, strict=True)] for each in layouts]
    return [[_as_ikj(call, on_host(call, x), axes) for x in xs]]


def _as_ikj(call: Temporaries, x: Data, axes: tuple[int, ...]) -> Data:
    length = math.prod([x.shape[a] for a in axes])
    if axes and axes[-1] - axes[0] < len(axes):
        return reshaped(x, (math.prod(x.shape[: axes[0]]), length, math.prod(x.shape[axes[-1] + 1 :])))
    others = [a for a in range(x.ndim) if a not in axes]
    return reshaped(permuted(call, x, (*others, *axes)), (x.size // length, length, 1))
