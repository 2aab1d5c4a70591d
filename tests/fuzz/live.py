"""The live arrays of a sequence of calls: each on the device, with a NumPy counterpart that is treated alike.

Operands are small whole numbers, so that nothing is rounded: a buffer reused while in use, a read that comes too early,
or a call with another call's strides give exactly detectable wrong numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from draw import Draw, wrong
from numpy.typing import NDArray
from poisoned import View, place

import webmm
from webmm.dtypes import dtype_of

LENGTHS = (5, 8, 12, 16, 33)
BATCH = 3  # matrices of an array of three axes
LARGEST = {  # whole numbers up to these, and their sums, are exact
    **{"float64": 2**50, "float32": 2**22, "int32": 2**22, "bool": 1},
    **{"float16": 2**10, "bfloat16": 2**7},
}
TOLERANCE = {"float64": 1e-12, "float32": 1e-3, "float16": 2e-2, "bfloat16": 0.1}  # of fractions; see table.py, too
SMALL = 64  # largest operand of exponentials and norms
POISON = 77  # overwrites host operands after a call

STEPS: dict[str, Callable[[Live], None]] = {}  # the kinds of steps
KINDS: list[str] = []  # their names, each as often as it is drawn


def step(often: int = 1) -> Callable[[Callable[[Live], None]], Callable[[Live], None]]:
    """Register a kind of step, drawn `often` times as often as others."""

    def register(function: Callable[[Live], None]) -> Callable[[Live], None]:
        STEPS[function.__name__] = function
        KINDS.extend([function.__name__] * often)
        return function

    return register


@dataclass(eq=False)  # arrays are compared element by element
class Pair:
    """An array or view on the device and its NumPy counterpart, which may differ by `tolerance` · (1 + |x|)."""

    array: webmm.Array
    host: NDArray[Any]
    tolerance: float = 0.0

    @property
    def dtype(self) -> str:
        """The name of the dtype."""
        return self.array.element.name

    @property
    def largest(self) -> float:
        """The largest magnitude; infinite if the numbers are not whole."""
        return np.inf if self.tolerance else float(np.abs(self.host).max(initial=0))

    def shares(self, other: Any) -> bool:
        """Return whether `other` uses the same buffer."""
        return isinstance(other, webmm.Array) and other._storage is self.array._storage

    def viewed(self, look: Callable[[Any], Any]) -> Pair:
        """Return a view of both."""
        return Pair(look(self.array), look(self.host), self.tolerance)


class Live:
    """The live arrays of a sequence, which draws its operands from them, and compares results."""

    def __init__(self, draw: Draw, shared: Sequence[Pair] = ()) -> None:
        self.draw, self.device, self.dtype = draw, draw.device, draw.dtype()
        self.lengths = draw.setting("lengths", [(a, b) for a in LENGTHS for b in LENGTHS if a < b])
        self.live: list[Pair] = []
        self.shared = list(shared)  # arrays that other threads use, too; they are only read
        self.given: list[NDArray[Any]] = []  # host operands of the current call

    # Operands

    def one_of(self, pairs: Sequence[Pair]) -> Pair:
        return pairs[self.draw.pick("live array", range(len(pairs)))]

    def length(self, name: str = "length") -> int:
        return self.draw.pick(name, self.lengths)

    def shape(self) -> tuple[int, int]:
        return self.length("rows"), self.length("columns")

    def any_shape(self) -> tuple[int, ...]:
        """Return the shape of a matrix, or sometimes of a batch of matrices."""
        return (*self.draw.pick("batch", ((), (), (BATCH,))), *self.shape())

    def whole(self, shape: tuple[int, ...], most: int = 2, dtype: str | None = None) -> NDArray[Any]:
        return self.draw.whole(shape, most).astype(dtype_of(dtype or self.dtype).numpy)

    def operand(
        self, shape: tuple[int, ...], most: float, not_of: Pair | None = None, dtype: str | None = None
    ) -> tuple[Any, NDArray[Any]]:
        """Return an operand of `shape` with numbers of at most `most` and its values: a live array or a new one.

        A new one is on the host, or a view of a larger array on the device, which is dropped at once.
        """
        dtype = dtype or self.dtype
        kind = self.draw.pick("operand", ("live", "live", "live", "host", "view", "view", "new"))
        if kind == "live" and (found := self.found(shape, most, dtype, not_of)):
            chosen = self.one_of(found)
            return chosen.array, chosen.host.astype(np.float64)
        values = self.whole(shape, 1, dtype)
        if kind == "new":
            return self.device.array(values), values.astype(np.float64)
        on_host = kind != "view"
        layout = self.draw.pick("layout", ("transposed", "window", "strided", "reversed", "repeated", "dense"))
        poison = POISON if values.dtype.kind in "iub" else np.nan
        view = View.draw(layout, len(shape), self.draw.rng)
        placed = place(values, view, poison, None if on_host else self.device)
        if on_host:
            self.given.append(placed.whole)
        return placed.given, placed.values.astype(np.float64)

    def found(self, shape: tuple[int, ...], most: float, dtype: str, not_of: Pair | None = None) -> list[Pair]:
        """Return the live arrays, also transposed and repeated, that can be such an operand."""
        looks = (lambda x: x, lambda x: x.T)
        fitting = [each for each in (*self.live, *self.shared) if each.dtype == dtype and each.largest <= most]
        fitting = [each for each in fitting if not (not_of and not_of.shares(each.array))]
        same = [each.viewed(look) for each in fitting for look in looks if look(each.host).shape == shape]
        repeated = [
            Pair(each.array.broadcast_to(shape), np.broadcast_to(each.host, shape))
            for each in fitting
            if len(shape) == 3 and each.host.shape in (shape[1:], shape[2:])
        ]
        return same + repeated

    # Results

    def keep(self, array: Any, exact: Any, tolerance: float = 0.0) -> None:
        """Keep a new array on the device as live; compare any other result now, which may be a view of an operand."""
        kept = isinstance(array, webmm.Array)
        dtype = dtype_of(array.element if kept else np.asarray(array).dtype)
        with np.errstate(over="ignore"):
            host = np.array(exact, dtype.numpy).astype(np.float64)
        if not kept or any(pair.shares(array) for pair in (*self.live, *self.shared)):
            self.compare(array, host, tolerance, dtype.name)
        else:
            self.live.append(Pair(array, host, tolerance))

    def compare(self, got: Any, exact: NDArray[Any], tolerance: float, dtype: str) -> None:
        if problem := wrong(got, exact, tolerance * (1 + np.abs(exact)), dtype):
            raise AssertionError(problem)

    def check(self, pair: Pair) -> None:
        """Compare a live array with its counterpart."""
        self.compare(pair.array, pair.host, pair.tolerance, pair.dtype)

    def changeable(self) -> list[Pair]:
        """Return the live arrays of whole numbers that a call may write to."""
        own = [each for each in self.live if not any(pair.shares(each.array) for pair in self.shared)]
        return [each for each in own if each.dtype == self.dtype and not each.tolerance and each.host.size]
