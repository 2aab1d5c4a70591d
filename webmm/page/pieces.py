"""Calls of any size on the page: piece after piece, where Python overlaps them (`webmm.calls.pieces`).

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from webmm.arguments.arrays import Shape
from webmm.calls.executor import Data, Labelled
from webmm.calls.operands import Temporaries
from webmm.calls.pieces import goes_through_host, planned_pieces
from webmm.calls.sides import assign, described, on_host, owned
from webmm.choose.limits import dispatch_limits
from webmm.cut.pieces import Piece, lengths_of
from webmm.engine.device import Array


def in_placed_pieces(
    call: Temporaries,
    compute: Callable[..., None],
    operands: Sequence[Labelled],
    result: Labelled,
    along: str,
    each: str = "",
    flops: int = 0,
) -> None:
    """Fill `result` by calls of `compute(piece, *operands, result)`, as `webmm.calls.pieces.in_placed_pieces()`."""
    device, whole = described(call), result
    binding = dispatch_limits(device).binding
    pieces = planned_pieces(device, call.devices[0].memory, operands, result, along, each, flops)
    if goes_through_host(result, pieces, binding):
        whole = replace(result, data=call.result(result.data.shape, result.dtype))
    for piece in pieces:
        arrays: list[Data] = []
        moved: list[Array] = []
        for one in [x.within(piece) for x in operands]:
            if not one.in_place(binding):
                moved.append(call.array(on_host(call, one.data)))
            arrays.append(one.data if one.in_place(binding) else moved[-1])
        if whole.on_host:
            target = call.empty(_shape_of(whole, piece), whole.dtype)
            owned(call, target)
            moved.append(target)
            compute(piece, *arrays, target)
            store(call, target, whole, piece)
        else:
            compute(piece, *arrays, whole.within(piece).data)
        for array in moved:  # as soon as possible; the call frees them if a step fails
            array.free()
    if whole.on_host and not result.on_host:
        assign(call, result.data, whole.data)


def _shape_of(whole: Labelled, piece: Piece) -> Shape:
    lengths = lengths_of(piece)
    return tuple([lengths.get(axis, length) for axis, length in zip(whole.axes, whole.data.shape, strict=True)])


# What JavaScript has of its own, whose arrays in host memory have no strides (`web/calls/pieces.js`)


def store(call: Temporaries, x: Data, whole: Labelled, piece: Piece) -> None:
    """Write the elements of a piece of an array in host memory."""
    assign(call, whole.within(piece).data, on_host(call, x))
