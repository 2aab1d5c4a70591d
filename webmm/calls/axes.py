"""Arrays as x[i, k, j] with k along the reduced axes: views if their strides allow it, else of a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from webmm.arguments.rows import each_ikj
from webmm.calls.executor import Data
from webmm.calls.sides import laid_out
from webmm.engine.device import Array


def each_as_ikj(xs: Sequence[Data], axes: tuple[int, ...]) -> list[list[Data]]:
    """Return arrays of one shape, all on a device or none, as x[i, k, j] with k along all of `axes`.

    Each element of the list has a view of every array; they are in the order of their (i, j) in the result.
    """
    arrays = [x for x in xs if isinstance(x, Array)]
    if arrays:
        found: list[list[Data]] = [
            [laid_out(x, layout) for x, layout in zip(arrays, each, strict=True)] for each in each_ikj(arrays, axes)
        ]
        return found or each_as_ikj([x.numpy() for x in arrays], axes)
    return [[_on_host(x, axes) for x in xs]]


def _on_host(x: Data, axes: tuple[int, ...]) -> Data:
    length = math.prod(x.shape[a] for a in axes)
    if axes and axes[-1] - axes[0] < len(axes):
        return x.reshape(math.prod(x.shape[: axes[0]]), length, math.prod(x.shape[axes[-1] + 1 :]))
    others = [a for a in range(x.ndim) if a not in axes]
    return x.transpose(*others, *axes).reshape(x.size // length, length, 1)
