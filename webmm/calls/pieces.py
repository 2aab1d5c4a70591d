"""Calls of any size: a call is cut along axes with independent results until every piece fits.

A piece fits if its data fits a binding, its work one dispatch and, for NumPy arrays, its data `Device.memory`. Pieces
of NumPy arrays are double-buffered: one is uploaded or downloaded while the device computes another. Pieces of `Array`s
are read and written in place; a piece that no binding can cover is copied through the host.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.calls.parts import dispatch_limits, halved
from webmm.calls.slots import LEAST_MEMORY, Slots
from webmm.dtypes import DType
from webmm.engine.device import Array, Device
from webmm.engine.view import dense_strides, element_of
from webmm.errors import MemoryLimitError, UnsupportedError
from webmm.kernels.base import INDEX_LIMIT
from webmm.problems.base import ALIGNMENT, Extent

GRAINS = (ALIGNMENT, 64, 4, 1)  # preferred multiples of piece lengths: rows stay aligned for bindings, and tiles whole
Data = Array | NDArray[Any]


@dataclass(frozen=True, eq=False)
class Labelled:
    """An operand or a result with a letter for each axis; axes with the same letter are cut at the same places.

    With `anywhere`, kernels accept any start element and any non-negative strides; otherwise the array must be dense
    and start at an offset that a binding allows. Results must be dense in any case.
    """

    data: Data
    axes: str
    anywhere: bool = True

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return element_of(self.data)

    @property
    def on_host(self) -> bool:
        """Whether the data is a NumPy array."""
        return not isinstance(self.data, Array)

    def nbytes(self, steps: dict[str, int]) -> int:
        """Return the bytes of a piece whose lengths along the cut axes are `steps`."""
        lengths = zip(self.axes, self.data.shape, strict=True)
        return int(math.prod(steps.get(letter, length) for letter, length in lengths)) * self.dtype.itemsize

    def within(self, piece: dict[str, slice]) -> Labelled:
        """Return the part that belongs to a piece; {} selects everything."""
        if not piece:
            return self
        key = tuple(piece.get(letter, slice(None)) for letter in self.axes)
        return replace(self, data=self.data[key])

    def in_place(self, binding: int, written: bool = False) -> bool:
        """Return whether kernels can read or write it without a copy, with bindings of at most `binding` bytes."""
        x = self.data
        if not isinstance(x, Array) or any(stride < 0 for stride in x.strides):
            return False
        reach = sum((length - 1) * stride for length, stride in zip(x.shape, x.strides, strict=True))
        extent = Extent("", x.element, x.offset + reach + 1, start=x.offset)
        if extent.nbytes > binding or extent.end - extent.first > INDEX_LIMIT:
            return False
        if self.anywhere and not written:
            return True
        axes = [(length, stride) for length, stride in zip(x.shape, x.strides, strict=True) if length > 1]
        dense = tuple(stride for _, stride in axes) == dense_strides(tuple(length for length, _ in axes))
        return dense and (self.anywhere or extent.first == extent.start)


def most_at_once(device: Device, x: Data) -> int:
    """Return the largest number of bytes of `x` in a piece."""
    room = _room(device) - 2 * ALIGNMENT  # a binding starts at an aligned offset before its data
    return room if isinstance(x, Array) else min(room, device.memory // 4)


def _room(device: Device) -> int:
    return min(map(device.capabilities.limit, ("max-storage-buffer-binding-size", "max-buffer-size")))


Compute = Callable[..., None]  # compute(*operands, result) queues the dispatches for a piece


def in_pieces(
    device: Device,
    compute: Compute,
    operands: Sequence[Labelled],
    result: Labelled,
    along: str,
    *,
    each: str = "",
    flops: int = 0,
) -> None:
    """Fill `result` by calls of `compute(*operands, result)` on pieces, cut along the axes with the letters `along`.

    No axis may be empty. Pieces have length 1 along the axes `each`. `flops` is the number of operations of the whole
    call. Raises UnsupportedError if a piece of length 1 along all axes is still too large, and MemoryLimitError if the
    device has too little memory for the smallest pieces that are tried.
    """
    memory = device.memory
    while True:
        try:
            _try(device, compute, operands, result, _Cut(along, each, flops, memory))
            return
        except MemoryLimitError:
            if memory < LEAST_MEMORY or not any(one.on_host for one in (*operands, result)):
                raise
            memory //= 2


@dataclass(frozen=True)
class _Cut:
    """The axes along which a call may be cut, its operations, and the memory (bytes) for pieces of host arrays."""

    along: str
    each: str
    flops: int
    memory: int


def _try(device: Device, compute: Compute, operands: Sequence[Labelled], result: Labelled, cut: _Cut) -> None:
    most, everything = dispatch_limits(device), (*operands, result)
    lengths = {letter: n for one in everything for letter, n in zip(one.axes, one.data.shape, strict=True)}
    whole = {letter: lengths[letter] for letter in cut.each + cut.along}
    start = {letter: 1 if letter in cut.each else length for letter, length in whole.items()}
    steps = _steps(everything, whole, start, _room(device), cut.memory, cut.flops / most.flops)
    pieces = list(_pieces(whole, steps)) if steps != whole else [{}]
    through_host = not result.on_host and not all(
        result.within(piece).in_place(most.binding, written=True) for piece in pieces
    )
    into = replace(result, data=np.empty(result.data.shape, result.dtype.numpy)) if through_host else result
    with _Mover(device, most.binding, len(pieces) > 1) as mover:
        for piece in pieces:
            arrays = [mover.upload(f"operand {i}", one, piece) for i, one in enumerate(operands)]
            target = into.within(piece)
            if isinstance(target.data, Array):
                compute(*arrays, target.data)
            else:
                with device.submissions.held():
                    compute(*arrays, mover.result(target))
                    mover.download(target.data)
    if isinstance(result.data, Array) and not isinstance(into.data, Array):
        device.assign(result.data, into.data)


def _steps(
    everything: Sequence[Labelled],
    whole: dict[str, int],
    start: dict[str, int],
    room: int,
    memory: int,
    dispatches: float,
) -> dict[str, int]:
    """Return the length of pieces along each axis: `start`, halved until all operands and results fit.

    Each array is cut along its outermost axis that can be cut, so that pieces stay contiguous.
    """
    steps = dict(start)

    def share(one: Labelled) -> int:
        cut = any(steps[letter] < whole[letter] for letter in one.axes if letter in steps)
        return one.nbytes(steps) + (2 * ALIGNMENT if cut and not one.on_host else 0)  # see most_at_once()

    def next_cut() -> str | None:
        large = [one for one in everything if share(one) > room]
        moving = [one for one in everything if one.on_host]
        slots = 1 if steps == whole else 2
        if not large and slots * sum(map(share, moving)) > memory:
            large = sorted(moving, key=share, reverse=True)
        letters = [letter for one in large for letter in one.axes if letter in steps]
        if not large and dispatches * math.prod(steps[x] / whole[x] for x in whole) > 1:
            letters = [*(letter for letter in steps if steps[letter] > ALIGNMENT), *steps]
        return next((letter for letter in letters if steps[letter] > 1), None)

    while letter := next_cut():
        steps[letter] = halved(steps[letter], GRAINS)
    for one in everything:
        if one.nbytes(steps) > room:
            raise UnsupportedError(
                f"the smallest piece of an operand takes {one.nbytes(steps):,} bytes, and a binding and a buffer "
                f"hold {room:,} (max-storage-buffer-binding-size, max-buffer-size)"
            )
    return steps


def _pieces(whole: dict[str, int], steps: dict[str, int]) -> Iterator[dict[str, slice]]:
    cuts = [
        [slice(start, min(start + steps[letter], length)) for start in range(0, length, steps[letter])]
        for letter, length in whole.items()
    ]
    for piece in itertools.product(*cuts):
        yield dict(zip(whole, piece, strict=True))


def starts_of(*arrays: Array) -> tuple[int, ...]:
    """Return the first elements of arrays that are not `anywhere`, as problems take them: () if all start at 0."""
    starts = tuple(array.offset for array in arrays)
    return starts if any(starts) else ()


class _Mover:
    """Uploads pieces, and downloads results in another thread while the next pieces are computed."""

    def __init__(self, device: Device, binding: int, overlapping: bool) -> None:
        self._device, self._binding = device, binding
        self._slots = Slots(device)
        self._downloads: dict[int, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(1, "webmm-pieces") if overlapping else None

    def upload(self, name: str, whole: Labelled, piece: dict[str, slice]) -> Array:
        """Return an operand's part of a piece on the device; it is uploaded only if it is not there yet."""
        part = whole.within(piece)
        if isinstance(part.data, Array) and part.in_place(self._binding):
            return part.data
        key = tuple((at.start, at.stop) for letter, at in piece.items() if letter in whole.axes)
        return self._slots.load(name, key, part.data, whole.dtype)

    def result(self, target: Labelled) -> Array:
        """Return a device array for the result that the next `download()` downloads."""
        self._turn = self._slots.turn("result")
        if self._turn in self._downloads:
            self._downloads.pop(self._turn).result()
        self._array = self._slots.take("result", self._turn, target.data.shape, target.dtype)
        return self._array

    def download(self, target: NDArray[Any]) -> None:
        """Download the array that `result()` returned to `target`."""
        if self._pool is None:
            self._device.download(self._array, target)
        else:
            self._downloads[self._turn] = self._pool.submit(self._device.download, self._array, target)

    def __enter__(self) -> _Mover:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for future in self._downloads.values():
                    future.result()
        finally:
            if self._pool:
                self._pool.shutdown()
            self._slots.free()
