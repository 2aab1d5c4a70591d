"""The public call for a problem of any op, such as one of a plugin."""

from __future__ import annotations

import itertools
from typing import Any

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, Labelled
from webmm.calls.operands import Operandish, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.dtypes import DType
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.divisible import Divisible


def compute(
    problem: Divisible, *operands: Operandish, device: Device | str | None = None, devices: Devices | None = None
) -> Any:
    """Return the result of `problem` for its operands, by the kernel that is chosen for it.

    Arguments:

    - `problem`: what to compute, such as the problem of a plugin's op.
    - `operands`: an array for each buffer but the result's, of its dtype, and of the lengths of its axes.
    - `device`: by default the device of the operands, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays is divided.

    A problem with `Divisible.cuttable` axes may exceed a binding, a dispatch or, in NumPy arrays or memory maps, the
    device's memory. Returns a NumPy array, or an `Array` on the same device if an operand is one.

    Raises ProblemError for operands of another number, shape or dtype, and for other problems; UnsupportedError if the
    device cannot compute the smallest piece, MemoryLimitError if it is out of memory.
    """
    if not isinstance(problem, Divisible):
        raise ProblemError(f"problems of {problem.op} do not say how they are cut; run them by Device.run()")
    extents, everything = problem.buffers(), problem.axes
    inputs = [extent for extent in extents if not extent.written]
    if len(operands) != len(inputs):
        names = ", ".join(extent.name for extent in inputs)
        raise ProblemError(f"{problem.op} takes {len(inputs)} operands ({names}), not {len(operands)}")
    with opened(problem.op, device, *operands, devices=devices) as temporary:
        data = [temporary.data(x) for x in operands]
        given = iter(data)
        found: list[_FromStart] = []
        for extent, axes in zip(extents, everything, strict=True):
            shape = tuple(getattr(problem, axis) for axis in axes)
            if extent.written:
                at, x = len(found), temporary.result(shape, extent.dtype, *data)
            else:
                x = _checked(f"{extent.name} of {problem}", next(given), shape, extent.dtype)
            found.append(_FromStart(x, "".join(_letter(problem, axis) for axis in axes), anywhere=False))
        into = found.pop(at)

        def one(*arrays: Array) -> None:
            *others, y = arrays
            ordered = [*others[:at], y, *others[at:]]
            named = (zip(axes, x.shape, strict=True) for axes, x in zip(everything, ordered, strict=True))
            lengths, piece = dict(itertools.chain.from_iterable(named)), problem
            for axis in problem.cuttable:
                piece = piece if lengths[axis] == getattr(piece, axis) else piece.cut(axis, 0, lengths[axis])
            choose.run(piece, y.device, *ordered)

        if into.data.size:
            along = "".join(_letter(problem, axis) for axis in problem.cuttable)
            in_pieces(temporary, one, found, into, along, flops=problem.flops)
        return returned(into.data)


def _letter(problem: Divisible, axis: str) -> str:
    """Return the letter of an axis, as the planner of pieces takes them."""
    known = dict.fromkeys(itertools.chain(*problem.axes))
    return chr(ord("a") + [*known].index(axis))


class _FromStart(Labelled):
    """Data that kernels read and write from the first element of a buffer on."""

    def in_place(self, binding: int, written: bool = False) -> bool:
        return isinstance(self.data, Array) and not self.data.offset and super().in_place(binding, written)


def _checked(what: str, x: Data, shape: tuple[int, ...], dtype: DType) -> Data:
    if x.shape != shape or element_of(x) != dtype:
        raise ProblemError(f"{what} must be {dtype.name} of shape {shape}, not {element_of(x).name} of shape {x.shape}")
    return x
