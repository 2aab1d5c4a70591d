"""Calls of any size: a call is cut along axes with independent results until every piece fits.

A piece fits if its data fits a binding, its work one dispatch and, for NumPy arrays, its data `Device.memory`. Pieces
of `Array`s are read and written in place; a piece that no binding can cover is copied through the host. On several
devices, each computes a piece along the longest axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from webmm.calls.devices import concurrently
from webmm.calls.executor import Execution, Labelled, shrinking
from webmm.calls.operands import Temporaries
from webmm.choose.limits import BANDWIDTH, dispatch_limits, moving_limits
from webmm.cut.arrays import array_pieces
from webmm.cut.devices import proportional
from webmm.cut.pieces import Piece, lengths_of, moved
from webmm.engine.device import Array, Device

LEAST_MOVED = 2**20  # bytes of operands and results for which another device is used


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
    """Fill `result` by calls of `compute(*operands, result)` on pieces, cut along the axes with the letters `along`.

    JavaScript has its own version (`web/calls/pieces.js`), which computes piece after piece (`webmm.page.pieces`).
    Letters of `along` and `each` that the result does not have are of no importance.
    `compute` queues the dispatches for a piece on the device of its arguments; with several devices, in several
    threads. No axis may be empty. Pieces have length 1 along the axes `each`. `flops` is the number of operations of
    the whole call. Raises UnsupportedError if a piece of length 1 along all axes is still too large, and
    MemoryLimitError if the device has too little memory for the smallest pieces that are tried.
    """

    def anywhere(_: Piece, *arrays: Array) -> None:
        compute(*arrays)

    in_placed_pieces(call, anywhere, operands, result, along, each=each, flops=flops)


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
    _on_devices(call.devices, compute, operands, result, along, each, flops)


def _on_devices(
    devices: list[Device],
    compute: Callable[..., None],
    operands: Sequence[Labelled],
    result: Labelled,
    along: str,
    each: str,
    flops: int,
) -> None:
    everything = [*operands, result]
    if len(devices) > 1 and _of(result, each + along) and sum(map(_nbytes, everything)) >= 2 * LEAST_MOVED:
        _divide(devices, compute, operands, result, along, each, flops)
        return
    device = devices[0]

    def attempt(memory: int) -> None:
        pieces = planned_pieces(device, memory, operands, result, along, each, flops)
        _fill(device, pieces, compute, operands, result, dispatch_limits(device).binding)

    if any(one.on_host for one in everything):
        shrinking(device.memory, attempt)
    else:
        attempt(device.memory)


def _nbytes(one: Labelled) -> int:
    return math.prod(one.data.shape) * one.dtype.itemsize


def _divide(
    devices: list[Device],
    compute: Callable[..., None],
    operands: Sequence[Labelled],
    result: Labelled,
    along: str,
    each: str,
    flops: int,
) -> None:
    """Compute a piece on each device, in proportion to the bytes that it can move."""
    lengths = dict(zip(result.axes, result.data.shape, strict=True))
    axis = max(_of(result, each + along), key=lambda letter: lengths[letter])

    def on_one(piece: Piece, device: Device) -> None:
        part = flops * lengths_of(piece)[axis] // lengths[axis]
        within = [one.within(piece) for one in (*operands, result)]

        def there(inner: Piece, *arrays: Array) -> None:
            starts = {letter: piece.at[letter][0] if letter in piece.at else 0 for letter in inner.at}
            at = {letter: (first + starts[letter], last + starts[letter]) for letter, (first, last) in inner.at.items()}
            compute(Piece(piece.at | at), *arrays)

        _on_devices([device], there, within[:-1], within[-1], along, each, part)

    def on_each(whole: Piece, devices: list[Device]) -> None:
        ranges = enumerate(proportional(lengths_of(whole)[axis], [BANDWIDTH[x.info.kind] for x in devices]))
        pieces = [moved(Piece({axis: at}, worker=i), whole) for i, at in ranges if at[1] > at[0]]
        concurrently(pieces, devices, on_one, on_each)

    on_each(Piece({axis: (0, lengths[axis])}), devices)


def _fill(
    device: Device,
    pieces: list[Piece],
    compute: Callable[..., None],
    operands: Sequence[Labelled],
    result: Labelled,
    binding: int,
) -> None:
    moved = goes_through_host(result, pieces, binding)
    into = replace(result, data=np.empty(result.data.shape, result.dtype.numpy)) if moved else result

    def queue(piece: Piece, arrays: list[Array], target: Array, _: Array) -> None:
        compute(piece, *arrays, target)

    if len(pieces) == 1:
        _at_once(device, partial(compute, pieces[0]), operands, into, binding)
    else:
        Execution(device, pieces, operands, into, queue, binding).run()
    if isinstance(result.data, Array) and not isinstance(into.data, Array):
        device.assign(result.data, into.data)


def _at_once(
    device: Device, compute: Callable[..., None], operands: Sequence[Labelled], result: Labelled, binding: int
) -> None:
    """As an `Execution` of one piece, without its slots and threads, which would take as long as a small call."""
    with Temporaries(device) as temporary:
        arrays = temporary.arrays(*(x.data if x.in_place(binding) else x.on_the_host() for x in operands))
        if isinstance(result.data, Array):
            compute(*arrays, result.data)
            return
        target = temporary.empty(result.data.shape, result.dtype)
        with device.submissions.held():
            compute(*arrays, target)
            device.download(target, result.data)


# The steps, in both languages


def planned_pieces(
    device: Device, memory: int, operands: Sequence[Labelled], result: Labelled, along: str, each: str, flops: int
) -> list[Piece]:
    """Return the pieces of a call, cut along letters of the result, which take at most `memory` bytes on the device."""
    everything = [one.extents for one in (*operands, result)]
    limits = moving_limits(device, memory)
    return list(array_pieces(everything, _of(result, along), _of(result, each), limits, flops))


def goes_through_host(result: Labelled, pieces: Sequence[Piece], binding: int) -> bool:
    """Return whether a result on the device has pieces that kernels cannot write where they are."""
    return not result.on_host and not all(result.within(piece).in_place(binding, written=True) for piece in pieces)


def _of(result: Labelled, letters: str) -> str:
    return "".join([letter for letter in letters if letter in result.axes])
