"""Plans: a repeated call replays the allocations and dispatches recorded from the first one.

What a call does depends on its arguments and on the shapes, strides and dtypes of its arrays, not on their contents or
their buffers. So the first call is recorded under a key (see `webmm.calls.planned`); later calls with that key take
buffers from the pool, look up their launches, and queue them. Everything unusual – a freed array, a lost device, an
active profile – is left to the ordinary call.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

from webmm import log
from webmm.engine.array import Array, Storage
from webmm.engine.pool import Block
from webmm.errors import WebmmError
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem

if TYPE_CHECKING:
    from webmm.engine.device import Device

MAX_PLANS = 1024  # cached per device


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded dispatch: token, kernel, problem, and the numbers of all its buffers and of those that it writes."""

    token: int
    kernel: Kernel[Any]
    problem: Problem
    numbers: tuple[int, ...]
    written: tuple[int, ...]


class Recording:
    """The allocations and dispatches of a call; storages are numbered, those of the operands first, then new ones."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.storages: dict[Storage, int] = {}
        for array in arrays:
            self.storages.setdefault(array._storage, len(self.storages))
        self.operands = tuple(self.storages)
        self.constants: set[Storage] = set()
        self.steps: list[Step] = []
        self.complete = True  # whether replaying the steps does everything that the call does

    def made(self, storage: Storage) -> None:
        """Record the allocation of an array."""
        self.storages[storage] = len(self.storages)

    def ran(self, token: int, kernel: Kernel[Any], problem: Problem, arrays: Sequence[Array]) -> None:
        """Record a dispatch."""
        for storage in (array._storage for array in arrays):
            if storage.constant and storage not in self.storages:
                self.storages[storage] = len(self.storages)
                self.constants.add(storage)
        numbers = tuple(self.storages.get(array._storage, -1) for array in arrays)
        written = tuple(compress(numbers, (extent.written for extent in problem.buffers())))
        self.steps.append(Step(token, kernel, problem, numbers, written))
        self.complete = self.complete and -1 not in numbers  # -1: neither an operand nor allocated by the call


class Plan:
    """A replayable call, for other arrays of the same signatures."""

    def __init__(self, device: Device, recording: Recording, arrays: Sequence[Array], result: Array) -> None:
        self._device, self._steps = device, recording.steps
        # The first argument with each operand storage, by index.
        self._operands = [next(i for i, x in enumerate(arrays) if x._storage is s) for s in recording.operands]
        others = [
            (storage, 0) if storage in recording.constants else (None, storage.nbytes)
            for storage in list(recording.storages)[len(self._operands) :]
        ]
        # The other storages: a constant, or None with the bytes and the buffer size of a new one.
        self._others = [(constant, nbytes, device.pool.size(nbytes)) for constant, nbytes in others]
        self._result = recording.storages[result._storage]
        made = [n for n, (constant, _) in enumerate(others, len(self._operands)) if constant is None]
        self._temporary = [n for n in made if n != self._result]
        self._returned_argument = next((i for i, x in enumerate(arrays) if x is result), None)
        self._layout = result.shape, result.element, result.strides, result.offset
        self._signature = result.signature

    def run(self, arrays: Sequence[Array]) -> Array | None:
        """Queue the call's dispatches and return its result, or None if the ordinary call must be made instead."""
        device = self._device
        guard, pool = device.guard, device.pool
        if guard.lost or device.profile is not None or log.profile.isEnabledFor(logging.DEBUG):
            return None
        blocks: list[Block | None] = []
        with guard.lock:
            for i in self._operands:
                storage = arrays[i]._storage
                block = storage.block
                if block is None or block.refused is not None or storage.device is not device:
                    return None
                blocks.append(block)
            if not all(constant is None or constant.block for constant, *_ in self._others):
                return None
            for constant, _, size in self._others:
                blocks.append(pool.pick(size) if constant is None else constant.block)
            due = None if None in blocks else self._queue(blocks)  # type: ignore[arg-type]
        if due is None:
            due = self._make(blocks)
            if due is None:
                return None
        result = self._returned(arrays, blocks[self._result])
        if due:
            device.submissions.flush([block for block in (blocks[self._result],) if block])
        return result

    def _queue(self, blocks: list[Block]) -> bool | None:
        """Queue the dispatches and tell whether to submit them; return None, doing nothing, if a launch is missing."""
        kept, add = self._device.launches.kept, self._device.submissions.add
        found = []
        for step in self._steps:
            key = (step.token, *[blocks[n].uid for n in step.numbers])
            prepared = kept.get(key)
            if prepared is None:
                return None
            kept.move_to_end(key)
            found.append(prepared)
        due = False
        for step, prepared in zip(self._steps, found, strict=True):
            due |= add((prepared.launch, prepared.blocks, tuple([blocks[n] for n in step.written])))
        for n in self._temporary:
            self._device.pool.give(blocks[n])
        return due

    def _make(self, blocks: list[Block | None]) -> bool | None:
        """Do as `_queue()`, after creating missing buffers and launches; return None and do nothing if that fails.

        This is slower, because the engine may only be called within a use of the device.
        """
        device, first = self._device, len(self._operands)
        try:
            with device.guard.using("repeating a call"), device.guard.lock:
                for n, (_, nbytes, _) in enumerate(self._others, first):
                    blocks[n] = blocks[n] or device.pool.take(nbytes)[0]
                complete: list[Block] = blocks  # type: ignore[assignment]
                for step in self._steps:
                    these = tuple([complete[n] for n in step.numbers])
                    if (step.token, *[block.uid for block in these]) not in device.launches.kept:
                        device.launches.prepare(step.token, step.kernel, step.problem, these)
                return self._queue(complete)
        except WebmmError:
            for n, (constant, _, _) in enumerate(self._others, first):
                if constant is None and (block := blocks[n]) is not None:
                    device.pool.drop(block)
            return None

    def _returned(self, arrays: Sequence[Array], block: Block | None) -> Array:
        if self._returned_argument is not None:
            return arrays[self._returned_argument]
        if self._result < len(self._operands):
            storage = arrays[self._operands[self._result]]._storage
        else:
            assert block is not None, "the result's buffer was allocated"
            storage = Storage(self._device, block, self._others[self._result - len(self._operands)][1])
        result = Array(storage, *self._layout)
        result.signature = self._signature
        return result


class Plans:
    """The plans of one device, and the recordings in progress, by thread."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.kept: OrderedDict[Hashable, Plan] = OrderedDict()
        self.recordings: dict[int, Recording] = {}

    def current(self) -> Recording | None:
        """Return the calling thread's recording, or None."""
        return self.recordings.get(threading.get_ident()) if self.recordings else None

    def interrupt(self) -> None:
        """Note that the calling thread's recording, if any, does more than launches, so that it cannot be replayed."""
        if recording := self.current():
            recording.complete = False

    def record(self, key: Hashable, arrays: Sequence[Array], call: Callable[[], Any]) -> Any:
        """Return the result of `call`, and cache a plan for it if replaying its steps is sufficient."""
        me = threading.get_ident()
        if me in self.recordings:  # a call within a call
            return call()
        recording = self.recordings[me] = Recording(arrays)
        try:
            result = call()
        finally:
            del self.recordings[me]
        if recording.complete and isinstance(result, Array) and result._storage in recording.storages:
            self.kept[key] = Plan(self._device, recording, arrays, result)
            if len(self.kept) > MAX_PLANS:
                self.kept.popitem(last=False)
        return result

    def clear(self) -> None:
        """Drop all plans, because calls may now choose other kernels."""
        self.kept.clear()
