"""Correctness check of a foreign shader: against NumPy, with poisoned guard elements, and in both invocation orders."""

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
from webmm.measure.verify import bound, wrong_elements
from webmm.problems.gemm import gemm

SIZES: tuple[Size, ...] = ((64, 64, 64), (65, 67, 63), (1, 1, 1), (33, 130, 5), (128, 16, 200), (7, 300, 77))
GUARD = 1024  # guard elements after each matrix: NaN after the operands, UNTOUCHED after the result
UNTOUCHED = 77.0


@dataclass(frozen=True)
class Finding:
    """The result of the check for one size: `words` say what is wrong, and are empty if nothing is."""

    size: Size
    words: str = ""


def check(
    foreign: Foreign, device: Device, cpu: Device | None, sizes: Sequence[Size], dtype: DType
) -> Iterator[Finding]:
    """Yield a finding for each size: of the result on `device`, and of both invocation orders on `cpu`, if given.

    Raises as `Foreign.launch()` does, and ProblemError for several sizes if the text has a fixed size.
    """
    if not foreign.sized and len(sizes) > 1:
        raise ProblemError(f"{foreign.name} has a fixed size: give it with --sizes")
    reverse = None if order_unknown(foreign, cpu) else foreign.reversed()
    for size in sizes:
        trial = SizeCheck(size, dtype)
        got = trial.run(foreign, device)
        words = [trial.errors(got)]
        if cpu and reverse:
            forward = got if cpu is device else trial.run(foreign, cpu)
            words.append(trial.order_dependence(forward, trial.run(reverse, cpu)))
        yield Finding(size, "; ".join(filter(None, words)))


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
    """The check of one size: operands of small integers, whose products are exact, and NumPy's result."""

    def __init__(self, size: Size, dtype: DType) -> None:
        m, n, k = self.size = size
        self.dtype, rng = dtype, np.random.default_rng(0)
        self.a, self.b = (rng.integers(-2, 3, shape).astype(np.float64) for shape in ((m, k), (k, n)))
        self.expected = self.a @ self.b
        self.allowed = bound(gemm(m, n, k, dtype=dtype)) * (np.abs(self.a) @ np.abs(self.b))

    def run(self, foreign: Foreign, device: Device) -> NDArray[Any]:
        """Return the contents of C's buffer, with its guard elements, after `foreign` has run."""
        m, n, _ = self.size
        buffers = {
            "a": _guarded(self.a.ravel(), np.nan),
            "b": _guarded(self.b.ravel(), np.nan),
            "c": _guarded(np.full(m * n, np.nan), UNTOUCHED),
        }
        arrays = {name: device.array(values, self.dtype) for name, values in buffers.items()}
        try:
            submit(device, foreign.launch(device, self.size, arrays))
            return arrays["c"].numpy().astype(np.float64)
        finally:
            for array in arrays.values():
                array.free()

    def errors(self, got: NDArray[Any]) -> str:
        """Return a description of wrong elements and stray writes; empty if there are none."""
        inside, beyond = self._split(got)
        wrong = wrong_elements(inside, self.expected, ~(np.abs(inside - self.expected) <= self.allowed))
        strays = np.flatnonzero(beyond != UNTOUCHED)
        words = [wrong.words(self._name(wrong.first))] if wrong else []
        if strays.size:
            at = inside.size + int(strays[0])
            words.append(
                f"{strays.size:,} elements beyond the end of C were written, first element {at:,} of its buffer: "
                f"got {beyond[strays[0]]:g}"
            )
        return "; ".join(words)

    def order_dependence(self, forward: NDArray[Any], reverse: NDArray[Any]) -> str:
        """Return a description of how the two orders of invocations differ; empty if they do not."""
        first, second = self._split(forward)[0], self._split(reverse)[0]
        close = (np.abs(first - second) <= 2 * self.allowed) | (np.isnan(first) & np.isnan(second))
        if close.all():
            return ""
        at = int(np.flatnonzero(~close)[0])
        return (
            "the result depends on the order of invocations (a missing barrier, or two invocations write one element): "
            f"{int((~close).sum()):,} of {close.size:,} elements, first {self._name(at)}: "
            f"expected {self.expected.flat[at]:g}, got {first.flat[at]:g} in order and {second.flat[at]:g} in reverse"
        )

    def _name(self, place: int) -> str:
        row, column = divmod(place, self.expected.shape[1])
        return f"C[{row}, {column}]"

    def _split(self, buffer: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        m, n, _ = self.size
        return buffer[: m * n].reshape(m, n), buffer[m * n :]


def _guarded(values: NDArray[np.float64], filling: float) -> NDArray[np.float64]:
    count = -(-(values.size + GUARD) // 8) * 8  # whole vec4 of any type
    return np.concatenate([values, np.full(count - values.size, filling)])
