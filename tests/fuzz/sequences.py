"""Sequences of calls without waits: results become operands, arrays are freed meanwhile, reads come in any order.

The steps are in modules by subject; each is a function of the live arrays. A step draws its choices independently of
the others, so that a sequence that fails can be shortened.
"""

from __future__ import annotations

import contextlib
import gc
import traceback
from collections.abc import Collection, Iterator
from unittest import mock

import aliasing  # noqa: F401 (each of these modules registers its steps)
import element_steps  # noqa: F401
import host_operands  # noqa: F401
import memory_steps  # noqa: F401
import product_steps  # noqa: F401
import special_numbers  # noqa: F401
from draw import Draw
from live import KINDS, POISON, STEPS, Live

from webmm import Device
from webmm.choose import gemm as gemm_choices
from webmm.dtypes import F64
from webmm.kernels.gemm.naive import Naive

LENGTH = 30  # steps


class Sequence(Live):
    """A sequence of random steps."""

    def run(self, left_out: Collection[int] = ()) -> None:
        """Perform the steps, and read the remaining arrays in any order; a wrong result raises."""
        for i in range(LENGTH):
            if i in left_out:
                continue
            STEPS[self.draw.begin(i, KINDS)](self)
            for each in self.given:
                each[...] = POISON
            self.given.clear()
        self.draw.begin(LENGTH, ("read all",))
        while self.live:
            STEPS["read"](self)


def alone(draw: Draw, left_out: Collection[int] = ()) -> None:
    """Run the sequence of a seed without some of its steps."""
    with fast_kernels(draw.device), without_leaks(draw.device):
        Sequence(draw).run(left_out)


@contextlib.contextmanager
def fast_kernels(device: Device) -> Iterator[None]:
    """Use the kernel that compiles fastest on a CPU adapter, where compilation is slow."""
    chosen = gemm_choices.candidates
    if device.info.kind != "cpu":
        yield
        return
    fast = lambda problem, *rest: chosen(problem, *rest) if problem.dtype == F64 else [Naive()]  # noqa: E731
    with mock.patch.object(gemm_choices, "candidates", fast):
        yield


@contextlib.contextmanager
def without_leaks(device: Device) -> Iterator[None]:
    """Raise AssertionError if more arrays are on the device after the block than before."""
    before = array_bytes(device)
    yield
    if array_bytes(device) > before:
        gc.collect()  # it takes longer than most sequences
        if (left := array_bytes(device) - before) > 0:
            raise AssertionError(f"{left:,} bytes of arrays are left after all were dropped")


def array_bytes(device: Device) -> int:
    """Return the bytes of arrays other than constants, which are kept for later calls."""
    constants = [x._storage.block for x in device.constants._kept.values()]
    return device.memory_stats().array_bytes - sum(block.size for block in constants if block)


def shortened(draw: Draw, error: Exception) -> Draw:
    """Return the draw of a sequence with the same error in fewer steps, found by leaving out one at a time."""
    left_out: set[int] = set()
    found = draw
    for i in reversed(range(LENGTH)):
        again = Draw(draw.seed, draw.device)
        again.words += [word for word in draw.words[:1] if word.startswith("device")]
        try:
            alone(again, left_out | {i})
        except Exception as other:
            if _place(other) == _place(error):
                left_out.add(i)
                found = again
    return found


def _place(error: Exception) -> tuple[type, int]:
    return type(error), traceback.extract_tb(error.__traceback__)[-1].lineno or 0
