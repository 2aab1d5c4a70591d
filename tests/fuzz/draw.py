"""Drawing a problem from its seed, and comparing the result with the expected one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from poisoned import VIEWS, Operand, View, place

from webmm import Device
from webmm.dtypes import dtype_of

GROUP = (
    20  # consecutive problems that share all settings of the shader, since drivers take tenths of a second to compile
)
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 129, 200)
T = TypeVar("T")


class Draw:
    """The random choices for one problem. The same seed always gives the same choices."""

    def __init__(self, seed: int, device: Device, thread: int = 0) -> None:
        self.seed, self.device, self.thread = seed, device, thread
        self.words: list[str] = []
        self.operands: list[tuple[str, Operand]] = []
        self.written: Operand | None = None
        self.rng, self._values = Random(seed), np.random.default_rng(seed)

    def begin(self, step: int, kinds: Sequence[str]) -> str:
        """Draw all that follows for this step of a sequence, independently of other steps; return one of `kinds`."""
        self.rng = Random(f"{self.seed} {self.thread} {step}")
        self._values = np.random.default_rng((self.seed, self.thread, step))
        return self.pick(f"\n  step {step}", kinds)

    def setting(self, name: str, choices: Sequence[T]) -> T:
        """Return one of `choices`, the same for all problems of a group."""
        chosen = Random(f"{self.seed // GROUP} {name}").choice(choices)
        self.words.append(f"{name} {chosen}")
        return chosen

    def pick(self, name: str, choices: Sequence[T]) -> T:
        """Return one of `choices`."""
        chosen = self.rng.choice(choices)
        self.words.append(f"{name} {chosen}")
        return chosen

    def size(self, name: str, most: int = SIZES[-1], empty: bool = True) -> int:
        """Return a length: one of three per group, and sometimes 0."""
        choices = [n for n in SIZES if n <= most]
        lengths = Random(f"{self.seed // GROUP} {name}").sample(choices, 3)
        return self.pick(name, [*lengths * 13, 0] if empty else lengths)

    def batch(self, most_axes: int = 2) -> tuple[int, ...]:
        """Return the leading axes of a batch, in most cases none."""
        axes = self.setting("batch axes", (0, 0, *range(1, most_axes + 1)))
        return tuple(self.pick("batch", (1, 2, 3)) for _ in range(axes))

    def dtype(self) -> Any:
        """Return a floating-point dtype that the device supports."""
        return self.setting("dtype", self.floats())

    def floats(self) -> list[str]:
        """Return the floating-point dtypes that the device supports."""
        return [name for name in ("float32", "float16", "bfloat16") if self.has(name)]

    def has(self, dtype: str) -> bool:
        """Return whether the device supports a dtype."""
        return dtype_of(dtype).features <= self.device.capabilities.features

    def values(self, shape: tuple[int, ...], dtype: str, special: bool = False) -> NDArray[Any]:
        """Return whole numbers or fractions, the same kind per group; with `special`, sometimes NaN and infinities."""
        kind = self.setting("values", ("whole", "normal", "normal"))
        top = 4 if dtype == "float32" else 2
        drawn = (
            self._values.integers(-top, top + 1, shape).astype(np.float64)
            if kind == "whole"
            else self._values.standard_normal(shape)
        )
        if special and self.rng.random() < 0.1 and drawn.size:
            self.words.append("special values")
            drawn.flat[self._values.integers(0, drawn.size, 2)] = self.rng.sample((np.nan, np.inf, -np.inf), 2)
        return drawn.astype(dtype_of(dtype).numpy)

    def integers(self, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        """Return integers from the whole range of a dtype."""
        info = np.iinfo(dtype)
        return self._values.integers(info.min, info.max, shape, endpoint=True).astype(dtype)

    def whole(self, shape: tuple[int, ...], most: int) -> NDArray[np.float32]:
        """Return whole numbers with magnitudes of at most `most`."""
        return self._values.integers(-most, most, shape, endpoint=True).astype(np.float32)

    def operand(
        self,
        name: str,
        values: NDArray[Any],
        on_host: bool = False,
        views: Sequence[str] = VIEWS,
        written: bool = False,
    ) -> tuple[Any, NDArray[Any]]:
        """Return `values` as an operand of a call, surrounded by poison, and the values it then holds."""
        kind = self.setting(f"{name} is", views)
        poison = 165 if values.dtype == np.uint8 else -91 if values.dtype.kind in "iu" else np.nan
        view = View.draw(kind, values.ndim, self.rng)
        self.words.append(f"{values.shape} {values.dtype} {view}")
        placed = place(values, view, poison, None if on_host else self.device)
        if written:
            self.written = placed
        self.operands.append((name, placed))
        return placed.given, placed.values

    def strays(self) -> str:
        """Describe stray writes: changes of operands, or around the written one; empty if there are none."""
        for name, operand in self.operands:
            if changed := operand.changed(operand is self.written):
                return f"{changed} elements {'around' if operand is self.written else 'of'} {name} changed"
        return ""


def wrong(got: Any, expected: NDArray[Any], allowed: Any, dtype: str) -> str:
    """Describe how `got` differs from `expected` in dtype, shape, or by more than `allowed`; empty if it does not."""
    result = np.asarray(got if isinstance(got, np.ndarray | np.generic) else got.numpy())
    if result.shape != expected.shape or result.dtype != dtype_of(dtype).numpy:
        return f"{result.dtype} of shape {result.shape}, not {dtype} of shape {expected.shape}"
    actual = result.astype(np.float64)
    with np.errstate(all="ignore"):
        stored = expected.astype(result.dtype).astype(np.float64)
        special = ~np.isfinite(stored)
        same = (actual == stored) | (np.isnan(actual) & np.isnan(stored))
        near = np.abs(actual - expected) <= allowed
    bad = np.argwhere(~np.where(special, same, near))
    if not len(bad):
        return ""
    at = tuple(map(int, bad[0]))
    return f"{len(bad)} of {actual.size} wrong, first at {at}: {actual[at]!r}, not {float(expected[at])!r}"
