"""Products of a float matrix with weights of 8 or 4 bits, quantised in blocks with a scale and a zero point each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from webmm.arguments.arrays import host_array
from webmm.dtypes import F32, U8, U32, DType
from webmm.errors import ProblemError
from webmm.problems.base import Extent, check_floats, opened_at, windowed
from webmm.problems.product import Operand, Product, opened_spreads, spread_extents
from webmm.problems.scheme import spread
from webmm.wgsl.epilogues import Applied

BITS = (8, 4)
BLOCKS = (32, 128)


@dataclass(frozen=True)
class WeightOnly(Applied, Product):
    """C (m, n) ← activation(A (m, k) · W (k, n)), with floats in A and C and `bits`-bit integers (8 or 4) in W.

    C is dense and row-major. W is stored by columns, each padded to whole blocks of `block` elements along k, with
    32/bits elements per u32, lowest bits first. Each block has a float32 in `scales` and a byte in `zeros`; an element
    q of it represents ``scale·(q - zero)``. `starts` are the first elements of W, of its scales and zero points, and of
    C, or () if all are 0.
    """

    m: int
    n: int
    k: int
    dtype: DType
    out_dtype: DType
    a: Operand
    bits: int
    block: int
    starts: tuple[int, ...] = ()
    batch: int = field(default=1, init=False)

    op: ClassVar[str] = "weights"

    def __post_init__(self) -> None:
        check_floats("float matrix products", self.dtype, self.out_dtype)
        super().__post_init__()
        self.check_sizes()
        self.check_function()

    @property
    def variant(self) -> str:
        """The format of W, such as "4bit-32"."""
        return f"{self.bits}bit-{self.block}"

    @property
    def blocks(self) -> int:
        """The number of blocks in a column of W."""
        return -(-self.k // self.block)

    def buffers(self) -> tuple[Extent, ...]:
        """Return A, the words of W, its scales and zero points, C, and the operands of the activation."""
        blocks = self.n * self.blocks
        return (
            Extent("a", self.dtype, self.a.end(self.m, self.k, 1), start=self.a.offset),
            *windowed(
                (
                    Extent("b", U32, blocks * self.block * self.bits // 32),
                    Extent("scales", F32, blocks),
                    Extent("zeros", U8, blocks),
                    Extent("c", self.out_dtype, self.m * self.n, written=True),
                ),
                self.starts,
            ),
            *spread_extents(self),
        )

    def within(self, firsts: tuple[int, ...]) -> WeightOnly:
        """Return the problem with `firsts`, numbers of elements, subtracted from the offsets into its buffers."""
        a = replace(self.a, offset=self.a.offset - firsts[0])
        spreads = opened_spreads(self.spreads, firsts[5:])
        return replace(self, a=a, starts=opened_at(firsts[1:5], self.starts), spreads=spreads)

    @property
    def bytes(self) -> int:
        """The minimum of bytes to move: each operand read once, the result written once."""
        _, *others = self.buffers()
        return self.m * self.k * self.dtype.itemsize + sum((e.end - e.start) * e.dtype.itemsize for e in others)


@dataclass(frozen=True)
class BlockWeights:
    """A (k, n) matrix of `bits`-bit integers, quantised in blocks of `block` elements along k; see `quantize_blocks()`.

    An element q represents ``scale·(q - zero)`` with its block's scale and zero point. The fields are NumPy arrays, or
    `webmm.Array`s after `to()`:

    - `words`: uint32, (n, ·); the columns, padded to whole blocks, with 32/bits integers per word, lowest bits first.
    - `scales`: float32, (n, blocks).
    - `zeros`: uint8, (n, blocks).
    """

    shape: tuple[int, int]
    bits: int
    block: int
    words: Any
    scales: Any
    zeros: Any

    def to(self, device: Any) -> BlockWeights:
        """Return a copy of the weights on `device`, so that calls need not upload them; raises as `Device.array()`."""
        words, scales, zeros = (device.array(np.asarray(x)) for x in self.parts)
        return replace(self, words=words, scales=scales, zeros=zeros)

    def free(self) -> None:
        """Free the arrays of weights on a device; does nothing for NumPy arrays and freed arrays."""
        for part in self.parts:
            if not isinstance(part, np.ndarray):
                part.free()

    @property
    def device(self) -> Any:
        """The device of the weights, or None for host memory."""
        return None if isinstance(self.words, np.ndarray) else self.words.device

    @property
    def nbytes(self) -> int:
        """The total size of words, scales and zero points in bytes."""
        return sum(part.nbytes for part in self.parts)

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        """The arrays `words`, `scales` and `zeros`."""
        return self.words, self.scales, self.zeros

    def dequantize(self) -> NDArray[np.float32]:
        """Return the (k, n) matrix that the integers represent, in float32."""
        words, scales, zeros = (np.asarray(x) for x in self.parts)
        places = np.arange(0, 32, self.bits, dtype=np.uint32)
        q = (words[:, :, None] >> places) & np.uint32(2**self.bits - 1)
        steps = q.reshape(*scales.shape, self.block).astype(np.float32) - zeros[:, :, None].astype(np.float32)
        columns = (steps * scales[:, :, None]).reshape(self.shape[1], scales.shape[1] * self.block)
        return np.ascontiguousarray(columns[:, : self.shape[0]].T)


def quantize_blocks(w: ArrayLike, bits: int = 4, block: int = 32, *, symmetric: bool = False) -> BlockWeights:
    """Return the matrix `w` quantised in blocks along k, for `qmatmul_weights()`.

    Arguments:

    - `w`: a (k, n) matrix of finite floats.
    - `bits`: 4 or 8 bits per element.
    - `block`: 32 or 128 elements along k that share a scale and a zero point.
    - `symmetric`: map -max|w| to max|w| of each block to the integers, with the zero point in the middle, 128 or 8.
      By default the range of each block, extended to include 0, is mapped to all integers.

    Raises ProblemError for other values of `bits` or `block`, a `w` that is not a matrix, and NaN or infinity in `w`.

    Example: ``weights = webmm.quantize_blocks(w, bits=4).to(device)``
    """
    if bits not in BITS:
        raise ProblemError(f"bits must be 4 or 8, not {bits}")
    if block not in BLOCKS:
        raise ProblemError(f"block must be 32 or 128, not {block}")
    host = host_array(w).astype(np.float32, copy=False)
    if host.ndim != 2:
        raise ProblemError(f"w has shape {host.shape}; weights must be a (k, n) matrix")
    if not np.isfinite(host).all():
        raise ProblemError("w contains NaN or infinity, which cannot be quantised")
    k, n = host.shape
    blocks = -(-k // block)
    padded = np.zeros((n, blocks * block), np.float32)
    padded[:, :k] = host.T
    q, scales, zeros = spread(padded.reshape(n, blocks, block), (2,), 0, 2**bits - 1, symmetric)
    places = np.arange(0, 32, bits, dtype=np.uint32)
    per_word = q.astype(np.uint32).reshape(n, blocks * block * bits // 32, 32 // bits)
    words = np.bitwise_or.reduce(per_word << places, axis=-1)
    return BlockWeights((k, n), bits, block, words, scales[:, :, 0], zeros[:, :, 0].astype(np.uint8))
