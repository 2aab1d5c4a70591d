"""Calls on matrices in files: which elements of its operands a piece of the result needs, and how it is computed."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import index
from pathlib import Path
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
from webmm.cut.pieces import Lengths, Piece, elements, fitted
from webmm.dask.products import task_sizes
from webmm.dtypes import BOOL, F64, FLOATS, I8, I32, U8, DType, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError
from webmm.kernels import STAGES
from webmm.problems.divisible import Divisible
from webmm.problems.reduce import OPERATIONS

READ = 2**28  # bytes that are read at a time: of Zarr operands, or of the operands of an op of elements or rows
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
    from_plugin = False
    along = 0  # the axis of the result that one number cuts

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

    @abstractmethod
    def lengths(self, operands: Sequence[Any], shape: Shape, workers: int) -> Shape:
        """Return the rows and columns of a piece, which may exceed the shape."""

    def tiled(self, tile: Any, planned: Shape) -> Shape:
        """Return the rows and columns of a piece, as given: a number for the axis that is cut, or both.

        Raises ProblemError for anything else.
        """
        try:
            if isinstance(tile, Sequence):
                rows, columns = map(index, tile)
            else:
                rows, columns = (planned[0], index(tile)) if self.along else (index(tile), planned[1])
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
        k = operands[0].shape[1]

        def longer(of: Lengths) -> str:
            few = (of["m"] + of["n"]) * k <= 4 * READ or max(of.values()) == 1
            return "" if few else "m" if of["m"] > of["n"] else "n"

        found = fitted({"m": min(rows, shape[0]), "n": min(columns, shape[1])}, longer)
        return found["m"], found["n"]

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
        m, n = shape_of([x.shape for x in operands])
        return (m, n), Maker(self.arguments[EXPRESSION], arrays, {}, None).out.name

    def lengths(self, operands: Sequence[Any], shape: Shape, workers: int) -> Shape:
        """Return whole rows, or a part of one, so that a piece reads and writes about READ bytes."""
        del workers
        m, n = shape
        written = m * n * np.dtype(self.result(operands)[1]).itemsize
        row = -(-(sum(x.shape[0] * x.shape[1] * x.dtype.itemsize for x in operands) + written) // m)
        return (max(1, READ // row), n) if row <= READ else (1, max(1, n * READ // row))

    def letters(self, shapes: Sequence[Shape]) -> list[str]:
        """Return the letters, with "1" for an axis that broadcasts."""
        return [("1" if m == 1 else "m") + ("1" if n == 1 else "n") for m, n in shapes]

    def compute(self, operands: list[NDArray[Any]], device: Device) -> NDArray[Any]:
        """Return the value of the expression."""
        given: dict[str, Any] = dict(zip(NAMES, operands, strict=False))
        return np.asarray(elementwise(self.arguments[EXPRESSION], device=device, **given))


class OfOne(FileOp):
    """An op along an axis of one matrix; here a plugin's, whose problem says how it is cut."""

    from_plugin = True

    def __init__(self, name: str, axis: int, arguments: Arguments) -> None:
        super().__init__(name, axis, arguments)
        self.op, self.along = op_of(name), 1 - axis

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
        return (planned[0], columns) if self.along else (rows, planned[1])

    def lengths(self, operands: Sequence[Any], shape: Shape, workers: int) -> Shape:
        """Return the whole axis, of so many rows or columns that about READ bytes are read."""
        del workers
        (x,) = operands
        length = max(1, READ // (x.shape[self.axis] * x.dtype.itemsize))
        return (length, shape[1]) if self.axis else (shape[0], length)

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


SEVERAL: dict[str, type[FileOp]] = {"gemm": Product, "quantized": QuantizedProduct, EXPRESSION: OfElements}
ONE: dict[str, type[OfOne]] = {"reduce": OfReduction, "normalise": OfNormalisation, "elementwise": OfMap}


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


def op_of_files(name: str, axis: int = 1, arguments: Arguments | None = None) -> FileOp:
    """Return the op called NAME, NAME:VARIANT or VARIANT (softmax), or "expression"; raises ConfigError for others."""
    if name in SEVERAL:
        return SEVERAL[name](name, 1, arguments or {})
    rows = [row for row in OPS.values() if isinstance(row, StreamingOp)]
    owner = next((row.name for row in rows if name not in OPS and name in row.variants), "")
    op = op_of(f"{owner}:{name}" if owner else name)
    if not isinstance(op, StreamingOp):
        choices = ", ".join([*SEVERAL, *(row.name for row in rows)])
        raise ConfigError(f"op {op.name} is not for files; choose from {choices}")
    kind = ONE.get(op.name, OfOne)
    return kind(f"{op.name}:{op.variant}" if op.variant else op.name, axis, arguments or {})
