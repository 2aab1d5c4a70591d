"""Arrays on either side, in host memory or on a device: what the steps of calls do with them.

JavaScript has its own version of each (`web/calls/sides.js`), so that steps are written once: functions of this
package that use nothing else of NumPy or of a device can be translated, and wait where JavaScript must
(`webmm.page.script.waiting`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from webmm.arguments.arrays import Layout, Shape
from webmm.arguments.rows import ikj, ikj_shape
from webmm.calls import pieces
from webmm.calls.executor import Data, Labelled
from webmm.calls.expression import copied
from webmm.calls.operands import Temporaries, in_shape
from webmm.engine.device import Array


def is_resident(*operands: Data | None) -> bool:
    """Return whether any of the operands is on a device."""
    return any(isinstance(x, Array) for x in operands)


def reshaped(x: Data, shape: Shape) -> Data:
    """Return a contiguous array in another shape."""
    return x.reshape(shape)


def part_of(x: Data, axis: int, start: int, count: int) -> Data:
    """Return a view of a range of an axis."""
    key: list[slice] = [slice(None)] * x.ndim
    key[axis] = slice(start, start + count)
    return x[tuple(key)]


def laid_out(x: Array, layout: Layout) -> Array:
    """Return the view of an array on a device with this layout."""
    return Array(x.storage, layout.shape, x.element, layout.strides, layout.offset)


def spread(call: Temporaries, x: Data, shape: Shape) -> Data:
    """Return a view of an array that is repeated along new leading axes and axes of length 1."""
    del call
    return x.broadcast_to(shape) if isinstance(x, Array) else np.broadcast_to(x, shape)


def as_ikj(call: Temporaries, x: Data, axis: int) -> Data:
    """Return `x` as x[i, k, j] with k along `axis`: a view if its strides allow it, else of a copy."""
    del call
    if not isinstance(x, Array):
        return x.reshape(ikj_shape(x, axis))
    layout = ikj(x, axis)
    return in_shape(x, ikj_shape(x, axis)) if layout is None else laid_out(x, layout)


def from_start(call: Temporaries, x: Data) -> Data:
    """Return `x`, or a dense copy if it is on a device and does not fill a buffer from its start on."""
    del call
    return copied(x) if isinstance(x, Array) and (x.offset or not x.contiguous) else x


def labelled(x: Data, axes: str, anywhere: bool = True, placed: bool = False) -> Labelled:
    """Return an operand or a result with a letter for each axis: the last of `axes`, "1" for a length of 1.

    With `anywhere`, kernels accept any start element and any non-negative strides; so they do of a result that is
    `placed`.
    """
    letters = axes[len(axes) - x.ndim :]
    own = "".join("1" if length == 1 else letter for length, letter in zip(x.shape, letters, strict=True))
    return Labelled(x, own, anywhere, placed)


def in_pieces(
    call: Temporaries,
    compute: Callable[..., None],
    operands: Sequence[Labelled],
    result: Labelled,
    along: str,
    *,
    each: str = "",
    flops: int = 0,
) -> None:
    """Fill `result` by calls of `compute(*operands, result)`, as `webmm.calls.pieces.in_pieces()`.

    Letters of `along` and `each` that the result does not have are of no importance.
    """
    own = [_of(letters, result) for letters in (along, each)]
    pieces.in_pieces(call.devices, compute, operands, result, own[0], each=own[1], flops=flops)


def in_placed_pieces(
    call: Temporaries,
    compute: Callable[..., None],
    operands: Sequence[Labelled],
    result: Labelled,
    along: str,
    *,
    each: str = "",
    flops: int = 0,
) -> None:
    """As `in_pieces()`, for a `compute(piece, *operands, result)` that depends on where the piece is."""
    own = [_of(letters, result) for letters in (along, each)]
    pieces.in_placed_pieces(call.devices, compute, operands, result, own[0], each=own[1], flops=flops)


def _of(letters: str, result: Labelled) -> str:
    return "".join(letter for letter in letters if letter in result.axes)
