"""Double-buffered device memory for data that is processed in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cut.pieces import GRAIN
from webmm.dtypes import DType
from webmm.engine.device import Array, Device
from webmm.engine.view import in_memory_order


class Slots:
    """Two device arrays for each operand and the result, used alternately."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._made: dict[tuple[str, int], Array] = {}
        self._loaded: dict[tuple[str, int], Any] = {}
        self._turn: dict[str, int] = {}

    def turn(self, name: str) -> int:
        """Return the index, 0 or 1, of the slot to use next."""
        self._turn[name] = 1 - self._turn.get(name, 1)
        return self._turn[name]

    def take(self, name: str, turn: int, shape: tuple[int, ...], dtype: DType) -> Array:
        """Return an array of `shape` in that slot, whose previous contents are lost."""
        size, slot = math.prod(shape), self._made.get((name, turn))
        # Uploads write whole u32 words, and would overwrite the elements that follow a view that ends within a word.
        if slot is None or slot.size < size or (slot.size > size and size * dtype.itemsize % 4):
            if slot is not None:
                slot.free()
            slot = self._made[name, turn] = self.device.empty((size,), dtype)
        return Array(slot.storage, shape, dtype)

    def load(self, name: str, key: Any, data: NDArray[Any] | Array, dtype: DType) -> Array:
        """Return `data` on the device, dense; nothing is uploaded if a slot already holds the data with this `key`."""
        array, parts = self.begin(name, key, data, dtype)
        for _ in parts:
            pass
        return array

    def begin(
        self, name: str, key: Any, data: NDArray[Any] | Array, dtype: DType, parts: int = 1
    ) -> tuple[Array, Iterator[None]]:
        """Return the array of `load()` and an iterator that uploads one of about so many `parts` for each step."""
        for turn in (0, 1):
            loaded = self._loaded.get((name, turn))
            if loaded is not None and loaded[0] == key:
                self._turn[name] = turn
                return loaded[1], iter(())
        turn, host = self.turn(name), np.asarray(data)
        source = in_memory_order(host)
        self._loaded.pop((name, turn), None)
        array = self.take(name, turn, source.shape, dtype)
        view = array if source is host else array.mT

        def move() -> Iterator[None]:
            rows = source.shape[-2] if source.ndim > 1 and math.prod(source.shape[:-2]) == 1 else 0
            step = -(-rows // (parts * GRAIN)) * GRAIN  # uploads need whole u32 words
            for start in range(0, rows, step) if 0 < step < rows else ():
                part = np.s_[..., start : start + step, :]
                self.device.upload(source[part], array[part])
                if start + step < rows:
                    yield
            if not 0 < step < rows:
                self.device.upload(source, array)
            self._loaded[name, turn] = (key, view)
            yield

        return view, move()

    def free(self) -> None:
        """Free all arrays."""
        for array in self._made.values():
            array.free()
