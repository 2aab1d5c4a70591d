"""Is a text from elsewhere right? Beside NumPy, in poisoned surroundings, in both orders of its lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import DType
from webmm.engine.device import Device
from webmm.engine.timing import submit
from webmm.errors import ConfigError, ProblemError
from webmm.foreign import Foreign, Size
from webmm.problems.gemm import gemm
from webmm.verify import bound

SIZES: tuple[Size, ...] = ((64, 64, 64), (65, 67, 63), (1, 1, 1), (33, 130, 5), (128, 16, 200), (7, 300, 77))
SURROUNDINGS = 1024  # elements beyond each matrix: NaN beyond what is read, a number beyond what is written
UNTOUCHED = 77.0


@dataclass(frozen=True)
class Finding:
    """What came out for one size: `words` say what is wrong, and are empty where nothing is."""

    size: Size
    words: str = ""


def check(
    foreign: Foreign, device: Device, cpu: Device | None, sizes: Sequence[Size], dtype: DType
) -> Iterator[Finding]:
    """Yield a finding for each size: of the result on `device`, and of lanes in both orders on `cpu`, if there is one.

    Raises as `Foreign.launch()` does, and ProblemError for several sizes of a text that is made for one.
    """
    if not foreign.sized and len(sizes) > 1:
        raise ProblemError(f"{foreign.name} is told no sizes: --size says which one it is made for")
    reverse = None if order_unknown(foreign, cpu) else foreign.reversed()
    for size in sizes:
        trial = Trial(size, dtype)
        got = trial.run(foreign, device)
        words = [trial.complaint(got)]
        if cpu and reverse:
            forth = got if cpu is device else trial.run(foreign, cpu)
            words.append(trial.disorder(forth, trial.run(reverse, cpu)))
        yield Finding(size, "; ".join(filter(None, words)))


def order_unknown(foreign: Foreign, cpu: Device | None) -> str:
    """Return why the order of lanes cannot be tried; empty where it can."""
    if cpu is None:
        return "there is no CPU adapter, on which a missing barrier shows"
    try:
        foreign.reversed()
    except ConfigError as error:
        return str(error)
    return ""


class Trial:
    """One size: operands of small whole numbers, whose products are exact, and what NumPy makes of them."""

    def __init__(self, size: Size, dtype: DType) -> None:
        m, n, k = self.size = size
        self.dtype, rng = dtype, np.random.default_rng(0)
        self.a, self.b = (rng.integers(-2, 3, shape).astype(np.float64) for shape in ((m, k), (k, n)))
        self.expected = self.a @ self.b
        self.allowed = bound(gemm(m, n, k, dtype=dtype)) * (np.abs(self.a) @ np.abs(self.b))

    def run(self, foreign: Foreign, device: Device) -> NDArray[Any]:
        """Return what the buffer of C holds after `foreign` has run."""
        m, n, _ = self.size
        buffers = {
            "a": _surrounded(self.a.ravel(), np.nan),
            "b": _surrounded(self.b.ravel(), np.nan),
            "c": _surrounded(np.full(m * n, np.nan), UNTOUCHED),
        }
        arrays = {name: device.array(values, self.dtype) for name, values in buffers.items()}
        try:
            submit(device, foreign.launch(device, self.size, arrays))
            return arrays["c"].numpy().astype(np.float64)
        finally:
            for array in arrays.values():
                array.free()

    def complaint(self, got: NDArray[Any]) -> str:
        """Return what is wrong with a result; empty where nothing is."""
        inside, beyond = self._split(got)
        wrong = ~(np.abs(inside - self.expected) <= self.allowed)
        strays = np.flatnonzero(beyond != UNTOUCHED)
        words = []
        if wrong.any():
            i, j = (int(x) for x in np.argwhere(wrong)[0])
            words.append(
                f"{int(wrong.sum()):,} of {wrong.size:,} elements are wrong, first C[{i}, {j}]: "
                f"expected {self.expected[i, j]:g}, got {_told(inside[i, j])}"
            )
        if strays.size:
            at = inside.size + int(strays[0])
            words.append(
                f"{strays.size:,} elements beyond the end of C were written, first element {at:,} of its buffer: "
                f"got {_told(beyond[strays[0]])}"
            )
        return "; ".join(words)

    def disorder(self, forth: NDArray[Any], back: NDArray[Any]) -> str:
        """Return what differs between lanes in order and in reverse; empty where nothing does."""
        there, here = self._split(forth)[0], self._split(back)[0]
        close = (np.abs(there - here) <= 2 * self.allowed) | (np.isnan(there) & np.isnan(here))
        if close.all():
            return ""
        i, j = (int(x) for x in np.argwhere(~close)[0])
        return (
            "it depends on the order in which lanes run, as where a barrier is missing or two lanes write one element: "
            f"{int((~close).sum()):,} of {close.size:,} elements, first C[{i}, {j}]: "
            f"expected {self.expected[i, j]:g}, got {_told(there[i, j])} in order and {_told(here[i, j])} in reverse"
        )

    def _split(self, buffer: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        m, n, _ = self.size
        return buffer[: m * n].reshape(m, n), buffer[m * n :]


def _surrounded(values: NDArray[np.float64], filling: float) -> NDArray[np.float64]:
    count = -(-(values.size + SURROUNDINGS) // 8) * 8  # whole vec4 of any type
    return np.concatenate([values, np.full(count - values.size, filling)])


def _told(value: float) -> str:
    return f"{value:g}, as before it ran, or from beyond an operand" if np.isnan(value) else f"{value:g}"
