"""Elementwise functions of one array."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from webmm.dtypes import DType
from webmm.errors import ProblemError
from webmm.problems.base import Extent, Problem, check_floats
from webmm.wgsl.epilogues import ACTIVATIONS, activation_name, in_uniform


@dataclass(frozen=True)
class Elementwise(Problem):
    """y[i] ← activation(x[i]) for i < size; `activation` names one of `ACTIVATIONS` or an `Epilogue`."""

    activation: str
    size: int
    dtype: DType
    x_offset: int = 0
    y_offset: int = 0

    op: ClassVar[str] = "elementwise"

    def __post_init__(self) -> None:
        check_floats("activations", self.dtype)
        if in_uniform(activation_name(self.activation)):
            raise ProblemError("an expression is a problem of its own, webmm.problems.expression; map() makes it")

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of elements."""
        return self.size, 1, 1, 1

    @property
    def variant(self) -> str:
        """The activation; a user-defined one shares the records of GELU, since memory bandwidth limits both."""
        return self.activation if self.activation in ACTIVATIONS else "gelu"

    def buffers(self) -> tuple[Extent, ...]:
        """Return x and y."""
        return (
            Extent("x", self.dtype, self.x_offset + self.size, start=self.x_offset),
            Extent("y", self.dtype, self.y_offset + self.size, written=True, start=self.y_offset),
        )

    def within(self, firsts: tuple[int, ...]) -> Elementwise:
        """Return the problem with `firsts`, numbers of elements, subtracted from the offsets into x and y."""
        return replace(self, x_offset=self.x_offset - firsts[0], y_offset=self.y_offset - firsts[1])

    @property
    def flops(self) -> int:
        """The number of elements."""
        return self.size

    @property
    def bytes(self) -> int:
        """The bytes to move: each element read once and written once."""
        return 2 * self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.activation} of {self.size} {self.dtype.name}"
