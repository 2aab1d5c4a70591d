"""Sequences of calls without waits: results become operands, arrays are freed meanwhile, reads come in any order.

Each array on the device has a NumPy counterpart, which is sliced, transposed and overwritten in the same way. Operands
are small whole numbers, so that nothing is rounded: a buffer reused while in use, a read that comes too early, or a
call with another call's strides give exactly detectable wrong numbers.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from draw import Draw, wrong
from numpy.typing import NDArray

import webmm
from webmm.choose import gemm as gemm_choices
from webmm.dtypes import dtype_of
from webmm.epilogues import ACTIVATIONS
from webmm.errors import ProblemError
from webmm.kernels.gemm.naive import Naive

STEPS = 30
KINDS = (  # kinds of steps; a method each
    *("matmul",) * 6,
    *("gemm", "reduce", "drop") * 3,
    *("new", "view", "free", "softmax", "gelu", "layer_norm") * 2,
    *("qmatmul", "qmatmul_weights", "zeros", "assign", "refused", "read"),
)
LENGTHS = (5, 8, 12, 16, 33)
LARGEST = {"float32": 2**22, "float16": 2**10, "bfloat16": 2**7}  # whole numbers up to these, and sums, are exact
TOLERANCE = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 0.1}  # for fractions; table.py has tighter bounds
SMALL = 64  # largest operand of exponentials and norms
POISON = 77  # overwrites host operands after a call


@dataclass(eq=False)  # arrays are compared element by element
class Pair:
    """An array or view on the device and its NumPy counterpart, which may differ by `tolerance` · (1 + |x|)."""

    array: webmm.Array
    host: NDArray[Any]
    tolerance: float = 0.0

    @property
    def largest(self) -> float:
        """The largest magnitude; infinite if the numbers are not whole."""
        return np.inf if self.tolerance else float(np.abs(self.host).max(initial=0))

    def shares(self, other: Any) -> bool:
        """Return whether `other` uses the same buffer."""
        return isinstance(other, webmm.Array) and other.storage is self.array.storage


class Sequence:
    """The live arrays, and a method for each kind of step."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.device, self.dtype = draw, draw.device, draw.dtype()
        self.lengths = draw.setting("lengths", [(a, b) for a in LENGTHS for b in LENGTHS if a < b])
        self.live: list[Pair] = []

    def run(self) -> str:
        """Perform random steps, read the remaining arrays in any order, and return "" (a wrong result raises)."""
        with self.fast_kernels():
            for _ in range(STEPS):
                getattr(self, self.draw.pick("step", KINDS))()
            while self.live:
                self.read()
        return ""

    def fast_kernels(self) -> contextlib.AbstractContextManager[Any]:
        """Use the kernel that compiles fastest on a CPU adapter, where compilation is slow."""
        if self.device.info.kind != "cpu":
            return contextlib.nullcontext()
        return mock.patch.object(gemm_choices, "candidates", return_value=[Naive()])

    # Operands

    def one_of(self, pairs: list[Pair]) -> Pair:
        return pairs[self.draw.pick("live array", range(len(pairs)))]

    def shape(self) -> tuple[int, int]:
        return self.draw.pick("rows", self.lengths), self.draw.pick("columns", self.lengths)

    def whole(self, shape: tuple[int, ...], most: int = 2) -> NDArray[Any]:
        return self.draw.whole(shape, most).astype(dtype_of(self.dtype).numpy)

    def operand(self, shape: tuple[int, ...], most: float, not_of: Pair | None = None) -> tuple[Any, NDArray[Any]]:
        """Return an operand of `shape` with numbers of at most `most` and its values: a live array or a new one."""
        found = [
            pair
            for each in self.live
            for pair in (each, Pair(each.array.T, each.host.T, each.tolerance))
            if pair.host.shape == shape and pair.largest <= most and pair.array.element == dtype_of(self.dtype)
            if not (not_of and not_of.shares(pair.array))
        ]
        kind = self.draw.pick("operand", ("live", "live", "live", "host", "window", "transposed", "new"))
        if kind == "live" and found:
            chosen = self.one_of(found)
            return chosen.array, chosen.host.astype(np.float64)
        if kind == "window" and len(shape) == 2:
            wide = self.whole((shape[0] + 4, shape[1] + 3), 1)
            window = (slice(2, 2 + shape[0]), slice(1, 1 + shape[1]))
            return self.device.array(wide)[window], wide[window].astype(
                np.float64
            )  # the whole array is dropped at once
        fresh = self.whole(shape[::-1], 1).T if kind == "transposed" else self.whole(shape, 1)
        return (fresh if kind in ("host", "live") else self.device.array(fresh)), fresh.astype(np.float64)

    def keep(self, array: Any, exact: NDArray[Any], *given: Any, tolerance: float = 0.0) -> None:
        """Compare a host result now, keep a device result as live, and overwrite the call's host operands."""
        for each in given:
            if isinstance(each, np.ndarray):
                each[...] = POISON
        if isinstance(array, webmm.Array):
            self.live.append(Pair(array, np.array(exact), tolerance))
        else:
            self.compare(array, exact, tolerance, array.dtype.name)

    def compare(self, got: Any, exact: NDArray[Any], tolerance: float, dtype: str) -> None:
        if problem := wrong(got, exact, tolerance * (1 + np.abs(exact)), dtype):
            raise AssertionError(problem)

    # Steps

    def new(self) -> None:
        fresh = self.whole(self.shape())
        self.live.append(Pair(self.device.array(fresh), fresh.astype(np.float64)))
        fresh[...] = POISON

    def zeros(self) -> None:
        shape = self.shape()
        self.live.append(Pair(self.device.zeros(shape, self.dtype), np.zeros(shape)))

    def view(self) -> None:
        if self.live:
            pair, kind = self.one_of(self.live), self.draw.pick("view", ("transposed", "rows", "columns"))
            index = {"transposed": ..., "rows": slice(1, None), "columns": (..., slice(None, -1))}[kind]
            array, host = pair.array[index], pair.host[index]
            if host.size:
                self.live.append(
                    Pair(array.T, host.T, pair.tolerance) if kind == "transposed" else Pair(array, host, pair.tolerance)
                )

    def matmul(self) -> None:
        (m, n), k = self.shape(), self.draw.pick("k", self.lengths)
        largest = LARGEST[self.dtype] // 4
        a, left = self.operand((m, k), largest // k)
        b, right = self.operand((k, n), largest // (k * max(1, np.abs(left).max())))
        exact, settings = left @ right, {}
        if self.draw.setting("bias", (False, False, True)):
            settings["bias"], added = self.operand((n,), largest)
            exact = exact + added
        if self.draw.setting("activation", (False, False, True)):
            settings["activation"], exact = "relu", ACTIVATIONS["relu"].reference(exact)
        if self.draw.setting("residual", (False, False, True)):
            settings["residual"], added = self.operand((m, n), largest)
            exact = exact + added
        self.keep(webmm.matmul(a, b, device=self.device, **settings), exact, a, b, *settings.values())

    def gemm(self) -> None:
        found = [pair for pair in self.live if pair.host.ndim == 2 and pair.largest <= LARGEST[self.dtype] // 4]
        found = [pair for pair in found if 1 in pair.array.strides and pair.array.element == dtype_of(self.dtype)]
        if not found:
            self.new()
            return
        c, k = self.one_of(found), self.draw.pick("k", self.lengths)
        (m, n), largest = c.host.shape, LARGEST[self.dtype] // 4
        a, left = self.operand((m, k), largest // k, not_of=c)
        b, right = self.operand((k, n), largest // (k * max(1, np.abs(left).max())), not_of=c)
        beta = self.draw.pick("beta", (0.0, 1.0, -1.0))
        a, b = (x if isinstance(x, webmm.Array) else self.device.array(x) for x in (a, b))
        webmm.gemm(a, b, c.array, beta=beta)
        c.host[...] = left @ right + beta * c.host

    def reduce(self) -> None:
        op, axis, shape = self.draw.pick("op", ("sum", "max", "argmax")), self.draw.pick("axis", (0, 1)), self.shape()
        x, values = self.operand(shape, LARGEST[self.dtype] // max(shape))
        got = webmm.reduce(x, op, axis, device=self.device)
        self.keep(got, getattr(values, op)(axis).astype(np.float64), x)

    def softmax(self) -> None:
        axis = self.draw.pick("axis", (0, 1))
        x, values = self.operand(self.shape(), SMALL)
        e = np.exp(values - values.max(axis, keepdims=True))
        exact = e / e.sum(axis, keepdims=True)
        self.keep(webmm.softmax(x, axis, device=self.device), exact, x, tolerance=TOLERANCE[self.dtype])

    def layer_norm(self) -> None:
        shape = self.shape()
        (x, values), (weight, factors) = self.operand(shape, SMALL), self.operand(shape[1:], SMALL)
        centred = values - values.mean(-1, keepdims=True)
        exact = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1) * factors
        got = webmm.layer_norm(x, weight, eps=1.0, device=self.device)
        self.keep(got, exact, x, weight, tolerance=TOLERANCE[self.dtype])

    def gelu(self) -> None:
        x, values = self.operand(self.shape(), SMALL)
        self.keep(
            webmm.gelu(x, device=self.device), ACTIVATIONS["gelu"].reference(values), x, tolerance=TOLERANCE[self.dtype]
        )

    def qmatmul(self) -> None:
        (m, n), k = self.shape(), self.draw.pick("k", self.lengths)
        a, b = self.draw.integers((m, k), "uint8"), self.draw.integers((k, n), "int8")
        zeros = self.draw.integers((m,), "uint8")
        exact = (a.astype(np.int64) - zeros[:, None]) @ (b.astype(np.int64) - 3)
        x = self.device.array(a) if self.draw.pick("a on the device", (False, True)) else a
        got = webmm.qmatmul(x, b, 1.0, zeros, 1.0, 3, out_dtype="int32", device=self.device)
        self.keep(got, exact.astype(np.float64), x, b, zeros)

    def qmatmul_weights(self) -> None:
        k, n = self.shape()
        x, values = self.operand((self.draw.pick("rows of x", self.lengths), k), SMALL)
        weights = webmm.quantize_blocks(self.draw.whole((k, n), 2), self.draw.pick("bits", (4, 8)))
        exact = values @ weights.dequantize().astype(np.float64)
        given = weights.to(self.device) if self.draw.pick("weights on the device", (False, True)) else weights
        self.keep(
            webmm.qmatmul_weights(x, given, device=self.device),
            exact,
            x,
            *weights.parts,
            tolerance=TOLERANCE[self.dtype],
        )
        given.free()

    def assign(self) -> None:
        found = [pair for pair in self.live if pair.array.contiguous and pair.array.size == pair.array.capacity]
        found = [pair for pair in found if pair.array.element == dtype_of(self.dtype) and not pair.tolerance]
        if not found:
            self.new()
            return
        target = self.one_of(found)
        data, values = self.operand(target.host.shape, LARGEST[self.dtype], not_of=target)
        self.device.assign(target.array, data)
        target.host[...] = values
        if isinstance(data, np.ndarray):
            data[...] = POISON

    def refused(self) -> None:
        with contextlib.suppress(ProblemError):
            webmm.matmul(self.whole((3, 4)), self.device.array(self.whole((5, 6))))
            raise AssertionError("mismatched operands were accepted")

    def free(self) -> None:
        if self.live:
            gone = self.one_of(self.live)
            self.live = [pair for pair in self.live if not pair.shares(gone.array)]
            gone.array.free()

    def drop(self) -> None:
        if self.live:
            self.live.remove(self.one_of(self.live))

    def read(self) -> None:
        if self.live:
            pair = self.one_of(self.live)
            self.compare(pair.array, pair.host, pair.tolerance, pair.array.element.name)
            if self.draw.pick("read and dropped", (False, True)):
                self.live.remove(pair)
