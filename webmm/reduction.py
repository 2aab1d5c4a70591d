"""What a reduction computes, apart from how: the operation, the axis, and the way the array lies in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from webmm.dtypes import F32, MATRIX_DTYPES, DType, dtype_of
from webmm.epilogues import activation_name
from webmm.errors import ProblemError
from webmm.operations import operation_of
from webmm.problem import Extent, Problem


@dataclass(frozen=True)
class Span:
    """How an array x[i, k, j] lies in its buffer; every length is in elements.

    Element (i, k, j) is at ``offset + i*outer_stride + k*stride + j*inner_stride``.
    """

    outer_stride: int
    stride: int
    inner_stride: int
    offset: int = 0

    @classmethod
    def dense(cls, length: int, inner: int) -> Span:
        """Return how a row-major array of shape (…, length, inner) lies."""
        return cls(length * inner, inner, 1)

    def end(self, outer: int, length: int, inner: int) -> int:
        """Return one past the last element of an array of that shape."""
        reach = (outer - 1) * self.outer_stride + (length - 1) * self.stride + (inner - 1) * self.inner_stride
        return self.offset + reach + 1


@dataclass(frozen=True)
class Reduction(Problem):
    """y[i, j] ← the operation over k of x[i, k, j], for i < outer, k < length and j < inner; y is dense.

    Rows, of which the reduced axis is the last, are the case inner = 1. `operation` is one of
    `webmm.operations.OPERATIONS`. Build one of dense rows with `reduction()`.
    """

    operation: str
    outer: int
    length: int
    inner: int
    dtype: DType
    out_dtype: DType
    x: Span
    y_offset: int = 0

    op: ClassVar[str] = "reduce"

    def __post_init__(self) -> None:
        operation = operation_of(self.operation)
        _floats(self.dtype)
        if operation.index:
            if self.out_dtype != operation.out_dtype(self.dtype):
                raise ProblemError(f"{self.operation} results in {operation.out_dtype(self.dtype).name}")
        else:
            _floats(self.out_dtype)
        for name in ("outer", "length", "inner"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def results(self) -> int:
        """Elements of y."""
        return self.outer * self.inner

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Values of i, k and j."""
        return self.outer, self.length, self.inner, 1

    @property
    def variant(self) -> str:
        """The operation."""
        return self.operation

    def buffers(self) -> tuple[Extent, ...]:
        """Return x and y."""
        end = self.x.end(self.outer, self.length, self.inner)
        return (
            Extent("x", self.dtype, end, start=self.x.offset),
            Extent("y", self.out_dtype, self.y_offset + self.results, written=True, start=self.y_offset),
        )

    def within(self, firsts: tuple[int, ...]) -> Reduction:
        """Return the problem with the offset into each of its buffers less the given number of elements."""
        x, y = firsts
        return replace(self, x=replace(self.x, offset=self.x.offset - x), y_offset=self.y_offset - y)

    @property
    def flops(self) -> int:
        """Elements taken."""
        return self.results * self.length

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: each element read once, each result written once."""
        return self.flops * self.dtype.itemsize + self.results * self.out_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.operation} of {self.results}x{self.length}"


def reduction(
    rows: int, columns: int, operation: str = "sum", *, dtype: DType | str = F32, out_dtype: DType | str | None = None
) -> Reduction:
    """Return the problem of reducing each row of a dense (rows, columns) matrix.

    Raises ProblemError for a size below 1, an unknown operation or an unsupported dtype.
    """
    dtype = dtype_of(dtype)
    out = operation_of(operation).out_dtype(dtype) if out_dtype is None else dtype_of(out_dtype)
    return Reduction(operation, rows, columns, 1, dtype, out, Span.dense(columns, 1))


def _floats(dtype: DType) -> None:
    """Raise ProblemError where `dtype` is none that shaders reckon with."""
    if dtype not in MATRIX_DTYPES:
        names = ", ".join(x.name for x in MATRIX_DTYPES)
        raise ProblemError(f"dtype {dtype.name} is not supported by reductions; cast to one of {names}")


@dataclass(frozen=True)
class Normalisation(Reduction):
    """y[i, k, j] ← x[i, k, j] put in proportion to what x[i, :, j] adds up to; y is dense.

    `function` is softmax, layer_norm or rms_norm, with the operation that it needs first: logsumexp, or else sum.
    `weight` and `bias` say whether there are vectors of `length` elements by which results are scaled and shifted;
    `epsilon` is added to the mean square.
    """

    function: str = "softmax"
    weight: bool = False
    bias: bool = False
    epsilon: float = 0.0

    op: ClassVar[str] = "normalise"

    def buffers(self) -> tuple[Extent, ...]:
        """Return x, y, and the weight and bias if there are any."""
        x, y = super().buffers()
        vectors = (("weight", self.weight), ("bias", self.bias))
        return (
            x,
            replace(y, end=self.y_offset + self.flops),
            *(Extent(name, self.dtype, self.length) for name, there in vectors if there),
        )

    def within(self, firsts: tuple[int, ...]) -> Normalisation:
        """Return the problem with the offset into x and y less the given number of elements."""
        x, y = firsts[:2]
        return replace(self, x=replace(self.x, offset=self.x.offset - x), y_offset=self.y_offset - y)

    @property
    def variant(self) -> str:
        """The function."""
        return self.function

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: each element read once and written once."""
        vectors = (self.weight + self.bias) * self.length * self.dtype.itemsize
        return self.flops * (self.dtype.itemsize + self.out_dtype.itemsize) + vectors

    def __str__(self) -> str:
        return f"{self.function} of {self.results}x{self.length}"


@dataclass(frozen=True)
class Elementwise(Problem):
    """y[i] ← the activation of x[i], for i < size: one of `webmm.epilogues.ACTIVATIONS`."""

    activation: str
    size: int
    dtype: DType
    x_offset: int = 0
    y_offset: int = 0

    op: ClassVar[str] = "elementwise"

    def __post_init__(self) -> None:
        _floats(self.dtype)
        activation_name(self.activation)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of elements."""
        return self.size, 1, 1, 1

    @property
    def variant(self) -> str:
        """The activation."""
        return self.activation

    def buffers(self) -> tuple[Extent, ...]:
        """Return x and y."""
        return (
            Extent("x", self.dtype, self.x_offset + self.size, start=self.x_offset),
            Extent("y", self.dtype, self.y_offset + self.size, written=True, start=self.y_offset),
        )

    def within(self, firsts: tuple[int, ...]) -> Elementwise:
        """Return the problem with the offset into x and y less the given number of elements."""
        return replace(self, x_offset=self.x_offset - firsts[0], y_offset=self.y_offset - firsts[1])

    @property
    def flops(self) -> int:
        """Elements."""
        return self.size

    @property
    def bytes(self) -> int:
        """Each element read once and written once."""
        return 2 * self.size * self.dtype.itemsize
