"""Room on a device for what is moved through it, piece by piece: two arrays for each operand and result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.calls.parts import GRAIN
from webmm.dtypes import DType
from webmm.engine.array import Array
from webmm.engine.device import Device

LEAST_MEMORY = 2**24  # bytes for which a device that has no room for them is given up


class Slots:
    """Two device arrays for each operand and the result, used in turn."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._made: dict[tuple[str, int], Array] = {}
        self._held: dict[tuple[str, int], Any] = {}
        self._turn: dict[str, int] = {}

    def turn(self, name: str) -> int:
        """Return which of the two is next."""
        self._turn[name] = 1 - self._turn.get(name, 1)
        return self._turn[name]

    def take(self, name: str, turn: int, shape: tuple[int, ...], dtype: DType) -> Array:
        """Return an array of `shape` in that slot; what it held is gone."""
        size, slot = math.prod(shape), self._made.get((name, turn))
        # Uploads overwrite whole words, and so what lies behind a view that ends within one.
        if slot is None or slot.size < size or (slot.size > size and size * dtype.itemsize % 4):
            if slot is not None:
                slot.free()
            slot = self._made[name, turn] = self.device.empty((size,), dtype)
        return Array(slot.storage, shape, dtype)

    def load(self, name: str, key: Any, data: NDArray[Any] | Array, dtype: DType) -> Array:
        """Return `data` on the device, dense; where a slot holds what `key` stands for already, nothing is moved."""
        array, parts = self.begin(name, key, data, dtype)
        for _ in parts:
            pass
        return array

    def begin(
        self, name: str, key: Any, data: NDArray[Any] | Array, dtype: DType, parts: int = 1
    ) -> tuple[Array, Iterator[None]]:
        """As `load()`, with what is still to be moved: some `parts`, one whenever the iterator is advanced."""
        for turn in (0, 1):
            held = self._held.get((name, turn))
            if held is not None and held[0] == key:
                self._turn[name] = turn
                return held[1], iter(())
        turn, host = self.turn(name), np.asarray(data)
        # A transposed array is uploaded as it lies.
        swapped = host.ndim > 1 and abs(host.strides[-2]) < abs(host.strides[-1])
        lying = host.swapaxes(-1, -2) if swapped else host
        self._held.pop((name, turn), None)
        array = self.take(name, turn, lying.shape, dtype)
        shown = array.mT if swapped else array

        def move() -> Iterator[None]:
            rows = lying.shape[-2] if lying.ndim > 1 and math.prod(lying.shape[:-2]) == 1 else 0
            step = -(-rows // (parts * GRAIN)) * GRAIN  # whole words, which uploads need
            for start in range(0, rows, step) if 0 < step < rows else ():
                part = np.s_[..., start : start + step, :]
                self.device.upload(lying[part], array[part])
                if start + step < rows:
                    yield
            if not 0 < step < rows:
                self.device.upload(lying, array)
            self._held[name, turn] = (key, shown)
            yield

        return shown, move()

    def free(self) -> None:
        """Give everything back."""
        for array in self._made.values():
            array.free()
