"""Recordings of what calls allocate and dispatch, of which `webmm.engine.plans` makes plans."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Any

from webmm.engine.pool import AnyStorage, serials
from webmm.engine.view import AnyView
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem


@dataclass(frozen=True, slots=True)
class RecordedDispatch:
    """A recorded dispatch: token, kernel, problem, and the numbers of all its buffers and of those that it writes."""

    token: int
    kernel: Kernel[Any]
    problem: Problem
    numbers: tuple[int, ...]
    written: tuple[int, ...]


class Recording:
    """The allocations and dispatches of a call; storages are numbered, those of the operands first, then new ones.

    If it is `captured`, of a function, dispatches may use other arrays, which are the same in each repetition:
    `constants` has them, too.
    """

    def __init__(self, arrays: Sequence[AnyView], captured: bool = False) -> None:
        self.captured = captured
        self.serial = next(serials)
        self.storages: dict[AnyStorage, int] = {}
        for array in arrays:
            self.storages.setdefault(array._storage, len(self.storages))
        self.operands = tuple(self.storages)
        self.constants: set[AnyStorage] = set()
        self.steps: list[RecordedDispatch] = []
        self.complete = True  # whether replaying the steps does everything that the call does
        self.other = ""  # what else it does

    def made(self, storage: AnyStorage) -> None:
        """Record the allocation of an array."""
        self.storages[storage] = len(self.storages)

    def close_over(self, storage: AnyStorage) -> None:
        """Record that a storage is the same in each repetition; it cannot be if it was made meanwhile, but not here."""
        self.storages[storage] = len(self.storages)
        self.constants.add(storage)
        if storage.serial > self.serial and not storage.constant:
            self.complete, self.other = False, "using an array that is not made by its dispatches"

    def ran(self, token: int, kernel: Kernel[Any], problem: Problem, arrays: Sequence[AnyView]) -> None:
        """Record a dispatch."""
        for storage in (array._storage for array in arrays):
            if (storage.constant or self.captured) and storage not in self.storages:
                self.close_over(storage)
        numbers = tuple(self.storages.get(array._storage, -1) for array in arrays)
        written = tuple(compress(numbers, (extent.written for extent in problem.buffers())))
        self.steps.append(RecordedDispatch(token, kernel, problem, numbers, written))
        self.complete = self.complete and -1 not in numbers  # -1: neither an operand nor allocated by the call

    def release(self) -> None:
        """Forget all storages, so that those that nobody else keeps are free."""
        self.storages.clear()
        self.constants.clear()
        self.operands = ()


class Recordings:
    """The recordings in progress on one device, one for each thread at most."""

    def __init__(self) -> None:
        self._of: dict[int, Recording] = {}  # by thread

    def current(self) -> Recording | None:
        """Return the calling thread's recording, or None."""
        return self._of.get(threading.get_ident()) if self._of else None

    def interrupt(self, doing: str) -> None:
        """Note that the calling thread's recording, if any, does more than launches, so that it cannot be replayed."""
        if recording := self.current():
            recording.complete, recording.other = False, doing

    @contextmanager
    def begin(self, arrays: Sequence[AnyView], captured: bool = False) -> Iterator[Recording]:
        """Record what the calling thread, which has no recording yet, does with these operands in a context."""
        me = threading.get_ident()
        recording = self._of[me] = Recording(arrays, captured)
        try:
            yield recording
        finally:
            del self._of[me]
