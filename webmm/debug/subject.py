"""What a debug shader looks at: a problem of an op with operands, and what NumPy has where it records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from webmm.cases import OPS
from webmm.debug.reference import Floats, Reference
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.errors import ProblemError

MAX_STEPS = 2**20
LEAST_SPARE = 64  # steps beyond the end for which there is room: what the last tile or vec4 hangs over


class Subject(ABC):
    """A problem with operands, whose kernel is looked into: `length` inner steps, and room for `steps` to record."""

    op: ClassVar[str] = ""  # whose problems these are

    def __init__(self, kernel: Any, problem: Any) -> None:
        self.kernel, self.problem = kernel, problem  # of the op
        if self.length > MAX_STEPS:
            raise ProblemError(f"there are {self.length:,} inner steps, of which at most {MAX_STEPS:,} are looked at")
        self.steps = self.length + 2 * self.reach + LEAST_SPARE

    def draw(self, device: Device) -> None:
        """Bring operands to the device."""
        self.case = self.drawn(device)
        self.inputs: dict[str, Array] = self.case.inputs

    def drawn(self, device: Device) -> Any:
        """Return something that has `inputs`: the op's case."""
        return OPS[self.problem.op].case(device, self.problem)

    @property
    @abstractmethod
    def length(self) -> int:
        """The inner steps of an element."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """How many rows and columns of elements there are."""

    @property
    def reach(self) -> int:
        """Steps that an iteration takes, at most."""
        first = self.kernel.dispatches[0]
        return int(getattr(first, "inner_step", 0) or getattr(first, "step", 1))

    def watched(self, row: int, col: int) -> tuple[int, int]:
        """Return what templates call the element."""
        return row, col

    def check(self, row: int, col: int) -> None:
        """Raise ProblemError where there is no such element."""
        rows, columns = self.shape
        if not (0 <= row < rows and 0 <= col < columns):
            name = "C" if self.op in ("gemm", "weights", "quantized") else "the result"
            raise ProblemError(
                f"{name} is {rows}x{columns}: it has no element ({row}, {col}); rows and columns count from 0"
            )

    @abstractmethod
    def reference(self, row: int, col: int) -> Reference:
        """Return what NumPy has for the element."""

    def padded(self, values: NDArray[Any], beyond: float = 0.0) -> Floats:
        """Return `values` of each inner step with `beyond` for those that follow."""
        return np.concatenate([values.astype(np.float64), np.full(self.steps - self.length, beyond)])
