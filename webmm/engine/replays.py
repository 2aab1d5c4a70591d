"""Replays of captured functions: their dispatches again, with other operands, in buffers of their own.

A `Plan` is of one call, and takes all its buffers from the pool. A replay is of many calls: arrays that they make and
do not return are kept for it, as are arrays that the function uses without being given them. So most of its dispatches
are the same ones each time; what is left to do for them is to encode them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from webmm import log
from webmm.engine import allocate
from webmm.engine.core import Core
from webmm.engine.launches import Launches
from webmm.engine.pool import AnyStorage, Block, Storage
from webmm.engine.recording import RecordedDispatch, Recording
from webmm.engine.submissions import Queued
from webmm.engine.view import AnyView
from webmm.errors import WebmmError


class Replay:
    """The dispatches of a captured function, for other arrays of the same signatures."""

    def __init__(
        self,
        device: Core,
        launches: Launches,
        recording: Recording,
        arrays: Sequence[AnyView],
        results: Sequence[AnyView],
        several: bool,
    ) -> None:
        self.several = several  # whether the function returns a tuple
        self._device, self._launches = device, launches
        self._layouts = [(type(x), x.shape, x.element, x.strides, x.offset, x.signature) for x in results]
        numbers = recording.storages
        places = {id(x): n for n, x in enumerate(arrays)}
        self._returned = {i: places[id(x)] for i, x in enumerate(results) if id(x) in places}  # arguments, by result
        # The first argument with each operand storage, by index.
        self._operands = [next(i for i, x in enumerate(arrays) if x._storage is s) for s in recording.operands]
        self._numbers = [numbers[x._storage] for x in results]
        self._fixed: dict[int, AnyStorage] = {numbers[x]: x for x in recording.constants}  # by number
        self._used = [*self._fixed.values()]
        self._buffers = {storage.buffer for storage in self._used}
        sizes = {number: x.nbytes for x, number in numbers.items() if number >= len(self._operands)}
        # The bytes of new storages that are returned, by number.
        self._made = {number: sizes[number] for number in {*self._numbers} if number in sizes.keys() - self._fixed}
        # Recorded ones that nobody else keeps go back to the pool, which has them for these: results would rotate
        # through all that are idle.
        recording.release()
        own = {number: nbytes for number, nbytes in sizes.items() if number not in {*self._fixed, *self._made}}
        made = {number: allocate.new(device, nbytes)[0] for number, nbytes in own.items()}
        self._own = [*made.values()]
        self._fixed |= made
        self._steps: list[tuple[RecordedDispatch, Queued | None]] = [(step, None) for step in recording.steps]
        launches.reserve(sum(not self._fixed.keys() >= {*step.numbers} for step in recording.steps), self)

    def run(self, arrays: Sequence[AnyView]) -> tuple[AnyView, ...] | None:
        """Queue the dispatches and return the results, or None if the function must be called instead."""
        device = self._device
        if self.lost or observed(device):
            return None
        operands = [arrays[i]._storage for i in self._operands]
        with device.guard.using("replaying"), device.guard.lock:
            for x in (*operands, *self._used):
                if x.block is None or x.block.refused or x.device is not device:
                    return None
            if any(x.buffer in self._buffers for x in operands):
                return None  # it was recorded for two arrays
            for block in (x.block for x in self._own):
                if block:
                    block.refused = None  # of an earlier replay: this one writes it first
            try:
                made = {number: self._new(nbytes) for number, nbytes in self._made.items()}
                storages = {**dict(enumerate(operands)), **self._fixed, **made}
                ready = self._ready({number: block for number, x in storages.items() if (block := x.block)})
            except WebmmError:
                return None  # the call raises it
            for queued in ready:
                if device.submissions.add(queued):
                    device.submissions.flush()
        return tuple([self._result(i, arrays, storages) for i, _ in enumerate(self._layouts)])

    @property
    def lost(self) -> bool:
        """Whether its device was lost or closed."""
        return bool(self._device.guard.lost)

    def _new(self, nbytes: int) -> AnyStorage:
        return Storage(self._device, self._device.pool.take(nbytes)[0], nbytes)

    def _ready(self, blocks: dict[int, Block]) -> list[Queued]:
        """Return all dispatches: none is queued before all can be."""
        return [queued or self._prepared(i, step, blocks) for i, (step, queued) in enumerate(self._steps)]

    def _prepared(self, i: int, step: RecordedDispatch, blocks: dict[int, Block]) -> Queued:
        """Return a dispatch, of which the launch is prepared if it has not been; it is kept if its buffers are."""
        launches = self._launches
        these = tuple([blocks[n] for n in step.numbers])
        key = (step.token, *[block.uid for block in these])
        found = launches.kept.get(key)
        if found is None:
            found = launches.prepare(step.token, step.kernel, step.problem, these)
        else:
            launches.kept.move_to_end(key)
        queued = (found.launch, found.blocks, tuple([blocks[n] for n in step.written]))
        if self._fixed.keys() >= {*step.numbers}:
            self._steps[i] = step, queued
        return queued

    def _result(self, i: int, arrays: Sequence[AnyView], storages: dict[int, AnyStorage]) -> AnyView:
        if i in self._returned:
            return arrays[self._returned[i]]
        cls, shape, element, strides, offset, signature = self._layouts[i]
        view = cls(storages[self._numbers[i]], shape, element, strides, offset)
        view.signature = signature
        return view


def observed(device: Core) -> bool:
    """Tell whether each call on a device is recorded or timed by itself."""
    timed = device.profile is not None or log.profile.isEnabledFor(logging.DEBUG)
    return timed or device.recordings.current() is not None
