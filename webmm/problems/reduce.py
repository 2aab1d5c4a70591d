"""Reductions: the operation, the axis, and the layout of the array in memory.

Shaders reduce floats in float32, whatever their storage type, int32 modulo 2^32, and compare float64 exactly; products
and logsumexp of float64 need a device with f64. shaders/reduce/operations/ has the accumulation of each operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import BOOL, F32, I32, MATRIX_DTYPES, WIDE, WIDE_FEATURES, DType, dtype_of
from webmm.errors import ProblemError, UnsupportedError
from webmm.problems.base import Extent, Problem, check_floats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Operation:
    """An operation: its NumPy reference along the last axis, and its properties."""

    name: str
    reference: Callable[..., NDArray[Any]]
    outside: float  # identity of the operation, used beyond the end of a row
    empty: float | None = None  # result of a row without elements; None if that is an error, as in NumPy
    sums: bool = False  # its rounding error depends on the order of the elements
    index: bool = False  # its result is a position instead of an element
    integers: bool = True  # it supports int32
    native: bool = False  # of float64 it needs the feature shader-f64
    arithmetic: float = 1.0  # instructions per element, in multiply-adds
    of_parts: str = ""  # the operation whose results over parts of a row give the result over all of it; "" for itself
    declared: bool = False  # it is a user's, or ours, in expressions: webmm/problems/declared.py
    two: bool = False  # it is of the elements of two arrays
    values: int = 1  # of a partial result, of four bytes each
    yields: tuple[str, str] = ("", "")  # the kinds of its results for floats and for int32; "" for that of the elements
    refused: tuple[str, str] = ("", "")  # why it does not take floats, or int32
    none: Callable[[bool], float] | None = None  # of a declared one: the result over no elements, or over no int32
    states: Callable[[], Sequence[Operation]] | None = None  # … those of its state's values; None with positions
    joined: Callable[[Sequence[NDArray[Any]], int, bool], NDArray[Any]] | None = None  # … results from these of parts

    @property
    def words(self) -> str:
        """What messages call it."""
        return "a webmm.Reduction" if self.name.startswith("own_") else self.name

    @property
    def compared(self) -> bool:
        """Whether it compares doubles, as pairs of words, for which a device needs no f64."""
        return not (self.sums or self.native)

    @property
    def multiplied(self) -> bool:
        """Whether it is computed as a matrix product with ones for float64: for sum and mean."""
        return self.sums and not self.native and not self.declared

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The element types of a `Reduction` by this operation."""
        floats = () if self.refused[0] else MATRIX_DTYPES
        return (*floats, *([I32] if self.integers else []), *(() if self.multiplied or self.declared else WIDE))

    def out_dtype(self, dtype: DType) -> DType:
        """Return the type of the result: int32 for a position, else that of the elements, or of a declared result."""
        kind = self.yields[1 if dtype == I32 else 0]
        if kind == "f32":
            return F32 if dtype == I32 else dtype
        return I32 if self.index or kind == "i32" else BOOL if kind == "bool" else dtype

    def beyond(self, dtype: DType) -> float:
        """Return `outside`, with infinities clamped to the range of int32 for that type."""
        return min(max(self.outside, -(2**31)), 2**31 - 1) if dtype == I32 else self.outside

    def exact(self, x: NDArray[Any], *y: NDArray[Any]) -> NDArray[Any]:
        """Return the results along the last axis: for floats in a longer type, for int32 modulo 2^32."""
        if self.declared:
            return self.reference(*(each if each.dtype.kind == "i" else each.astype(np.float64) for each in (x, *y)))
        if x.dtype.kind == "i":
            return self.reference(x.astype(np.int64)).astype(np.int32)
        return self.reference(x.astype(np.longdouble if x.dtype == np.float64 else np.float64))

    def combine(self, parts: NDArray[Any], length: int) -> NDArray[Any]:
        """Return the results over rows of `length` elements from the results over their parts, along the last axis."""
        return np.asarray(np.sum(parts, axis=-1) / length) if self.of_parts else self.reference(parts)


def logsumexp(x: Floats) -> Floats:
    """Return log Σ exp(x) along the last axis, without overflow."""
    with np.errstate(all="ignore"):
        top = np.max(x, axis=-1, keepdims=True)
        shift = np.where(np.isfinite(top), top, 0)
        return np.asarray(np.log(np.sum(np.exp(x - shift), axis=-1)) + shift[..., 0])


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("sum", lambda x: np.sum(x, axis=-1), 0.0, 0.0, sums=True),
        Operation("mean", lambda x: np.mean(x, axis=-1), 0.0, math.nan, sums=True, integers=False, of_parts="sum"),
        Operation("prod", lambda x: np.prod(x, axis=-1), 1.0, 1.0, native=True),
        Operation("max", lambda x: np.max(x, axis=-1), -math.inf),
        Operation("min", lambda x: np.min(x, axis=-1), math.inf),
        Operation("argmax", lambda x: np.argmax(x, axis=-1), -math.inf, index=True, arithmetic=4.0, of_parts="max"),
        Operation("argmin", lambda x: np.argmin(x, axis=-1), math.inf, index=True, arithmetic=4.0, of_parts="min"),
        Operation("logsumexp", logsumexp, -math.inf, -math.inf, sums=True, integers=False, native=True, arithmetic=8.0),
    )
}

DECLARED: dict[str, Operation] = {}  # by name; never removed, since cached problems refer to them


def operation_of(name: str) -> Operation:
    """Return the operation called `name`; raises ProblemError for an unknown one."""
    if name in DECLARED:
        return DECLARED[name]
    if name not in OPERATIONS:
        known = [*OPERATIONS, *(other for other in DECLARED if not other.startswith("own_"))]
        raise ProblemError(f"unknown reduction {name!r}; choose from {', '.join(known)}, or pass a webmm.Reduction")
    return OPERATIONS[name]


def check_types(operation: Operation, dtype: DType, out_dtype: DType) -> None:
    """Raise ProblemError if an operation does not support elements of `dtype` or results of `out_dtype`.

    Results of floats are floats, those of int32 are int32, those of float64 are float64; positions are int32.
    """
    if operation.declared:
        check_declared(operation, dtype, out_dtype)
        return
    if dtype.wide and not operation.index:
        if out_dtype != dtype:
            raise ProblemError(f"{operation.name} of {dtype.name} is not stored as {out_dtype.name}; cast the result")
        return
    if dtype != I32 and not dtype.wide:
        check_floats("reductions", dtype)
    elif not operation.integers:
        raise ProblemError(f"{operation.name} is of floats, not of int32; cast its operand, e.g. x.astype('float32')")
    if operation.index or dtype == I32:
        if out_dtype != I32:
            raise ProblemError(f"{operation.name} of {dtype.name} results in int32, not in {out_dtype.name}")
    else:
        check_floats("reductions", out_dtype)


def check_declared(operation: Operation, dtype: DType, out_dtype: DType) -> None:
    """Raise ProblemError as `check_types()` does, for a declared operation."""
    name = operation.words
    if dtype.wide:
        raise ProblemError(f"{name} is computed in float32; cast its operand, e.g. x.astype('float32')")
    if dtype != I32:
        check_floats("reductions", dtype)
    if why := operation.refused[1 if dtype == I32 else 0]:
        raise ProblemError(f"{name} does not take {dtype.name}: {why}")
    natural = operation.out_dtype(dtype)
    if natural not in MATRIX_DTYPES:
        if out_dtype != natural:
            raise ProblemError(f"{name} of {dtype.name} results in {natural.name}, not in {out_dtype.name}")
    else:
        check_floats("reductions", out_dtype)


def check_two(operation: Operation, dtype: DType, other: DType | None) -> None:
    """Raise ProblemError unless only an operation of two has a second array, of type `other`, a float if `dtype` is."""
    if operation.two != (other is not None):
        one = f"{operation.words} is of one array; y is for a Reduction whose map has y"
        raise ProblemError("map has y: give the second array, reduce(x, …, y=y)" if operation.two else one)
    if other is not None and other not in ((I32,) if dtype == I32 else MATRIX_DTYPES):
        raise ProblemError(f"x is {dtype.name} and y is {other.name}; cast one, e.g. y.astype('float32')")


def check_device(operation: Operation, dtype: DType, features: Set[str], device: str) -> None:
    """Raise UnsupportedError if `operation` on elements of `dtype` needs a feature that the device does not have.

    `features` and `device` are the device's features and its name.
    """
    if dtype.wide and operation.native:
        check_wide(operation.name, dtype, features, device)


def check_wide(function: str, dtype: DType, features: Set[str], device: str) -> None:
    """Raise UnsupportedError unless a device with these features, called `device`, computes `function` of `dtype`."""
    if not dtype.features <= features:
        raise UnsupportedError(
            f"{function} of {dtype.name} needs the feature {', '.join(sorted(dtype.features))}, which {device} does "
            "not have; cast the operand, e.g. x.astype('float32')"
        )


@dataclass(frozen=True)
class Span:
    """The layout of an array x[i, k, j] in its buffer, in elements.

    Element (i, k, j) is at ``offset + i*outer_stride + k*stride + j*inner_stride``.
    """

    outer_stride: int
    stride: int
    inner_stride: int
    offset: int = 0

    @classmethod
    def dense(cls, length: int, inner: int) -> Span:
        """Return the layout of a row-major array of shape (…, length, inner)."""
        return cls(length * inner, inner, 1)

    def end(self, outer: int, length: int, inner: int) -> int:
        """Return the index one past the last element of an array of shape (outer, length, inner)."""
        reach = (outer - 1) * self.outer_stride + (length - 1) * self.stride + (inner - 1) * self.inner_stride
        return self.offset + reach + 1

    def moved(self, first: int) -> Span:
        """Return the layout in a window that opens at element `first`."""
        return replace(self, offset=self.offset - first)


@dataclass(frozen=True)
class Other:
    """The second array of a declared operation of two: its element type, and the layout of other[i, k, j]."""

    dtype: DType
    span: Span

    def extent(self, outer: int, length: int, inner: int) -> Extent:
        """Return its buffer for an array of that shape."""
        return Extent("other", self.dtype, self.span.end(outer, length, inner), start=self.span.offset)

    def moved(self, first: int) -> Other:
        """Return it in a window that opens at element `first`."""
        return replace(self, span=self.span.moved(first))


@dataclass(frozen=True)
class Reduction(Problem):
    """y[i, j] ← the operation over k of x[i, k, j], for i < outer, k < length and j < inner; y is dense.

    An operation of two arrays has the elements of `other`, too, which are the `y` of its expressions.

    `operation` is one of `OPERATIONS`. With inner = 1, the reduced axis is the last one; `reduction()` builds a problem
    of such dense rows.
    """

    operation: str
    outer: int
    length: int
    inner: int
    dtype: DType
    out_dtype: DType
    x: Span
    y_offset: int = 0
    other: Other | None = field(default=None, kw_only=True)

    op: ClassVar[str] = "reduce"

    def __post_init__(self) -> None:
        self.check_dtypes()
        for name in ("outer", "length", "inner"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} must be at least 1, not {getattr(self, name)}")

    def check_dtypes(self) -> None:
        """Raise ProblemError for element types of x or y that the operation does not support."""
        operation = operation_of(self.operation)
        check_types(operation, self.dtype, self.out_dtype)
        check_two(operation, self.dtype, self.other.dtype if self.other else None)
        if self.dtype.wide and operation.multiplied:
            raise ProblemError(
                f"{self.operation} of {self.dtype.name} is computed as a product with ones: call webmm.reduce()"
            )

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

    @property
    def rounded_sums(self) -> bool:
        """Whether the order of additions changes the result: for sums of floats."""
        operation = operation_of(self.operation)
        return operation.sums and self.dtype != I32

    @property
    def features(self) -> frozenset[str]:
        """The WebGPU features that the element types require; none for comparisons of float64."""
        needed = super().features
        return needed - WIDE_FEATURES if operation_of(self.operation).compared else needed

    def buffers(self) -> tuple[Extent, ...]:
        """Return x and y, and other if there are two arrays."""
        end = self.x.end(self.outer, self.length, self.inner)
        found = (
            Extent("x", self.dtype, end, start=self.x.offset),
            Extent("y", self.out_dtype, self.y_offset + self.results, written=True, start=self.y_offset),
        )
        return (*found, self.other.extent(self.outer, self.length, self.inner)) if self.other else found

    def within(self, firsts: tuple[int, ...]) -> Reduction:
        """Return the problem with its offsets into its buffers reduced by the given numbers of elements."""
        x, y = firsts[:2]
        other = self.other.moved(firsts[2]) if self.other else None
        return replace(self, x=self.x.moved(x), y_offset=self.y_offset - y, other=other)

    def element_of(self, name: str) -> str:
        """Return the name of an element of a buffer."""
        return {"x": "x[i, k, j]", "y": "y[i, j]", "other": "other[i, k, j]"}[name]

    @property
    def places(self) -> dict[str, tuple[str, str]]:
        """The places of elements of the dense arrays besides x, and their numbers, as formulas."""
        return {"y": ("y_offset + i * inner + j", "y_offset + outer * inner")}

    @property
    def flops(self) -> int:
        """Elements read."""
        return self.results * self.length

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: each element read once, each result written once."""
        read = self.dtype.itemsize + (self.other.dtype.itemsize if self.other else 0)
        return self.flops * read + self.results * self.out_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.operation} of {self.results}x{self.length}"


def reduction(
    rows: int, columns: int, operation: str = "sum", *, dtype: DType | str = F32, out_dtype: DType | str | None = None
) -> Reduction:
    """Return the reduction of each row of a dense (rows, columns) matrix.

    Raises ProblemError for a size below 1, an unknown operation or an unsupported dtype.
    """
    dtype = dtype_of(dtype)
    out = operation_of(operation).out_dtype(dtype) if out_dtype is None else dtype_of(out_dtype)
    return Reduction(operation, rows, columns, 1, dtype, out, Span.dense(columns, 1))
