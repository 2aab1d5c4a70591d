"""The base class of problems that say how they may be cut."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from webmm.problems.base import Problem


class Divisible(Problem):
    """A problem whose results are independent along some axes of its arrays, which `webmm.compute()` may cut.

    All arrays are dense and start with their buffers. An axis is named by the field that is its length.
    """

    cuttable: ClassVar[tuple[str, ...]] = ()  # axes along which results are independent, preferred first

    @property
    @abstractmethod
    def axes(self) -> tuple[tuple[str, ...], ...]:
        """The axes of the array in each buffer; arrays with the same axis are cut at the same places."""

    @abstractmethod
    def cut(self, axis: str, start: int, length: int) -> Divisible:
        """Return the problem for [start, start + length) along a cuttable axis, in arrays of these elements only."""
