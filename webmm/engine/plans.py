"""Plans: a repeated call replays the allocations and dispatches recorded from the first one.

What a call does depends on its arguments and on the shapes, strides and dtypes of its arrays, not on their contents or
their buffers. So the first call is recorded under a key (see `webmm.calls.planned`); later calls with that key take
buffers from the pool, look up their launches, and queue them. Everything unusual – a freed array, a lost device, an
active profile – is left to the ordinary call. Plans of an earlier `webmm.engine.generation` are not found again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from webmm import log
from webmm.engine.core import Core
from webmm.engine.launches import Launches
from webmm.engine.pool import Block, Storage
from webmm.engine.recording import Recording
from webmm.engine.view import AnyView, View
from webmm.errors import WebmmError

MAX_PLANS = 1024  # cached per device


class Plan:
    """A replayable call, for other arrays of the same signatures."""

    def __init__(
        self, device: Core, launches: Launches, recording: Recording, arrays: Sequence[AnyView], result: AnyView
    ) -> None:
        self._device, self._launches, self._steps = device, launches, recording.steps
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
        self._class = type(result)
        self._layout = result.shape, result.element, result.strides, result.offset
        self._signature = result.signature

    def run(self, arrays: Sequence[AnyView]) -> AnyView | None:
        """Queue the call's dispatches and return its result, or None if the ordinary call must be made instead."""
        device = self._device
        guard, pool = device.guard, device.pool
        if guard.lost or device.recordings.current() or device.profile is not None:
            return None
        if log.profile.isEnabledFor(logging.DEBUG):
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

    def _queue(self, blocks: list[Block], make: bool = False) -> bool | None:
        """Queue the dispatches and tell whether to submit them; return None, doing nothing, if a launch is missing.

        With `make`, missing launches are prepared. They are all held meanwhile: a plan may have more than are cached.
        """
        launches, add = self._launches, self._device.submissions.add
        found = []
        for step in self._steps:
            key = (step.token, *[blocks[n].uid for n in step.numbers])
            prepared = launches.kept.get(key)
            if prepared is not None:
                launches.kept.move_to_end(key)
            elif make:
                these = tuple([blocks[n] for n in step.numbers])
                prepared = launches.prepare(step.token, step.kernel, step.problem, these)
            else:
                return None
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
                return self._queue(blocks, make=True)  # type: ignore[arg-type]
        except BaseException as error:
            for n, (constant, _, _) in enumerate(self._others, first):
                if constant is None and (block := blocks[n]) is not None:
                    device.pool.drop(block)
            if isinstance(error, WebmmError):
                return None
            raise

    def _returned(self, arrays: Sequence[AnyView], block: Block | None) -> AnyView:
        if self._returned_argument is not None:
            return arrays[self._returned_argument]
        if self._result < len(self._operands):
            storage = arrays[self._operands[self._result]]._storage
        else:
            assert block is not None, "the result's buffer was allocated"
            storage = Storage(self._device, block, self._others[self._result - len(self._operands)][1])
        result = self._class(storage, *self._layout)
        result.signature = self._signature
        return result


class Plans:
    """The plans of one device."""

    def __init__(self, device: Core, launches: Launches) -> None:
        self._device, self._launches = device, launches
        self.kept: OrderedDict[Hashable, Plan] = OrderedDict()

    def record(self, key: Hashable, arrays: Sequence[AnyView], call: Callable[[], Any]) -> Any:
        """Return the result of `call`, and cache a plan for it if replaying its steps is sufficient."""
        if self._device.recordings.current():  # a call within a call
            return call()
        with self._device.recordings.begin(arrays) as recording:
            result = call()
        if recording.complete and isinstance(result, View) and result._storage in recording.storages:
            self.kept[key] = Plan(self._device, self._launches, recording, arrays, result)
            self._launches.reserve(len(recording.steps))
            if len(self.kept) > MAX_PLANS:
                self.kept.popitem(last=False)
        return result

    def clear(self) -> None:
        """Drop all plans."""
        self.kept.clear()
