"""Calls on matrices in files: products, expressions of elements, and the choice of an op by its name."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.calls.expression import elementwise, made, shape_of
from webmm.calls.gemm import gemm, matmul
from webmm.calls.quantized import out_dtype_of, qmatmul
from webmm.cases import OPS, op_of
from webmm.cases.streaming import StreamingOp
from webmm.cut.devices import Types
from webmm.cut.files import check_inner, letters_of
from webmm.cut.pieces import Piece, elements
from webmm.dask.file_op import READ, Arguments, FileOp, Shape
from webmm.dask.ops_of_one import OfOne
from webmm.dask.products import task_sizes
from webmm.dtypes import BOOL, FLOATS, I8, I32, U8, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError
from webmm.wgsl.compiler import shown
from webmm.wgsl.expressions import parsed

NAMES = "xyzw"  # of the operands of an expression
EXPRESSION = "expression"


class Product(FileOp):
    """A matrix product; pieces along k of operands that are not memory-mapped are added on the device."""

    def result(self, operands: Sequence[Any], names: Sequence[object] = "AB") -> tuple[Shape, str]:
        """Return the shape and the dtype of the product."""
        if len(operands) != 2:
            raise ConfigError("a product takes two files, A and B")
        a, b = operands
        check_inner(a.shape, b.shape, names)
        return (a.shape[0], b.shape[1]), self.dtype(a.dtype, b.dtype, names)

    def dtype(self, a: Any, b: Any, names: Sequence[object]) -> str:
        """Return the dtype of the product; raises ProblemError if those of the operands do not fit."""
        if a != b:
            raise ProblemError(f"{names[0]} is {a}, {names[1]} is {b}; cast one, e.g. x.astype('{a}')")
        return str(a)

    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters: k is summed."""
        del shapes
        return letters_of("gemm", self.axis)

    def lengths(self, operands: Sequence[Any], shape: Shape, workers: int) -> Shape:
        """Return the rows and columns of a task."""
        types = Types(operands[0].dtype.itemsize, operands[0].dtype.itemsize)
        return task_sizes((*shape, operands[0].shape[1]), types, workers)[:2]

    def piece(self, operands: Sequence[Any], piece: Piece, device: Device) -> NDArray[Any]:
        """Return a piece of the product; Zarr arrays are read in pieces along k."""
        if all(isinstance(x, np.ndarray) for x in operands):
            return super().piece(operands, piece, device)
        (a, b), (m, n) = operands, (stop - start for start, stop in (piece.at["m"], piece.at["n"]))
        dtype, k = dtype_of(a.dtype), a.shape[1]
        step = max(1, READ // ((m + n) * dtype.itemsize))
        with device.zeros((m, n), dtype.sums) as total:
            for start in range(0, k, step):
                inner = Piece({**piece.at, "k": (start, min(start + step, k))})
                with device.array(a[elements(inner, "mk")]) as x, device.array(b[elements(inner, "kn")]) as y:
                    gemm(x, y, total, beta=1.0)
            return np.asarray(total.numpy(), dtype.numpy)

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the product."""
        return np.asarray(matmul(*operands, device=device))


class QuantizedProduct(Product):
    """A product of 8-bit operands, `webmm.qmatmul()`, with numbers for its scales and zero points.

    A piece reads all of k: 8-bit results cannot be added.
    """

    dtypes = (U8, I8)
    known = ("scale_a", "zero_a", "scale_b", "zero_b", "scale_c", "zero_c", "out_dtype")
    required = 4

    def dtype(self, a: Any, b: Any, names: Sequence[object]) -> str:
        """Return the dtype of the result."""
        del b, names
        return out_dtype_of(self.arguments.get("out_dtype"), self.arguments.get("scale_c"), dtype_of(a)).name

    def lengths(self, operands: Sequence[Any], shape: Shape, workers: int) -> Shape:
        """Return the rows and columns of a task, fewer if it would read more than a task should."""
        rows, columns = super().lengths(operands, shape, workers)
        m, n = FileOp.lengths(self, operands, shape, workers)
        return min(rows, m), min(columns, n)

    def piece(self, operands: Sequence[Any], piece: Piece, device: Device) -> NDArray[Any]:
        """Return a piece."""
        return FileOp.piece(self, operands, piece, device)

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the product."""
        return np.asarray(qmatmul(operands[0], operands[1], **self.arguments, device=device))


class OfElements(FileOp):
    """An expression of the elements of up to four matrices, x, y, z and w, which broadcast."""

    dtypes = (*FLOATS, I32, BOOL)
    known = (EXPRESSION,)
    required = 1

    def result(self, operands: Sequence[Any], names: Sequence[object] = "AB") -> tuple[Shape, str]:
        """Return the shape and the dtype of the result."""
        del names
        if not 1 <= len(operands) <= len(NAMES):
            raise ConfigError(f"an expression takes one to four files, {', '.join(NAMES)}, not {len(operands)}")
        arrays = {name: dtype_of(x.dtype) for name, x in zip(NAMES, operands, strict=False)}
        text = self.arguments[EXPRESSION]
        m, n = shape_of([x.shape for x in operands])
        dtype = made(text, arrays, {}, None).y.dtype
        named = {part.id for part in ast.walk(parsed(text)) if isinstance(part, ast.Name)}
        if unused := [name for name in arrays if name not in named]:
            raise ConfigError(f"expression {shown(text)} does not use file {NAMES.index(unused[0]) + 1}, {unused[0]}")
        return (m, n), dtype.name

    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters, with "1" for an axis that broadcasts."""
        return [("1" if m == 1 else "m") + ("1" if n == 1 else "n") for m, n in shapes]

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the value of the expression."""
        given: dict[str, Any] = dict(zip(NAMES, operands, strict=False))
        return np.asarray(elementwise(self.arguments[EXPRESSION], device=device, **given))


SEVERAL: dict[str, type[FileOp]] = {"gemm": Product, "quantized": QuantizedProduct, EXPRESSION: OfElements}


def op_of_files(name: str, axis: int = 1, arguments: Arguments | None = None) -> FileOp:
    """Return the op called NAME, NAME:VARIANT or VARIANT (softmax), or "expression"; raises ConfigError for others."""
    if name in SEVERAL:
        return SEVERAL[name](name, 1, arguments or {})
    rows = [row for row in OPS.values() if isinstance(row, StreamingOp)]
    owner = next((row.name for row in rows if name not in OPS and row.knows(name)), "")
    op = op_of(f"{owner}:{name}" if owner else name)
    if not isinstance(op, StreamingOp):
        choices = ", ".join([*SEVERAL, *(row.name for row in rows)])
        raise ConfigError(f"op {op.name} is not for files; choose from {choices}")
    return OfOne(f"{op.name}:{op.variant}" if op.variant else op.name, axis, arguments or {})
