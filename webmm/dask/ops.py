"""Calls on matrices in files: which elements of its operands a piece of the result needs, and how it is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from webmm.calls.compute import compute
from webmm.calls.elementwise import map as map_elements
from webmm.calls.expression import Maker, elementwise, shape_of
from webmm.calls.gemm import gemm, matmul
from webmm.calls.normalise import layer_norm, rms_norm, softmax
from webmm.calls.quantized import out_dtype_of, qmatmul
from webmm.calls.reduce import reduce
from webmm.cases import OPS, op_of
from webmm.cases.streaming import StreamingOp
from webmm.cut.devices import Types
from webmm.cut.pieces import Piece, elements
from webmm.dask.products import task_sizes
from webmm.dtypes import BOOL, F64, FLOATS, I8, I32, U8, DType, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError
from webmm.problems.divisible import Divisible
from webmm.problems.reduce import OPERATIONS

READ = 2**28  # bytes that are read at a time: of Zarr operands, or of the operands of an op of elements or rows
OWN = ("reduce", "normalise", "elementwise")  # of one array, of webmm itself; all others are from plugins
NORMS: dict[str, Callable[..., Any]] = {"layer_norm": layer_norm, "rms_norm": rms_norm}
NAMES = "xyzw"  # of the operands of an expression
EXPRESSION = "expression"
Shape = tuple[int, int]
Arguments = Mapping[str, Any]  # numbers and words


class FileOp(ABC):
    """A call on matrices in files, with its axis and its arguments. The result is cut along its rows m and columns n.

    Raises ConfigError for arguments that it does not have.
    """

    dtypes: ClassVar[tuple[DType, ...]] = (*FLOATS, F64)  # of the operands
    known: ClassVar[tuple[str, ...]] = ()  # the names of the arguments, the required ones first
    required: ClassVar[int] = 0
    along = 0  # the axis of the result that one number cuts

    def __init__(self, name: str, axis: int, arguments: Arguments) -> None:
        self.name, self.axis, self.arguments = name, axis, dict(arguments)
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

    def lengths(self, operands: Sequence[Any], shape: Shape, workers: int) -> Shape:
        """Return the rows and columns of a piece, by default all columns: one that reads about READ bytes."""
        del workers
        nbytes = sum(x.shape[0] * x.shape[1] * x.dtype.itemsize for x in operands)
        m, n = shape
        return (max(1, READ * m // nbytes), n)

    def piece(self, operands: Sequence[Any], piece: Piece, device: Device) -> NDArray[Any]:
        """Return a piece of the result of operands in files, as a matrix."""
        letters = self.letters([x.shape for x in operands])
        return self.compute([x[elements(piece, axes)] for x, axes in zip(operands, letters, strict=True)], device)

    @abstractmethod
    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the result of operands in host memory."""


class Product(FileOp):
    """A matrix product; pieces along k of operands that are not memory-mapped are added on the device."""

    def result(self, operands: Sequence[Any], names: Sequence[object] = "AB") -> tuple[Shape, str]:
        """Return the shape and the dtype of the product."""
        if len(operands) != 2:
            raise ConfigError("a product takes two files, A and B")
        a, b = operands
        if a.shape[1] != b.shape[0]:
            raise ProblemError(
                f"{names[0]} has {a.shape[1]} columns, {names[1]} has {b.shape[0]} rows; they must be equal"
            )
        return (a.shape[0], b.shape[1]), self.dtype(a.dtype, b.dtype, names)

    def dtype(self, a: Any, b: Any, names: Sequence[object]) -> str:
        """Return the dtype of the product; raises ProblemError if those of the operands do not fit."""
        if a != b:
            raise ProblemError(f"{names[0]} is {a}, {names[1]} is {b}; cast one, e.g. x.astype('{a}')")
        return str(a)

    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters: k is summed."""
        del shapes
        return ["mk", "kn"]

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
    """A product of 8-bit operands, `webmm.qmatmul()`, with numbers for its scales and zero points."""

    dtypes = (U8, I8)
    known = ("scale_a", "zero_a", "scale_b", "zero_b", "scale_c", "zero_c", "out_dtype")
    required = 4

    def dtype(self, a: Any, b: Any, names: Sequence[object]) -> str:
        """Return the dtype of the result."""
        del b, names
        return out_dtype_of(self.arguments.get("out_dtype"), self.arguments.get("scale_c"), dtype_of(a)).name

    def piece(self, operands: Sequence[Any], piece: Piece, device: Device) -> NDArray[Any]:
        """Return a piece, whose operands are read at once: 8-bit results cannot be added."""
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
        if len(operands) > len(NAMES):
            raise ConfigError(f"an expression takes up to four files, {', '.join(NAMES)}, not {len(operands)}")
        arrays = {name: dtype_of(x.dtype) for name, x in zip(NAMES, operands, strict=False)}
        m, n = shape_of([x.shape for x in operands])
        return (m, n), Maker(self.arguments[EXPRESSION], arrays, {}, None).out.name

    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters, with "1" for an axis that broadcasts."""
        return [("1" if m == 1 else "m") + ("1" if n == 1 else "n") for m, n in shapes]

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the value of the expression."""
        given: dict[str, Any] = dict(zip(NAMES, operands, strict=False))
        return np.asarray(elementwise(self.arguments[EXPRESSION], device=device, **given))


class OfOne(FileOp):
    """A reduction, a normalisation, an elementwise function or a plugin's op, along an axis of one matrix."""

    def __init__(self, name: str, axis: int, arguments: Arguments) -> None:
        super().__init__(name, axis, arguments)
        self.op, self.along = op_of(name), 1 - axis

    def result(self, operands: Sequence[Any], names: Sequence[object] = "AB") -> tuple[Shape, str]:
        """Return the shape and the dtype of the result; a reduction keeps its axis, with length 1."""
        del names
        if len(operands) != 1:
            raise ConfigError(f"op {self.name} takes one file, A")
        (m, n), dtype = operands[0].shape, operands[0].dtype
        along_axis = (m, 1) if self.axis else (1, n)
        if self.op.name == "reduce":
            return along_axis, OPERATIONS[self.op.variant].out_dtype(dtype_of(dtype)).name
        if self.op.name in OWN:
            return (m, n), str(dtype)
        (written,) = (extent for extent in self._problem((m, n), dtype).buffers() if extent.written)
        return (m, n) if written.end == m * n else along_axis, written.dtype.name

    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters: only the other axis is cut."""
        del shapes
        return ["mk" if self.axis else "kn"]

    def lengths(self, operands: Sequence[Any], shape: Shape, workers: int) -> Shape:
        """Return the whole axis, of so many rows or columns that about READ bytes are read."""
        del workers
        (x,) = operands
        length = max(1, READ // (x.shape[self.axis] * x.dtype.itemsize))
        return (length, shape[1]) if self.axis else (shape[0], length)

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the result for a matrix."""
        (x,) = operands
        variant = self.op.variant
        if self.op.name == "reduce":
            return np.asarray(reduce(x, variant, self.axis, keepdims=True, device=device))
        if self.op.name == "elementwise":
            return np.asarray(map_elements(x, variant, device=device))
        if self.op.name == "normalise":
            if variant == "softmax":
                return np.asarray(softmax(x, self.axis, device=device))
            norm = NORMS[variant]
            return np.asarray(norm(x, device=device) if self.axis else norm(x.T, device=device).T)
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


SEVERAL: dict[str, type[FileOp]] = {"gemm": Product, "quantized": QuantizedProduct, EXPRESSION: OfElements}


def op_of_files(name: str, axis: int = 1, arguments: Arguments | None = None) -> FileOp:
    """Return the op called NAME, NAME:VARIANT or VARIANT (softmax), or "expression"; raises ConfigError for others."""
    if name in SEVERAL:
        return SEVERAL[name](name, axis, arguments or {})
    rows = [row for row in OPS.values() if isinstance(row, StreamingOp)]
    owner = next((row.name for row in rows if name not in OPS and name in row.variants), "")
    op = op_of(f"{owner}:{name}" if owner else name)
    if not isinstance(op, StreamingOp):
        choices = ", ".join([*SEVERAL, *(row.name for row in rows)])
        raise ConfigError(f"op {op.name} is not for files; choose from {choices}")
    return OfOne(f"{op.name}:{op.variant}" if op.variant else op.name, axis, arguments or {})
