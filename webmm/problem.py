"""What to compute, apart from how: sizes, element types and the way the matrices lie in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypedDict

from webmm.dtypes import F32, I8, I32, MATRIX_DTYPES, U8, U32, DType, dtype_of
from webmm.epilogues import activation_name
from webmm.errors import ConfigError, ProblemError

BIASES = ("", "row", "column", "matrix")
BYTES = (I8, U8)
ALIGNMENT = 256  # bytes at whose multiples a binding may start on every device
LAYOUTS = ("nn", "nt", "tn", "tt")


@dataclass(frozen=True)
class Extent:
    """A buffer that a problem needs: its name in shaders, element type, and which elements are reached, [start, end).

    Of a buffer that is larger than a binding may be, shaders see the window around that range, and count elements from
    where it opens.
    """

    name: str
    dtype: DType
    end: int
    written: bool = False
    start: int = 0

    @property
    def first(self) -> int:
        """The element at which the window opens: the last one before `start` at which a binding may."""
        step = ALIGNMENT // self.dtype.itemsize
        return self.start // step * step

    @property
    def offset(self) -> int:
        """Bytes before the window."""
        return self.first * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes in the window: whole vec4, as buffers have."""
        return -(-self.end * self.dtype.itemsize // 16) * 16 - self.offset


class Problem(ABC):
    """Something to compute. Subclasses are frozen dataclasses, checked on construction."""

    op: ClassVar[str]
    dtype: DType  # of what it reads

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes (m, n, k, batch) of its records."""

    @property
    def layout(self) -> str:
        """How its operands are stored, in letters of the op's own; empty where there is but one way."""
        return ""

    @property
    def variant(self) -> str:
        """Which of several things the op may be; empty where it is but one."""
        return ""

    @abstractmethod
    def buffers(self) -> tuple[Extent, ...]:
        """Return the buffers, in the order in which arrays are given to `Device.run()`."""

    def within(self, firsts: tuple[int, ...]) -> Problem:
        """Return the problem with the offset into each of its buffers less the given number of elements.

        Problems whose operands may lie anywhere in a buffer say how; others start at 0.
        """
        assert not any(firsts), f"{self.op} cannot start within a buffer"
        return self

    @property
    @abstractmethod
    def flops(self) -> int:
        """Arithmetic operations."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Bytes that must move at least: each operand read once, the result written once."""

    @property
    def features(self) -> frozenset[str]:
        """WebGPU features that storing these element types needs."""
        return frozenset().union(*(extent.dtype.features for extent in self.buffers()))


class Product(Problem):
    """A problem whose result is a batch of (m, n) matrices, each element a sum over k."""

    m: int
    n: int
    k: int
    batch: int

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes (m, n, k, batch)."""
        return self.m, self.n, self.k, self.batch

    @property
    def flops(self) -> int:
        """Operations: a multiplication and an addition for each inner element."""
        return 2 * self.m * self.n * self.k * self.batch

    def _check_sizes(self) -> None:
        for name in ("m", "n", "k", "batch"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} must be at least 1, not {getattr(self, name)}")

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def _check_floats(*dtypes: DType) -> None:
    for dtype in dtypes:
        if dtype not in MATRIX_DTYPES:
            names = ", ".join(x.name for x in MATRIX_DTYPES)
            raise ProblemError(f"dtype {dtype.name} is not supported by products of floats; cast to one of {names}")


@dataclass(frozen=True)
class Operand:
    """How a batch of matrices lies in its buffer; every length is in elements.

    Element (row, column) of matrix `i` is at ``offset + i*batch_stride + row*ld + column``, with row and column
    swapped where `transposed`.
    """

    ld: int
    batch_stride: int = 0
    offset: int = 0
    transposed: bool = False

    def end(self, rows: int, columns: int, batch: int) -> int:
        """Return one past the last element of a batch of (rows, columns) matrices."""
        outer, inner = (columns, rows) if self.transposed else (rows, columns)
        return self.offset + (batch - 1) * self.batch_stride + (outer - 1) * self.ld + inner

    def vectorizable(self, rows: int, columns: int) -> bool:
        """Tell whether four neighbours along the contiguous axis can always be read as one vec4."""
        return self.aligned(rows, columns, 4)

    def aligned(self, rows: int, columns: int, elements: int) -> bool:
        """Tell whether what runs along the contiguous axis starts at, and is as long as, multiples of `elements`."""
        inner = rows if self.transposed else columns
        return not any(length % elements for length in (inner, self.ld, self.batch_stride, self.offset))


@dataclass(frozen=True)
class Gemm(Product):
    """C ← activation(alpha·A·B + bias) + beta·C for a batch of (m, k) and (k, n) matrices; build one with `gemm()`.

    `bias` is "" for none, "column" for a vector of n elements, one per column of C, "row" for one of m, or "matrix" for
    a dense (m, n) matrix of float32 and a batch of one, such as the sum over an earlier part of k. It starts at element
    `bias_offset` of its buffer. C is read only where beta is not 0.
    """

    m: int
    n: int
    k: int
    batch: int
    dtype: DType
    out_dtype: DType
    a: Operand
    b: Operand
    c: Operand
    alpha: float = 1.0
    beta: float = 0.0
    bias: str = ""
    bias_offset: int = 0
    activation: str = ""

    op: ClassVar[str] = "gemm"

    def __post_init__(self) -> None:
        _check_floats(self.dtype, self.out_dtype)
        self._check_sizes()
        if self.bias not in BIASES:
            raise ProblemError(f"bias must be one of {BIASES}, not {self.bias!r}")
        if self.bias == "matrix" and self.batch != 1:
            raise ProblemError(f"a matrix as the bias serves one product, not a batch of {self.batch}")
        activation_name(self.activation)

    @property
    def layout(self) -> str:
        """How A and B are stored: n as they are, t transposed."""
        return _layout(self.a, self.b)

    def operands(self) -> tuple[tuple[str, Operand, int, int], ...]:
        """Return (name, operand, rows, columns) of A, B and C."""
        return (
            ("A", self.a, self.m, self.k),
            ("B", self.b, self.k, self.n),
            ("C", self.c, self.m, self.n),
        )

    def buffers(self) -> tuple[Extent, ...]:
        """Return A, B and C, and the bias if there is one."""
        dtypes = (self.dtype, self.dtype, self.out_dtype)
        extents = [
            Extent(name.lower(), dtype, operand.end(rows, columns, self.batch), name == "C", operand.offset)
            for dtype, (name, operand, rows, columns) in zip(dtypes, self.operands(), strict=True)
        ]
        if self.bias:
            length = {"row": self.m, "column": self.n, "matrix": self.m * self.n}[self.bias]
            dtype = F32 if self.bias == "matrix" else self.dtype
            extents.append(Extent("bias", dtype, self.bias_offset + length, start=self.bias_offset))
        return tuple(extents)

    def within(self, firsts: tuple[int, ...]) -> Gemm:
        """Return the problem with the offset into each of its buffers less the given number of elements."""
        a, b, c = (
            replace(operand, offset=operand.offset - first)
            for (_, operand, _, _), first in zip(self.operands(), firsts, strict=False)
        )
        return replace(self, a=a, b=b, c=c, bias_offset=self.bias_offset - (firsts[3] if self.bias else 0))

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: each operand read once, the result written once."""
        inputs = (self.m * self.k + self.k * self.n) * self.dtype.itemsize
        return (inputs + self.m * self.n * self.out_dtype.itemsize) * self.batch


def gemm(
    m: int,
    n: int,
    k: int,
    *,
    dtype: DType | str = F32,
    out_dtype: DType | str | None = None,
    batch: int = 1,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Gemm:
    """Return the problem C (m, n) = A (m, k) · B (k, n) on dense row-major matrices.

    With `transpose_a` A is stored as (k, m), with `transpose_b` B as (n, k). Raises ProblemError for a size below 1, an
    unsupported dtype.
    """
    dtype = dtype_of(dtype)
    return Gemm(
        m,
        n,
        k,
        batch,
        dtype,
        dtype if out_dtype is None else dtype_of(out_dtype),
        a=Operand(m if transpose_a else k, m * k, transposed=transpose_a),
        b=Operand(k if transpose_b else n, k * n, transposed=transpose_b),
        c=Operand(n, m * n),
    )


class Transposes(TypedDict):
    """Which operands of `gemm()` are stored transposed."""

    transpose_a: bool
    transpose_b: bool


def transposes(layout: str) -> Transposes:
    """Return what `gemm()` takes for a layout such as "nt"; raises ConfigError for an unknown one."""
    if layout not in LAYOUTS:
        raise ConfigError(f"unknown layout {layout!r}; choose from {', '.join(LAYOUTS)}")
    return {"transpose_a": layout[0] == "t", "transpose_b": layout[1] == "t"}


def _layout(*operands: Operand) -> str:
    return "".join("t" if operand.transposed else "n" for operand in operands)


@dataclass(frozen=True)
class Quantized(Product):
    """C ← the product of 8-bit integers, (m, k) and (k, n), with zero points; `webmm.quantization` says what it means.

    `out_dtype` is int8 or uint8 (requantised), int32 (the sums), or float32 (dequantised). C is dense and row-major.
    Zero points are numbers, or None for one per row of A (per column of B). The multiplier is (mantissa, shift) in
    fixed point for an 8-bit result, (bits of a float32, 0) for float32, the same for all elements; or it has a part for
    each row (`scaled_rows`), each column (`scaled_columns`), or both. What differs by row lies in `row_terms`, and what
    differs by column in `column_terms`, four int32 each: zero point, mantissa, shift, and the bias of a column.
    """

    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    out_dtype: DType
    a: Operand
    b: Operand
    zero_a: int | None = 0
    zero_b: int | None = 0
    zero_c: int = 0
    multiplier: tuple[int, int] = (0, 0)
    scaled_rows: bool = False
    scaled_columns: bool = False
    bias: bool = False
    batch: int = field(default=1, init=False)

    op: ClassVar[str] = "quantized"

    def __post_init__(self) -> None:
        for name, dtype in (("a", self.a_dtype), ("b", self.b_dtype)):
            if dtype not in BYTES:
                raise ProblemError(f"{name} is {dtype.name}; quantised operands are uint8 or int8: webmm.quantize(x)")
        if self.out_dtype not in (*BYTES, I32, F32):
            raise ProblemError(f"out_dtype {self.out_dtype.name} is none of int8, uint8, int32 and float32")
        self._check_sizes()

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The type of A."""
        return self.a_dtype

    @property
    def layout(self) -> str:
        """How A and B are stored: n as they are, t transposed."""
        return _layout(self.a, self.b)

    @property
    def by_row(self) -> bool:
        """Whether anything differs by row."""
        return self.zero_a is None or self.scaled_rows

    @property
    def by_column(self) -> bool:
        """Whether anything differs by column."""
        return self.zero_b is None or self.scaled_columns or self.bias

    def buffers(self) -> tuple[Extent, ...]:
        """Return A, B and C, and what differs by row and by column, if anything does."""
        return (
            Extent("a", self.a_dtype, self.a.end(self.m, self.k, 1), start=self.a.offset),
            Extent("b", self.b_dtype, self.b.end(self.k, self.n, 1), start=self.b.offset),
            Extent("c", self.out_dtype, self.m * self.n, written=True),
            *([Extent("row_terms", I32, 4 * self.m)] if self.by_row else []),
            *([Extent("column_terms", I32, 4 * self.n)] if self.by_column else []),
        )

    def within(self, firsts: tuple[int, ...]) -> Quantized:
        """Return the problem with the offset into each of its buffers less the given number of elements."""
        a, b = (replace(x, offset=x.offset - first) for x, first in zip((self.a, self.b), firsts, strict=False))
        return replace(self, a=a, b=b)

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: each operand read once, the result written once."""
        return self.m * self.k + self.k * self.n + self.m * self.n * self.out_dtype.itemsize


@dataclass(frozen=True)
class WeightOnly(Product):
    """C (m, n) ← A (m, k) · W (k, n), A and C of floats, W of `bits`-bit integers, 8 or 4; C is dense and row-major.

    W is stored by columns, each padded to whole blocks of `block` neighbours along k: 32/bits of them to a u32, the
    first lowest. A block has a float32 in `scales` and a byte in `zeros`; a q in it stands for ``scale·(q - zero)``.
    """

    m: int
    n: int
    k: int
    dtype: DType
    out_dtype: DType
    a: Operand
    bits: int
    block: int
    batch: int = field(default=1, init=False)

    op: ClassVar[str] = "weights"

    def __post_init__(self) -> None:
        _check_floats(self.dtype, self.out_dtype)
        self._check_sizes()

    @property
    def variant(self) -> str:
        """How W is stored."""
        return f"{self.bits}bit-{self.block}"

    @property
    def blocks(self) -> int:
        """Blocks of a column of W."""
        return -(-self.k // self.block)

    def buffers(self) -> tuple[Extent, ...]:
        """Return A, the words of W, its scales and zero points, and C."""
        blocks = self.n * self.blocks
        return (
            Extent("a", self.dtype, self.a.end(self.m, self.k, 1), start=self.a.offset),
            Extent("b", U32, blocks * self.block * self.bits // 32),
            Extent("scales", F32, blocks),
            Extent("zeros", U8, blocks),
            Extent("c", self.out_dtype, self.m * self.n, written=True),
        )

    def within(self, firsts: tuple[int, ...]) -> WeightOnly:
        """Return the problem with the offset into its first buffer less the given number of elements."""
        return replace(self, a=replace(self.a, offset=self.a.offset - firsts[0]))

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: each operand read once, the result written once."""
        _, *others = self.buffers()
        return self.m * self.k * self.dtype.itemsize + sum(e.end * e.dtype.itemsize for e in others)
