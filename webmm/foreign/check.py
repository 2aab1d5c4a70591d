"""Correctness check of a foreign shader: against NumPy, with poisoned guard elements, and in both invocation orders."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import blank
from webmm.engine.device import Device
from webmm.engine.timing import submit
from webmm.errors import ConfigError, ProblemError
from webmm.foreign import Foreign
from webmm.foreign.guards import GUARD, UNTOUCHED, strays
from webmm.foreign.tasks import Size, Task, Work, wrong_in
from webmm.problems.base import Extent


@dataclass(frozen=True)
class Finding:
    """The result of the check of one task: `words` say what is wrong, and are empty if nothing is."""

    label: str
    words: str = ""


def check(foreign: Foreign, device: Device, cpu: Device | None, work: Work, sizes: Sequence[Size]) -> Iterator[Finding]:
    """Yield a finding for each size: of the result on `device`, and of both invocation orders on `cpu`, if given.

    Raises as `Foreign.launch()` does, and ProblemError for several sizes if the text has a fixed size.
    """
    if not foreign.sized and len(sizes) > 1:
        raise ProblemError(f"{foreign.name} has a fixed size: give it with --sizes")
    reverse = None if order_unknown(foreign, cpu) else foreign.reversed()
    for size in sizes:
        trial = SizeCheck(work, work.task(size))
        got = trial.run(foreign, device)
        words = [trial.errors(got)]
        if cpu and reverse:
            forward = got if cpu is device else trial.run(foreign, cpu)
            words.append(trial.order_dependence(forward, trial.run(reverse, cpu)))
        yield Finding(trial.task.label, "; ".join(filter(None, words)))


def order_unknown(foreign: Foreign, cpu: Device | None) -> str:
    """Return why the reverse order of invocations cannot be tested; empty if it can."""
    if cpu is None:
        return "there is no CPU adapter, which a test for missing barriers needs"
    try:
        foreign.reversed()
    except ConfigError as error:
        return str(error)
    return ""


class SizeCheck:
    """The check of one task: its operands, followed by guard elements, and its result."""

    def __init__(self, work: Work, task: Task) -> None:
        self.work, self.task = work, task
        self.expected = task.trial.expected.astype(np.float64)

    def run(self, foreign: Foreign, device: Device) -> NDArray[Any]:
        """Return the contents of the result's buffer, with its guard elements, after `foreign` has run."""
        arrays = {extent.name: device.array(self._guarded(extent), extent.dtype) for extent in self.task.buffers}
        try:
            submit(device, foreign.launch(device, self.task.lengths, arrays))
            return arrays[self.task.written.name].numpy().astype(np.float64)
        finally:
            for array in arrays.values():
                array.free()

    def errors(self, got: NDArray[Any]) -> str:
        """Return a description of wrong elements and stray writes; empty if there are none."""
        inside, beyond = self._split(got)
        wrong = wrong_in(inside, self.task.trial)
        words = [wrong.words(self._name(wrong.first))] if wrong else []
        words.append(strays(beyond.tolist(), self.task.written.end, self.work.result))
        return "; ".join(filter(None, words))

    def order_dependence(self, forward: NDArray[Any], reverse: NDArray[Any]) -> str:
        """Return a description of how the two orders of invocations differ; empty if they do not."""
        first, second = self._split(forward)[0], self._split(reverse)[0]
        allowed = 2 * np.broadcast_to(self.task.trial.allowed, first.shape)
        with np.errstate(invalid="ignore"):
            close = (np.abs(first - second) <= allowed) | (np.isnan(first) & np.isnan(second)) | (first == second)
        if close.all():
            return ""
        at = int(np.flatnonzero(~close)[0])
        return (
            "the result depends on the order of invocations (a missing barrier, or two invocations write one element): "
            f"{int((~close).sum()):,} of {close.size:,} elements, first {self._name(at)}: "
            f"expected {self.expected.flat[at]:g}, got {first.flat[at]:g} in order and {second.flat[at]:g} in reverse"
        )

    def _name(self, place: int) -> str:
        return self.work.name(self.task.problem, place)

    def _split(self, buffer: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        inside, end = self.expected.size, self.task.written.end
        return buffer[:inside].reshape(self.expected.shape), buffer[end:]

    def _guarded(self, extent: Extent) -> NDArray[Any]:
        values = blank(extent) if extent.written else self.task.trial.buffers[extent.name].astype(extent.dtype.numpy)
        count = -(-(extent.end + GUARD) // 16) * 16 - extent.end  # whole vec4 of any type
        beyond = np.full(count, UNTOUCHED) if extent.written else blank(dataclasses.replace(extent, end=count, start=0))
        return np.concatenate([values, beyond.astype(extent.dtype.numpy)])
