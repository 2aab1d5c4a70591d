"""Views of operands with the axes that kernels take, or copies if their strides do not allow such views.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from webmm.arguments.arrays import Layout
from webmm.arguments.products import matrix_operand
from webmm.arguments.rows import each_ikj, ikj, ikj_shape
from webmm.calls.executor import Data
from webmm.calls.operands import Temporaries
from webmm.calls.sides import arranged, in_shape, is_resident, laid_out, on_host, permuted, reshaped
from webmm.engine.device import Array


def as_ikj(call: Temporaries, x: Data, axis: int) -> Data:
    """Return `x` as x[i, k, j] with k along `axis`."""
    return arranged(call, x, lambda x: ikj(x, axis), ikj_shape(x, axis))


def as_matrices(x: Data, ndim: int, rows: bool, columns: bool) -> Data:
    """Return a view of an array with the axes of a product of matrices, with length 1 where it broadcasts.

    `ndim` is that of the operand, or of the result, that it is or is added to, without the axes that vectors drop:
    `rows` or `columns` says that it gets these.
    """
    if ndim == x.ndim and not rows and not columns:
        return x
    more, last = ndim - x.ndim, (1,) if columns else ()
    shape, strides = (*(1,) * more, *x.shape, *last), (*(0,) * more, *x.strides, *last)
    if rows:
        shape, strides = (*shape[:-1], 1, shape[-1]), (*strides[:-1], 0, strides[-1])
    return laid_out(x, Layout(shape, strides, x.offset)) if isinstance(x, Array) else reshaped(x, shape)


def each_as_ikj(call: Temporaries, xs: Sequence[Any], axes: tuple[int, ...]) -> list[list[Data]]:
    """Return arrays of one shape, all on a device or none, as x[i, k, j] with k along all of `axes`.

    Each element of the list has a view of every array; they are in the order of their (i, j) in the result.
    """
    layouts = each_ikj(xs, axes) if is_resident(*xs) else []
    if layouts:
        return [[laid_out(x, layout) for x, layout in zip(xs, each, strict=True)] for each in layouts]
    return [[_of_host(call, on_host(call, x), axes) for x in xs]]


def _of_host(call: Temporaries, x: Data, axes: tuple[int, ...]) -> Data:
    length = math.prod([x.shape[a] for a in axes])
    if axes and axes[-1] - axes[0] < len(axes):
        return reshaped(x, (math.prod(x.shape[: axes[0]]), length, math.prod(x.shape[axes[-1] + 1 :])))
    others = [a for a in range(x.ndim) if a not in axes]
    return reshaped(permuted(call, x, (*others, *axes)), (x.size // length, length, 1))


def readable(call: Temporaries, x: Data) -> Data:
    """Return `x`, or a copy in host memory if no kernel can read the strides of its matrices."""
    return on_host(call, x) if isinstance(x, Array) and matrix_operand(x) is None else x


def rows_of(call: Temporaries, x: Data) -> Data:
    """Return `x` as a matrix whose columns are its last axis."""
    columns = x.shape[-1]
    return x if x.ndim == 2 else in_shape(call, x, (x.size // columns if columns else 0, columns))
