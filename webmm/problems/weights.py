"""Products of floats with weights of 8 or 4 bits, which keep a scale and a zero point for each block."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from webmm.dtypes import F32, U8, U32, DType
from webmm.errors import ProblemError
from webmm.problems.base import Extent, check_floats, opened_at, windowed
from webmm.problems.product import Operand, Product
from webmm.problems.scheme import spread

BITS = (8, 4)
BLOCKS = (32, 128)


@dataclass(frozen=True)
class WeightOnly(Product):
    """C (m, n) ← A (m, k) · W (k, n), A and C of floats, W of `bits`-bit integers, 8 or 4; C is dense and row-major.

    W is stored by columns, each padded to whole blocks of `block` neighbours along k: 32/bits of them to a u32, the
    first lowest. A block has a float32 in `scales` and a byte in `zeros`; a q in it stands for ``scale·(q - zero)``.
    `starts` are the first elements of W, its scales and zero points, and of C, where these are not all 0.
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
        self.check_sizes()

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
            *windowed(
                (
                    Extent("b", U32, blocks * self.block * self.bits // 32),
                    Extent("scales", F32, blocks),
                    Extent("zeros", U8, blocks),
                    Extent("c", self.out_dtype, self.m * self.n, written=True),
                ),
                self.starts,
            ),
        )

    def within(self, firsts: tuple[int, ...]) -> WeightOnly:
        """Return the problem with the offset into each of its buffers less the given number of elements."""
        a = replace(self.a, offset=self.a.offset - firsts[0])
        return replace(self, a=a, starts=opened_at(firsts[1:], self.starts))

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: each operand read once, the result written once."""
        _, *others = self.buffers()
        return self.m * self.k * self.dtype.itemsize + sum((e.end - e.start) * e.dtype.itemsize for e in others)


@dataclass(frozen=True)
class BlockWeights:
    """A (k, n) matrix of `bits`-bit integers q that stand for ``scale·(q - zero)``, in blocks of `block` along k.

    `words` (n, ·) of uint32 holds it by columns, padded to whole blocks, 32/bits integers to a word, the first lowest;
    `scales` (n, blocks) of float32 and `zeros` (n, blocks) of uint8 those of the blocks. They are NumPy arrays, or
    `webmm.Array`s: `to()`.
    """

    shape: tuple[int, int]
    bits: int
    block: int
    words: Any
    scales: Any
    zeros: Any

    def to(self, device: Any) -> BlockWeights:
        """Return the weights on `device`, for products that need not upload them again; raises as `Device.array()`."""
        words, scales, zeros = (device.array(np.asarray(x)) for x in self.parts)
        return replace(self, words=words, scales=scales, zeros=zeros)

    def free(self) -> None:
        """Give the device's memory back, if it is there; doing so again is harmless."""
        for part in self.parts:
            if not isinstance(part, np.ndarray):
                part.free()

    @property
    def device(self) -> Any:
        """The device that the weights lie on, None for the host."""
        return None if isinstance(self.words, np.ndarray) else self.words.device

    @property
    def nbytes(self) -> int:
        """Bytes of words, scales and zero points."""
        return sum(part.nbytes for part in self.parts)

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        """Words, scales and zero points."""
        return self.words, self.scales, self.zeros

    def dequantize(self) -> NDArray[np.float32]:
        """Return the (k, n) matrix that the integers stand for, in float32."""
        words, scales, zeros = (np.asarray(x) for x in self.parts)
        places = np.arange(0, 32, self.bits, dtype=np.uint32)
        q = (words[:, :, None] >> places) & np.uint32(2**self.bits - 1)
        steps = q.reshape(*scales.shape, self.block).astype(np.float32) - zeros[:, :, None].astype(np.float32)
        columns = (steps * scales[:, :, None]).reshape(self.shape[1], scales.shape[1] * self.block)
        return np.ascontiguousarray(columns[:, : self.shape[0]].T)


def quantize_blocks(w: ArrayLike, bits: int = 4, block: int = 32, *, symmetric: bool = False) -> BlockWeights:
    """Return the (k, n) matrix `w` in integers of 8 or 4 bits, with a scale and a zero point per 32 or 128 along k.

    The range of a block, extended to hold 0, is spread over all integers; with `symmetric` it is -max|w| to max|w|, and
    the zero point the middle, 128 or 8. Raises ProblemError for another number of bits or block, a `w` that is no
    matrix, and a NaN or an infinity.
    """
    if bits not in BITS:
        raise ProblemError(f"bits must be 4 or 8, not {bits}")
    if block not in BLOCKS:
        raise ProblemError(f"block must be 32 or 128, not {block}")
    host = np.asarray(w, np.float32)
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
