"""Any size: a call is cut along the axes on which its results do not depend on each other, until every piece fits.

What fits is what a binding holds, what one dispatch may do, and, of NumPy arrays, `Device.memory`. Pieces of NumPy
arrays are uploaded, computed and downloaded in turn, in two slots each, so that one moves while the device works at the
other. Pieces of `Array`s are read and written where they lie; those that no binding shows are copied through the host.
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

from webmm.calls.parts import halved, limits
from webmm.calls.slots import LEAST_MEMORY, Slots
from webmm.dtypes import DType
from webmm.engine.array import Array, dense_strides, element_of
from webmm.engine.device import Device
from webmm.errors import MemoryLimitError, UnsupportedError
from webmm.kernels.base import INDEX_LIMIT
from webmm.problems.base import ALIGNMENT, Extent

GRAINS = (ALIGNMENT, 64, 4, 1)  # rows of any length then begin where bindings may, and tiles stay whole
Data = Array | NDArray[Any]


@dataclass(frozen=True, eq=False)
class Labelled:
    """An operand or a result, with a letter for each of its axes: those of the same letter are cut together.

    Kernels find one that is `anywhere` at any element of its buffer, and read it with any strides that are not
    negative; others must begin where a binding may, and be dense, as results are.
    """

    data: Data
    axes: str
    anywhere: bool = True

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return element_of(self.data)

    @property
    def on_host(self) -> bool:
        """Whether it is a NumPy array."""
        return not isinstance(self.data, Array)

    def nbytes(self, steps: dict[str, int]) -> int:
        """Bytes of a piece of that length along each axis that is cut."""
        lengths = zip(self.axes, self.data.shape, strict=True)
        return int(math.prod(steps.get(letter, length) for letter, length in lengths)) * self.dtype.itemsize

    def within(self, piece: dict[str, slice]) -> Labelled:
        """Return the part of it that belongs to a piece; {} stands for all of it."""
        if not piece:
            return self
        key = tuple(piece.get(letter, slice(None)) for letter in self.axes)
        return replace(self, data=self.data[key])

    def in_place(self, binding: int, written: bool = False) -> bool:
        """Tell whether kernels can read or write it as it lies, through a binding of so many bytes."""
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
    """Return the bytes of `x` that a piece may have."""
    room = _room(device) - 2 * ALIGNMENT  # a window opens before what it shows
    return room if isinstance(x, Array) else min(room, device.memory // 4)


def _room(device: Device) -> int:
    return min(map(device.capabilities.limit, ("max-storage-buffer-binding-size", "max-buffer-size")))


Compute = Callable[..., None]  # of arrays for a piece's operands and its result: queues what computes it


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
    """Have `compute(*operands, result)` fill `result`, cut along the axes with the letters `along`; none is empty.

    What `compute` gets has a length of 1 along the axes `each`. All of it takes `flops` operations. Raises
    UnsupportedError where a piece of length 1 along all axes is still too large, MemoryLimitError where the device has
    no room even for little.
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
    """How a call may be cut, what it takes, and the bytes of memory for what is moved."""

    along: str
    each: str
    flops: int
    memory: int


def _try(device: Device, compute: Compute, operands: Sequence[Labelled], result: Labelled, cut: _Cut) -> None:
    most, everything = limits(device), (*operands, result)
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
            arrays = [mover.bring(f"operand {i}", one, piece) for i, one in enumerate(operands)]
            target = into.within(piece)
            if isinstance(target.data, Array):
                compute(*arrays, target.data)
            else:
                compute(*arrays, mover.room(target))
                mover.take_away(target.data)
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
    """Return how long pieces are along each axis, at most `start`: operands and results are halved until they fit.

    Each is cut along the first of its axes that can be, its outermost: what is left of it lies together.
    """
    steps = dict(start)

    def share(one: Labelled) -> int:
        cut = any(steps[letter] < whole[letter] for letter in one.axes if letter in steps)
        return one.nbytes(steps) + (2 * ALIGNMENT if cut and not one.on_host else 0)  # a window opens before its data

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
    """Return where arrays that are not `anywhere` start, as problems have it: () where all do at 0."""
    starts = tuple(array.offset for array in arrays)
    return starts if any(starts) else ()


class _Mover:
    """Brings pieces to the device and takes results away, in another thread while the next are computed."""

    def __init__(self, device: Device, binding: int, overlapping: bool) -> None:
        self._device, self._binding = device, binding
        self._slots = Slots(device)
        self._leaving: dict[int, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(1, "webmm-pieces") if overlapping else None

    def bring(self, name: str, whole: Labelled, piece: dict[str, slice]) -> Array:
        """Return the operand's part in a piece, on the device; one that is there already is not moved."""
        part = whole.within(piece)
        if isinstance(part.data, Array) and part.in_place(self._binding):
            return part.data
        key = tuple((at.start, at.stop) for letter, at in piece.items() if letter in whole.axes)
        return self._slots.load(name, key, part.data, whole.dtype)

    def room(self, target: Labelled) -> Array:
        """Return an array for a result that `take_away()` moves next."""
        self._turn = self._slots.turn("result")
        if self._turn in self._leaving:
            self._leaving.pop(self._turn).result()
        self._array = self._slots.take("result", self._turn, target.data.shape, target.dtype)
        return self._array

    def take_away(self, target: NDArray[Any]) -> None:
        """Move what `room()` returned to `target`."""
        if self._pool is None:
            self._device.download(self._array, target)
        else:
            self._leaving[self._turn] = self._pool.submit(self._device.download, self._array, target)

    def __enter__(self) -> _Mover:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for future in self._leaving.values():
                    future.result()
        finally:
            if self._pool:
                self._pool.shutdown()
            self._slots.free()
