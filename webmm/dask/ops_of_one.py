"""Ops along an axis of one matrix in a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.calls.compute import compute
from webmm.calls.elementwise import map as map_elements
from webmm.calls.normalise import layer_norm, rms_norm, softmax
from webmm.calls.reduce import reduce
from webmm.cases import op_of
from webmm.dask.file_op import Arguments, FileOp, Shape
from webmm.dtypes import dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.problems.divisible import Divisible
from webmm.problems.reduce import OPERATIONS

NORMS: dict[str, Callable[..., Any]] = {"layer_norm": layer_norm, "rms_norm": rms_norm}


class OfOne(FileOp):
    """An op along an axis of one matrix; here a plugin's, whose problem says how it is cut."""

    from_plugin = True

    def __init__(self, name: str, axis: int, arguments: Arguments) -> None:
        super().__init__(name, axis, arguments)
        self.op, self.along = op_of(name), "m" if axis else "n"

    @property
    def sources(self) -> tuple[Path, ...]:
        """The plugin's files, with the templates beside them."""
        classes = (type(self.op), *STAGES[self.op.name].values()) if self.from_plugin else ()
        files = {Path(inspect.getfile(each)) for each in classes}
        return tuple(sorted(files.union(*(file.parent.glob("*.wgsl") for file in files))))

    def result(self, operands: Sequence[Any], names: Sequence[object] = "AB") -> tuple[Shape, str]:
        """Return the shape and the dtype of the result; a reduction keeps its axis, with length 1."""
        del names
        if len(operands) != 1:
            raise ConfigError(f"op {self.name} takes one file, A")
        (m, n), dtype = operands[0].shape, operands[0].dtype
        reduces, out = self.of((m, n), dtype)
        return (m, n) if not reduces else (m, 1) if self.axis else (1, n), out

    def of(self, shape: Shape, dtype: Any) -> tuple[bool, str]:
        """Return whether a matrix is reduced along the axis, and the dtype of the result."""
        (written,) = (extent for extent in self._problem(shape, dtype).buffers() if extent.written)
        return written.end != shape[0] * shape[1], written.dtype.name

    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters: only the other axis is cut."""
        del shapes
        return ["mk" if self.axis else "kn"]

    def tiled(self, tile: Any, planned: Shape) -> Shape:
        """Return the rows and columns of a piece with so many along the axis that is cut; the other stays whole."""
        rows, columns = super().tiled(tile, planned)
        return (rows, planned[1]) if self.along == "m" else (planned[0], columns)

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the result for a matrix."""
        (x,) = operands
        problem = self._problem((x.shape[0], x.shape[1]), x.dtype)
        lengths = tuple(getattr(problem, each) for each in problem.axes[0])
        got = compute(problem, np.ascontiguousarray(x).reshape(lengths), device=device)
        return np.asarray(got).reshape(self.result([x])[0])

    def _problem(self, shape: Shape, dtype: Any) -> Divisible:
        """Return the problem of a plugin's op; raises ConfigError unless it says how it is cut."""
        m, n = shape
        problem = self.op.problem((m, n, 1) if self.axis else (1, m, n), dtype_of(dtype).name)
        if not isinstance(problem, Divisible):
            raise ConfigError(f"op {self.op.name} does not say how it is cut: derive its problem from Divisible")
        return problem


class OfReduction(OfOne):
    """A reduction."""

    from_plugin = False

    def of(self, shape: Shape, dtype: Any) -> tuple[bool, str]:
        """Return True, and the dtype of the result."""
        del shape
        return True, OPERATIONS[self.op.variant].out_dtype(dtype_of(dtype)).name

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the reductions of rows or columns."""
        return np.asarray(reduce(operands[0], self.op.variant, self.axis, keepdims=True, device=device))


class OfMap(OfOne):
    """An elementwise function."""

    from_plugin = False

    def of(self, shape: Shape, dtype: Any) -> tuple[bool, str]:
        """Return False, and the dtype of the operand."""
        del shape
        return False, str(dtype)

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the values of the function."""
        return np.asarray(map_elements(operands[0], self.op.variant, device=device))


class OfNormalisation(OfMap):
    """A normalisation; norms are along the last axis, and so of the transpose for the first."""

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return normalised rows or columns."""
        (x,), variant = operands, self.op.variant
        if variant == "softmax":
            return np.asarray(softmax(x, self.axis, device=device))
        norm = NORMS[variant]
        return np.asarray(norm(x, device=device) if self.axis else norm(x.T, device=device).T)


ONE: dict[str, type[OfOne]] = {"reduce": OfReduction, "normalise": OfNormalisation, "elementwise": OfMap}
