"""Subjects of inspection: a problem with its operands, and NumPy's values for what its debug shader records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.steps.reference import Floats, Reference
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError

MAX_STEPS = 2**20
SPARE = 64  # minimum number of slots for steps beyond the end, which the last tile or vec4 may have


class Subject(ABC):
    """A problem of the row `op` whose kernel is inspected: `length` inner steps, with slots for `steps` of them.

    Raises ProblemError if there are too many steps.
    """

    def __init__(self, op: Any, kernel: Any, problem: Any) -> None:
        self.op, self.kernel, self.problem = op, kernel, problem
        if self.length > MAX_STEPS:
            raise ProblemError(f"the problem has {self.length:,} inner steps; at most {MAX_STEPS:,} can be recorded")
        self.steps = self.length + 2 * self.reach + SPARE

    def draw(self, device: Device) -> None:
        """Create the operands on the device."""
        self.case = self.drawn(device)
        self.inputs: dict[str, Array] = self.case.inputs

    def drawn(self, device: Device) -> Any:
        """Return an object with `inputs`: by default the op's case."""
        return self.op.case(device, self.problem)

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of inner steps of an element."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the result."""

    @property
    def reach(self) -> int:
        """Inner steps per loop iteration, at most."""
        first = self.kernel.dispatches[0]
        return int(getattr(first, "inner_step", 0) or getattr(first, "step", 1))

    def watched(self, row: int, col: int) -> tuple[int, int]:
        """Return the element's row and column as templates number them."""
        return row, col

    def located(self, *at: int) -> tuple[int, int]:
        """Return the row and column of an element from its indices; raises ProblemError if there is no such element."""
        rows, columns = self.shape
        row, col, *more = (*at, 0) if len(at) == 1 else at
        if more or not (0 <= row < rows and 0 <= col < columns):
            name = "C" if self.op.result == "C" else "the result"
            place = ", ".join(map(str, (row, col, *more)))
            raise ProblemError(
                f"{name} is {rows}x{columns}: it has no element ({place}); rows and columns count from 0"
            )
        return row, col

    @abstractmethod
    def reference(self, row: int, col: int) -> Reference:
        """Return NumPy's values for the element."""

    def padded(self, values: NDArray[Any], beyond: float = 0.0) -> Floats:
        """Return `values`, one per inner step, extended to `steps` with `beyond`."""
        return np.concatenate([values.astype(np.float64), np.full(self.steps - self.length, beyond)])
