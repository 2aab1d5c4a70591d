"""Products of large NumPy arrays and memory maps, which are streamed through a device.

A piece of C (all of C if it fits) stays on the device while pieces along k are uploaded. They are multiplied into it a
few rows at a time; those rows of A are uploaded just before, together with a part of the next piece of B. If C is one
piece, each element is moved once. Complete rows of C are downloaded while the next are computed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.arguments.products import bias_kind
from webmm.calls.executor import Execution, Labelled, Progress, of_product
from webmm.choose.limits import largest_buffer
from webmm.cut.pieces import Piece, elements
from webmm.cut.streams import held_lengths, rows_at_a_time, streamed
from webmm.dtypes import DType
from webmm.engine.device import Array, Device

BATCH_BYTES = 2**26  # bytes of small matrices to combine in a piece
OVERLAP = 2**25  # bytes of operands and result from which overlapping transfers with compute pays off
LONG = 2**31  # bytes of all three matrices from which longer transfers pay off
# multiply(a, b, c, beta, bias, kind of bias, last, operands) queues c ← activation(alpha·a·b + bias) + beta·c; the
# activation, with its operands for this piece, is applied only for the last piece of k.
Multiply = Callable[[Array, Array, Array, float, Array | None, str, bool, list[NDArray[Any]]], None]


@dataclass
class StreamedProduct:
    """A product of NumPy arrays A, (…, m, k), and B, (…, k, n), into C, (…, m, n), all with the same number of axes.

    `dtype` is the dtype of A and B, `out` that of C. Partial sums over k are float32, or float64 for float64 operands;
    they are kept in a separate buffer if C has another dtype, or if the epilogue `needs_whole_sum`. `fresh` says that C
    is dense and newly allocated, so that its pages are faulted in during the computation.
    """

    device: Device
    multiply: Multiply
    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]
    dtype: DType
    out: DType
    bias: NDArray[Any] | None
    residual: NDArray[Any] | None
    operands: list[NDArray[Any]]  # of the activation, which broadcast to C
    needs_whole_sum: bool
    progress: Progress | None
    fresh: bool = False

    def run(self, memory: int) -> None:
        """Compute C with at most `memory` bytes of device memory; after an error, C may be partly written."""
        long = self.a.nbytes + self.b.nbytes + self.c.nbytes >= LONG
        pieces = self._pieces(memory)
        with self.device.staging.long() if long else contextlib.nullcontext():
            Execution(
                *(self.device, pieces, [self._labelled(self.a, "mk"), self._labelled(self.b, "kn")]),
                *(self._labelled(self.c, "mn"), self._compute, largest_buffer(self.device)),
                early=1,
                sums=self.dtype.sums if pieces[0].apart else None,
                progress=self.progress,
                fresh=self.fresh,
            ).run()

    def _pieces(self, memory: int) -> list[Piece]:
        m, n, k = sizes = (self.c.shape[-2], self.c.shape[-1], self.a.shape[-1])
        size, out = self.dtype.itemsize, self.out.itemsize
        apart, largest = self.needs_whole_sum or self.out != self.dtype.sums, largest_buffer(self.device)
        held = held_lengths(sizes, size, out, memory, largest, apart)
        matrices = (m * k * size, k * n * size, m * n * out)  # bytes of A, B and C
        most = max(1, min(min(memory // 2, BATCH_BYTES) // sum(matrices), largest // max(matrices)))
        return streamed(self.c.shape[:-2], sizes, held, rows_at_a_time(held, size, out), most, apart)

    def _labelled(self, x: NDArray[Any], axes: str) -> Labelled:
        return of_product(x, axes, self.c.ndim - 2)

    def _compute(self, piece: Piece, operands: list[Array], into: Array, total: Array) -> None:
        x, y = operands
        if piece.first and self.residual is not None:
            self.device.upload(self.residual[elements(piece, self._labelled(self.residual, "mn").axes)], into)
        start = 0.0 if self.residual is None else 1.0  # the factor of the previous contents of C
        bias = self._bias(piece) if piece.first else None
        if not piece.apart:
            self.multiply(
                x, y, into, start if piece.first else 1.0, bias, bias_kind(bias), piece.last, self._operands(piece)
            )
        elif piece.last:
            self.multiply(x, y, into, start, total, "matrix", True, self._operands(piece))
        else:
            self.multiply(x, y, total, 0.0 if piece.first else 1.0, bias, bias_kind(bias), False, [])

    def _operands(self, piece: Piece) -> list[NDArray[Any]]:
        """Return the elements of the activation's operands that belong to a piece; axes of length 1 are not cut."""
        at = elements(piece, self._labelled(self.c, "mn").axes)
        return [
            x[tuple(slice(None) if length == 1 else each for length, each in zip(x.shape, at, strict=True))]
            for x in self.operands
        ]

    def _bias(self, piece: Piece) -> Array | None:
        if self.bias is None:
            return None
        at = elements(piece, "n" if self.bias.ndim == 1 else "m")
        return self.device.array(np.asarray(self.bias[at]), self.dtype)
