"""Ops along an axis of one matrix in a file."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.calls.compute import compute
from webmm.cases import op_of
from webmm.cases.streaming import StreamingOp
from webmm.cut.files import letters_of
from webmm.dask.file_op import Arguments, FileOp, Shape
from webmm.dtypes import DType, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.lazy import Lazy
from webmm.problems import OPS
from webmm.problems.divisible import Divisible

CALLS: Lazy[str, ModuleType] = Lazy(OPS, lambda op: import_module(f"webmm.calls.{op}"))  # those of plugins have none


class OfOne(FileOp):
    """An op along an axis of one matrix: `along()` in its module of calls, or a plugin's, which says how it is cut."""

    def __init__(self, name: str, axis: int, arguments: Arguments) -> None:
        super().__init__(name, axis, arguments)
        self.along = "m" if axis else "n"
        self.op: StreamingOp[Any] = op_of(name)  # type: ignore[assignment]
        self.from_plugin = self.op.name not in CALLS

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
        m, n = operands[0].shape
        dtype = dtype_of(operands[0].dtype)
        (written,) = (extent for extent in self._problem((m, n), self.op.dtypes[0]).buffers() if extent.written)
        kept = written.end == m * n
        return (m, n) if kept else (m, 1) if self.axis else (1, n), self.op.out_dtype(dtype).name

    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters: only the other axis is cut."""
        del shapes
        return letters_of(self.name, self.axis)

    def tiled(self, tile: Any, planned: Shape) -> Shape:
        """Return the rows and columns of a piece with so many along the axis that is cut; the other stays whole."""
        rows, columns = super().tiled(tile, planned)
        return (rows, planned[1]) if self.along == "m" else (planned[0], columns)

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the result for a matrix."""
        (x,) = operands
        if not self.from_plugin:
            return np.asarray(CALLS[self.op.name].along(x, self.op.variant, self.axis, device))
        problem = self._problem((x.shape[0], x.shape[1]), dtype_of(x.dtype))
        lengths = tuple(getattr(problem, each) for each in problem.axes[0])
        got = compute(problem, np.ascontiguousarray(x).reshape(lengths), device=device)
        return np.asarray(got).reshape(self.result([x])[0])

    def _problem(self, shape: Shape, dtype: DType) -> Any:
        """Return the problem of a matrix; raises ConfigError for a plugin's that does not say how it is cut."""
        m, n = shape
        problem = self.op.along((m, n, 1) if self.axis else (1, m, n), dtype)
        if self.from_plugin and not isinstance(problem, Divisible):
            raise ConfigError(f"op {self.op.name} does not say how it is cut: derive its problem from Divisible")
        return problem
