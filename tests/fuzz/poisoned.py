"""Operands with many memory layouts, surrounded by poison, which exposes stray reads and stray writes.

The kind of a view, which affects the shader, is drawn once per group of problems; its amounts for each problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm import Device

VIEWS = ("dense", "offset", "window", "transposed", "transposed window", "strided", "reversed", "repeated")
WRITABLE = ("dense", "offset", "window", "transposed", "transposed window")  # kinds for results
TAIL = 37  # elements after an operand, at least


@dataclass(frozen=True)
class View:
    """A view of a buffer: leading elements, margins and steps along each axis, and transposition or repetition."""

    lead: int
    margins: tuple[tuple[int, int], ...]
    steps: tuple[int, ...]
    swapped: bool
    repeated: int | None  # an axis along which elements repeat

    @classmethod
    def draw(cls, kind: str, ndim: int, rng: Random) -> View:
        """Return a view of that kind of an array of `ndim` axes."""
        around = (0, 1, 3, 4, 8) if "window" in kind else (0,)
        steps = {"strided": (1, 2, 3), "reversed": (-1, 1, -2)}.get(kind, (1,))
        return cls(
            rng.choice((1, 2, 3, 4, 5, 16)) if kind == "offset" or "window" in kind else 0,
            tuple((rng.choice(around), rng.choice(around)) for _ in range(ndim)),
            tuple(rng.choice(steps) for _ in range(ndim)),
            "transposed" in kind and ndim > 1,
            rng.randrange(ndim) if kind == "repeated" and ndim else None,
        )


@dataclass
class Operand:
    """An operand of a call, its values, and a copy of its buffer from before the call."""

    given: Any  # a webmm.Array or a NumPy array: a view
    values: NDArray[Any]
    whole: Any  # the array that it is a view of
    before: NDArray[Any]
    inside: NDArray[np.bool_]

    def changed(self, written: bool) -> int:
        """Return the number of changed elements of the buffer; for a written operand, of those outside of it."""
        now = self.whole if isinstance(self.whole, np.ndarray) else self.whole.numpy()
        differ = (_bytes(now) != _bytes(self.before)).any(axis=1)
        return int(np.count_nonzero(differ & ~self.inside if written else differ))


def place(values: NDArray[Any], view: View, poison: Any, device: Device | None) -> Operand:
    """Return `values` as seen through `view`, on `device` or the host; a repeated axis repeats its first element."""
    repeated = view.repeated if values.size else None
    if repeated is not None:
        values = np.broadcast_to(values.take([0], repeated), values.shape)
    unrepeated = values if repeated is None else values.take([0], repeated)
    stored = unrepeated.swapaxes(-1, -2) if view.swapped else unrepeated
    axes = list(zip(stored.shape, view.margins, view.steps, strict=True))
    full = [before + (n - 1) * abs(step) + 1 + after if n else before + after for n, (before, after), step in axes]
    index = tuple(_slice(n, before, step) for n, (before, _), step in axes)
    first, size = view.lead, math.prod(full)
    flat = np.full(first + size + TAIL, poison, values.dtype)
    flat[first : first + size].reshape(full)[index] = stored
    inside = np.zeros(flat.shape, bool)
    inside[first : first + size].reshape(full)[index] = True

    whole: Any = flat.copy() if device is None else device.array(flat)
    part = whole[first : first + size]
    given = (part.reshape(full) if device is None else part.reshape(*full))[(*index, ...)]
    if view.swapped:
        given = given.swapaxes(-1, -2) if device is None else given.mT
    if repeated is not None:
        given = np.broadcast_to(given, values.shape) if device is None else given.broadcast_to(values.shape)
    return Operand(given, values, whole, flat, inside)


def _slice(n: int, before: int, step: int) -> slice:
    if not n:
        return slice(before, before)
    if step > 0:
        return slice(before, before + (n - 1) * step + 1, step)
    return slice(before - (n - 1) * step, before - 1 if before else None, step)


def _bytes(x: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(x).view(np.uint8).reshape(-1, x.itemsize)
