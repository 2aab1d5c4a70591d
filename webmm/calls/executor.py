"""Execution of pieces on a device: operands and results in place, uploaded once, or streamed, each with two slots.

One piece is uploaded or downloaded while the device computes another. Everything goes through one queue in order, so
pieces are kept short: data in staging buffers waits for the work that was queued before it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.arguments.arrays import element_of
from webmm.arguments.pieces import in_place, product_axes
from webmm.calls.slots import Slots
from webmm.cut.arrays import Extents
from webmm.cut.pieces import Piece, elements
from webmm.cut.streams import HELD
from webmm.dtypes import DType
from webmm.engine.device import Array, Device
from webmm.errors import MemoryLimitError

LEAST_MEMORY = 2**24  # the smallest memory budget (bytes) to try before MemoryLimitError is raised
PAGE = 4096  # bytes
PAGING_THREADS = 4  # threads that fault in the pages of a result
Data = Array | NDArray[Any]
Progress = Callable[[int, int], object]
# compute(piece, operands, result, sums) queues the dispatches for a piece
Compute = Callable[[Piece, list[Array], Array, Array], None]


@dataclass(frozen=True, eq=False)
class Labelled:
    """An operand or a result with a letter for each axis; axes with the same letter are cut at the same places.

    With `anywhere`, kernels accept any start element and any non-negative strides; otherwise the array must be dense
    and start at an offset that a binding allows. Results must be dense in any case, unless they are `placed`.
    """

    data: Data
    axes: str
    anywhere: bool = True
    placed: bool = False

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return element_of(self.data)

    @property
    def on_host(self) -> bool:
        """Whether the data is a NumPy array."""
        return not isinstance(self.data, Array)

    @property
    def extents(self) -> Extents:
        """What the planner needs to know."""
        return Extents(self.axes, self.data.shape, self.dtype.itemsize, self.on_host)

    def within(self, piece: Piece) -> Labelled:
        """Return the elements that belong to a piece."""
        return replace(self, data=piece_of(self.data, self.axes, piece)) if piece.at else self

    def on_the_host(self) -> NDArray[Any]:
        """Return the elements in host memory, dense unless kernels accept any strides; an upload keeps their order."""
        return np.asarray(self.data) if self.anywhere else np.ascontiguousarray(self.data)

    def in_place(self, binding: int, written: bool = False) -> bool:
        """Return whether kernels can read or write it without a copy, with bindings of at most `binding` bytes."""
        x = self.data
        return isinstance(x, Array) and in_place(x, binding, self.anywhere, written and not self.placed)


def labelled(x: Data, axes: str, anywhere: bool = True, placed: bool = False) -> Labelled:
    """Return an operand or a result with a letter for each axis: the last of `axes`, "1" for a length of 1."""
    letters = axes[len(axes) - x.ndim :]
    own = "".join(["1" if length == 1 else letter for length, letter in zip(x.shape, letters, strict=True)])
    return Labelled(x, own, anywhere, placed)


def piece_of(x: Data, axes: str, piece: Piece) -> Data:
    """Return a view of the elements of an array with these axes that belong to a piece."""
    return x[elements(piece, axes)]


def of_product(x: Data, axes: str, batch: int) -> Labelled:
    """Return an operand or a result of products of `batch` axes with the letters of its axes."""
    return Labelled(x, product_axes(x.shape, axes, batch))


def shrinking(memory: int, attempt: Callable[[int], None]) -> None:
    """Call `attempt(memory)`, with half of the memory after each MemoryLimitError; raises it if little is left."""
    while True:
        try:
            return attempt(memory)
        except MemoryLimitError:
            if memory < LEAST_MEMORY:
                raise
            memory //= 2


@dataclass
class Execution:
    """The execution of `pieces`, in order, into `result`.

    Operands that kernels cannot read in place, with bindings of at most `binding` bytes, are uploaded; an operand that
    the next piece needs, too, only once. The operand with the index `early` is uploaded before it is needed, in parts
    between the pieces before. With `sums`, the sums of pieces that are `apart` have that type. `fresh` says that the
    result is a dense NumPy array, newly allocated, so that its pages are faulted in during the computation.
    """

    device: Device
    pieces: list[Piece]
    operands: Sequence[Labelled]
    result: Labelled
    compute: Compute
    binding: int
    early: int | None = None
    sums: DType | None = None
    progress: Progress | None = None
    fresh: bool = False

    def run(self) -> None:
        """Compute the result; after an error, it may be partly written. Raises MemoryLimitError."""
        self._slots, self._downloads = Slots(self.device), _Downloads(self.device, len(self.pieces) > 1)
        try:
            if self.fresh and not self.pieces[0].last:
                self._downloads.page_in([self._target(piece) for piece in self.pieces if piece.last])
            count = len(self.pieces)
            for done, _ in enumerate(self._queue_all(), 1):
                if self.progress and done < count:
                    self.progress(done, count)
            self._downloads.wait()
        finally:
            self._downloads.close()
            self._slots.free()
        if self.progress:
            self.progress(count, count)

    def _queue_all(self) -> Iterator[None]:
        """Queue the pieces; the early operand of the next group of pieces is uploaded in parts between them."""
        groups = [list(group) for _, group in itertools.groupby(self.pieces, self._early_key)]
        following, rest = self._begin(groups[0][0], 1)
        for group, then in itertools.zip_longest(groups, groups[1:]):
            deque(rest, maxlen=0)  # upload the remaining parts
            early, rest = following, iter(())
            if then:
                following, rest = self._begin(then[0], len(group))
            for piece in group:
                self._queue(piece, early)
                next(rest, None)
                yield

    def _early_key(self, piece: Piece) -> Any:
        return piece.at if self.early is None else _key(self.operands[self.early], piece)

    def _begin(self, piece: Piece, steps: int) -> tuple[Array | None, Iterator[None]]:
        """Return the early operand of a piece, if there is one, and an iterator that uploads it in `steps`."""
        if self.early is None:
            return None, iter(())
        whole = self.operands[self.early]
        x = whole.within(piece)
        return self._slots.begin(f"operand {self.early}", _key(whole, piece), x.data, x.dtype, steps)

    def _queue(self, piece: Piece, early: Array | None) -> None:
        """Queue a piece, and download its result if it is complete."""
        if self.result.on_host and piece.first and (HELD not in piece.at or piece.at[HELD][0] == piece.at["m"][0]):
            self._next_held(piece)
        arrays = [
            early if early is not None and i == self.early else self._resident(i, one, piece)
            for i, one in enumerate(self.operands)
        ]
        if isinstance(self.result.data, Array):
            into = self.result.within(piece).data
            assert isinstance(into, Array)
            self.compute(piece, arrays, into, into)
            return
        into, total = self._rows(piece)
        with nullcontext() if HELD in piece.at else self.device.submissions.held():
            self.compute(piece, arrays, into, total)
            if piece.last:
                self._downloads.begin(self._slot, into, self._target(piece))

    def _resident(self, i: int, whole: Labelled, piece: Piece) -> Array:
        """Return the elements of an operand that a piece needs, on the device: uploaded, if they are not there."""
        x = whole.within(piece)
        if isinstance(x.data, Array) and x.in_place(self.binding):
            return x.data
        return self._slots.load(f"operand {i}", _key(whole, piece), x.on_the_host(), x.dtype)

    def _target(self, piece: Piece) -> NDArray[Any]:
        found = self.result.within(piece).data
        assert isinstance(found, np.ndarray)
        return found

    def _next_held(self, piece: Piece) -> None:
        """Take the slot of the next piece of the result that is held, once its last contents are downloaded."""
        held = replace(piece, at={**piece.at, "m": piece.at[HELD]}) if HELD in piece.at else piece
        shape, self._slot = self._target(held).shape, self._slots.turn("result")
        self._downloads.wait(self._slot)
        self._held = self._total = self._slots.take("result", self._slot, shape, self.result.dtype)
        if self.sums is not None:
            self._total = self._slots.take("sum", 0, shape, self.sums)

    def _rows(self, piece: Piece) -> tuple[Array, Array]:
        """Return a piece's rows of the result that is held, and of its sums."""
        if HELD not in piece.at:
            return self._held, self._total
        start, stop = (at - piece.at[HELD][0] for at in piece.at["m"])
        return self._held[..., start:stop, :], self._total[..., start:stop, :]


def _key(whole: Labelled, piece: Piece) -> Any:
    """Return a key that identifies the elements of an operand that a piece needs."""
    return tuple(piece.at[letter] for letter in whole.axes if letter in piece.at)


class _Downloads:
    """Downloads of pieces to host memory, in a separate thread if they are `overlapping` with the computation."""

    def __init__(self, device: Device, overlapping: bool) -> None:
        self._device = device
        threads = (1, PAGING_THREADS) if overlapping else ()
        self._pools = [ThreadPoolExecutor(count, "webmm-pieces") for count in threads]  # for downloads, for pages
        self._pending: deque[tuple[int, Future[None]]] = deque()
        self._paged: dict[int, Future[None]] = {}

    def page_in(self, pieces: list[NDArray[Any]]) -> None:
        """Fault in the pages of pieces of a newly allocated array before they are needed."""
        for piece in (piece for piece in pieces if piece.flags.c_contiguous):
            self._paged[_address(piece)] = self._pools[1].submit(_touch, piece)

    def begin(self, slot: int, piece: Array, host: NDArray[Any]) -> None:
        """Start to download a piece in that slot; waits while two downloads are pending.

        The device runs the work that is queued until the download starts first, so there should be little of it.
        """
        if not self._pools:
            self._device.download(piece, host)
            return
        while len(self._pending) > 1:
            self._pending.popleft()[1].result()
        self._pending.append((slot, self._pools[0].submit(self._download, piece, host)))

    def wait(self, slot: int | None = None) -> None:
        """Wait for the downloads of a slot, or for all; raises the error of a failed download."""
        while any(slot in (None, of) for of, _ in self._pending):
            self._pending.popleft()[1].result()

    def close(self) -> None:
        """Wait for pending downloads, and end the threads."""
        for pool in reversed(self._pools):
            pool.shutdown()

    def _download(self, piece: Array, host: NDArray[Any]) -> None:
        if paged := self._paged.pop(_address(host), None):
            paged.result()
        self._device.download(piece, host)


def _address(host: NDArray[Any]) -> int:
    address: int = host.__array_interface__["data"][0]
    return address


def _touch(host: NDArray[Any]) -> None:
    host.reshape(-1).view(np.uint8)[::PAGE] = 0
