"""What a call on matrices in files is, whichever its op: which elements of its operands a piece needs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from webmm.cut.arrays import Extents, array_pieces
from webmm.cut.pieces import Limits, Piece, elements, lengths_of
from webmm.dtypes import REALS, DType, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError

READ = 2**28  # bytes that are read at a time: of Zarr operands, or of the operands of an op of elements or rows
AT_A_TIME = Limits(2**62, math.inf, 2 * READ)  # two pieces: one is computed while another is moved
Shape = tuple[int, int]
Arguments = Mapping[str, Any]  # numbers and words


class FileOp(ABC):
    """A call on matrices in files, with its axis and its arguments. The result is cut along its rows m and columns n.

    Raises ConfigError for arguments that it does not have.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REALS  # of the operands
    known: ClassVar[tuple[str, ...]] = ()  # the names of the arguments, the required ones first
    required: ClassVar[int] = 0
    from_plugin = False
    along = "mn"  # the axes that are cut; the first is that of a single number

    def __init__(self, name: str, axis: int, arguments: Arguments) -> None:
        self.name, self.axis = name, axis
        self.arguments = {each: _plain(each, value) for each, value in arguments.items()}
        unknown = [each for each in arguments if each not in self.known]
        missing = [each for each in self.known[: self.required] if each not in arguments]
        if unknown or missing:
            which = f"has no argument {unknown[0]}" if unknown else f"needs the argument {missing[0]}"
            raise ConfigError(f"op {name} {which}; it takes {', '.join(self.known) or 'none'}")

    @abstractmethod
    def result(self, operands: Sequence[Any], names: Sequence[object] = "AB") -> tuple[Shape, str]:
        """Return the shape and the dtype of the result; raises ProblemError for operands that do not fit, by `names`.

        Raises ConfigError for another number of operands.
        """

    @abstractmethod
    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters of the operands' axes: m and n are cut as the result is, all others are not."""

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that say what is computed, if they are not webmm's."""
        return ()

    def lengths(self, operands: Sequence[Any], shape: Shape, workers: int) -> Shape:
        """Return the rows and columns of a piece, which may exceed the shape; it moves READ bytes at most."""
        del workers
        letters = [*self.letters([x.shape for x in operands]), "mn"]
        types = [*(x.dtype for x in operands), np.dtype(self.result(operands)[1])]
        shapes = [*(x.shape for x in operands), shape]
        arrays = [
            Extents(axes, of, dtype.itemsize, moved=True)
            for axes, of, dtype in zip(letters, shapes, types, strict=True)
        ]
        found = lengths_of(next(iter(array_pieces(arrays, self.along, "", AT_A_TIME, 0))))
        return found.get("m", shape[0]), found.get("n", shape[1])

    def tiled(self, tile: Any, planned: Shape) -> Shape:
        """Return the rows and columns of a piece, as given: a number for the axis that is cut, or both.

        Raises ProblemError for anything else.
        """
        try:
            if isinstance(tile, Sequence):
                rows, columns = map(index, tile)
            else:
                rows, columns = (index(tile), planned[1]) if self.along[0] == "m" else (planned[0], index(tile))
        except (TypeError, ValueError):
            raise ProblemError(f"tile must be a whole number, or two (rows and columns), not {tile!r}") from None
        if min(rows, columns) < 1:
            raise ProblemError(f"a piece has at least one row or column, not {tile}")
        return rows, columns

    def piece(self, operands: Sequence[Any], piece: Piece, device: Device) -> NDArray[Any]:
        """Return a piece of the result of operands in files, as a matrix."""
        letters = self.letters([x.shape for x in operands])
        return self.compute([x[elements(piece, axes)] for x, axes in zip(operands, letters, strict=True)], device)

    @abstractmethod
    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the result of operands in host memory."""


def _plain(name: str, value: Any) -> Any:
    """Return an argument as it is stored: a number or a word; raises ConfigError for anything else."""
    if isinstance(value, (type, np.dtype)):
        return dtype_of(value).name
    if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
        value = value.item()
    if not isinstance(value, (bool, int, float, str)):
        raise ConfigError(
            f"{name} must be a number or a word, not {type(value).__name__}; calls on files take no arrays"
        )
    return value
