"""Products of floats with weights of 8 or 4 bits, which keep a scale and a zero point for each block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from webmm.api import Operandish, Temporaries
from webmm.array import Array
from webmm.device import Device, default_device
from webmm.dtypes import dtype_of
from webmm.errors import ProblemError
from webmm.kernels.weights.base import WeightKernel
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.plan import matrix_operand
from webmm.problem import WeightOnly
from webmm.quantization import spread
from webmm.quantized import ENOUGH_TILES, choose

BITS = (8, 4)
BLOCKS = (32, 128)
FEW_ROWS = 32  # up to which `vector` is faster than tiles (H200, n = k = 4096)
ROWS = (1, 2, 4, 8)  # that `vector` takes at once
CPU_LANES = 8  # of lavapipe's vector registers
TILES = (Tiles(), Tiles(bm=32, bn=64, tm=4, tn=4), Tiles(bm=32, bn=32, tm=4, tn=4))


@dataclass(frozen=True)
class BlockWeights:
    """A (k, n) matrix of `bits`-bit integers q that stand for ``scale·(q - zero)``, in blocks of `block` along k.

    `words` (n, ·) of uint32 holds it by columns, padded to whole blocks, 32/bits integers to a word, the first lowest;
    `scales` (n, blocks) of float32 and `zeros` (n, blocks) of uint8 those of the blocks. They are NumPy arrays, or lie
    on a device: `to()`.
    """

    shape: tuple[int, int]
    bits: int
    block: int
    words: NDArray[np.uint32] | Array
    scales: NDArray[np.float32] | Array
    zeros: NDArray[np.uint8] | Array

    def to(self, device: Device) -> BlockWeights:
        """Return the weights on `device`, for products that need not upload them again; raises as `Device.array()`."""
        words, scales, zeros = (device.array(np.asarray(x)) for x in self.parts)
        return replace(self, words=words, scales=scales, zeros=zeros)

    def free(self) -> None:
        """Give the device's memory back, if it is there; doing so again is harmless."""
        for part in self.parts:
            if isinstance(part, Array):
                part.free()

    @property
    def device(self) -> Device | None:
        """The device that the weights lie on, None for the host."""
        return self.words.device if isinstance(self.words, Array) else None

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
        columns = (steps * scales[:, :, None]).reshape(self.shape[1], -1)
        return np.ascontiguousarray(columns[:, : self.shape[0]].T)


def quantize_blocks(w: ArrayLike, bits: int = 4, block: int = 32, *, symmetric: bool = False) -> BlockWeights:
    """Return the (k, n) matrix `w` in integers of 8 or 4 bits, with a scale and a zero point per 32 or 128 along k.

    The range of a block, extended to hold 0, is spread over all integers; with `symmetric` it is -max|w| to max|w|, and
    the zero point the middle, 128 or 8. Raises ProblemError for another number of bits or block, a `w` that is no
    matrix, and a NaN or an infinity.
    """
    if bits not in BITS:
        raise ProblemError(f"weights have 8 or 4 bits, not {bits}")
    if block not in BLOCKS:
        raise ProblemError(f"blocks have 32 or 128 weights, not {block}")
    host = np.asarray(w, np.float32)
    if host.ndim != 2:
        raise ProblemError(f"w has shape {host.shape}; weights are a (k, n) matrix")
    if not np.isfinite(host).all():
        raise ProblemError("w holds NaN or infinity, which no integer stands for")
    k, n = host.shape
    blocks = -(-k // block)
    padded = np.zeros((n, blocks * block), np.float32)
    padded[:, :k] = host.T
    q, scales, zeros = spread(padded.reshape(n, blocks, block), (2,), 0, 2**bits - 1, symmetric)
    places = np.arange(0, 32, bits, dtype=np.uint32)
    words = np.bitwise_or.reduce(q.astype(np.uint32).reshape(n, -1, 32 // bits) << places, axis=-1)
    return BlockWeights((k, n), bits, block, words, scales[:, :, 0], zeros[:, :, 0].astype(np.uint8))


def qmatmul_weights(
    x: Operandish,
    weights: BlockWeights,
    *,
    out_dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Any:
    """Return ``x @ weights`` with x (…, k) of float32 or float16 and quantised weights (k, n), summed in float32.

    The weights become floats within the product: what is read of them is their 8 or 4 bits. Keep them on the device
    with `BlockWeights.to()`, or each call uploads them. The result is `out_dtype`, by default x's type; it is a NumPy
    array unless `x` is an `Array`.

    Every element is within the bound of `matmul()` of the product with `weights.dequantize()`. Raises ProblemError for
    operands that do not fit together or lie on different devices, and for other types; else as `matmul()`.
    """
    resident = isinstance(x, Array)
    device = device or (x.device if isinstance(x, Array) else weights.device or default_device())
    with device.span("qmatmul_weights", "call"), Temporaries(device) as temporary:
        a = temporary.array(x)
        k, n = weights.shape
        if not a.ndim or a.shape[-1] != k:
            raise ProblemError(f"x {a.shape} and weights ({k}, {n}) do not fit: x must end with {k}")
        out = a.dtype if out_dtype is None else dtype_of(out_dtype)
        shape = (*a.shape[:-1], n)
        c = device.empty(shape, out)
        rows = temporary.readable(_as_rows(temporary, a))
        where = matrix_operand(rows)
        if c.size and k:
            assert where, "made readable above"
            problem = WeightOnly(rows.shape[0], n, k, a.dtype, out, where, weights.bits, weights.block)
            parts = [temporary.array(part) for part in weights.parts]
            device.run(choose(problem, device, candidates(problem, device)), problem, rows, *parts, c)
        if resident:
            return c
        host = c.numpy()
        c.free()
        return host


def _as_rows(temporary: Temporaries, x: Array) -> Array:
    """Return x as a matrix, of a copy where its leading axes do not follow each other."""
    if x.ndim == 2:
        return x
    dense = x if x.contiguous else temporary.array(x.numpy())
    return dense.reshape(x.size // x.shape[-1] if x.shape[-1] else 0, x.shape[-1])


def candidates(problem: WeightOnly, device: Device) -> list[WeightKernel]:
    """Return the kernels that are worth running for `problem` on `device`, best first."""
    if device.info.kind == "cpu":  # where workgroup memory is slow: 9.6 against 4 GFLOP/s for 64 rows (lavapipe)
        return [Vector(lanes=CPU_LANES, tm=_rows(problem)), TILES[-1]]
    return made_for_gpus(problem)


def _rows(problem: WeightOnly) -> int:
    return next((rows for rows in ROWS if rows >= problem.m), ROWS[-1])


def made_for_gpus(problem: WeightOnly) -> list[WeightKernel]:
    """Return the kernels for GPUs, best first."""
    rows = _rows(problem)
    lanes = 32 if rows == ROWS[-1] else Vector().lanes  # 8 rows by 32 lanes 26 µs, by 64 30 (H200, n = k = 4096)
    vector = Vector(lanes, rows)
    if problem.m <= FEW_ROWS:
        return [vector, TILES[-1]]
    filling = [kernel for kernel in TILES if kernel.grid.tiles(problem) >= ENOUGH_TILES]
    return [*filling, TILES[-1], vector]
