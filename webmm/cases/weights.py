"""Test cases of products with quantised weights, sized as layers of a language model for a token and for a prompt."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Case, Exhibit, Op, Size, Trial
from webmm.cases.exact import ExactCase, Input, Integers, Ladder, product
from webmm.cases.products import (
    ROUNDING,
    allowed_errors,
    buffers_of,
    dense,
    laid_out,
    operand_values,
    quarters,
    representable,
    small_function,
    small_sizes,
)
from webmm.cases.steps.products import WeightsSubject
from webmm.dtypes import F32, MATRIX_DTYPES, U8, DType, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError
from webmm.kernels.weights.base import WeightKernel
from webmm.kernels.weights.cpu_lanes import CpuLanes
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.measure.roofline import Roofline
from webmm.measure.verify import Checker, Wrong, bound
from webmm.problems.product import Operand
from webmm.problems.weights import BITS, BLOCKS, BlockWeights, WeightOnly, quantize_blocks

ROWS = (1, 8, 64, 512)
LAYER = (1024, 2048, 4096)  # sizes of n and k
LAYERS = {  # on the page
    "gpu": ((1, 1024, 1024), (1, 4096, 4096), (8, 4096, 4096), (64, 4096, 4096)),
    "cpu": ((3, 33, 65), (1, 512, 512), (8, 256, 512)),
}


@functools.lru_cache(maxsize=1)  # the next problem often has the same weights
def _drawn(k: int, n: int, bits: int, block: int) -> BlockWeights:
    w = np.random.default_rng(1).random((k, n), np.float32) - np.float32(0.5)
    return quantize_blocks(w, bits, block)


class Layer(Case[WeightOnly]):
    """Activations, and weights before quantisation, drawn uniformly from [-0.5, 0.5)."""

    scale = "·|A||W|"

    def __init__(self, device: Device, problem: WeightOnly) -> None:
        self.problem = problem
        rng = np.random.default_rng(0)
        a = (rng.random((problem.m, problem.k), np.float32) - np.float32(0.5)).astype(problem.dtype.numpy)
        weights = _drawn(problem.k, problem.n, problem.bits, problem.block)
        self.checker = Checker(problem, a, weights.dequantize())
        names = ("a", "b", "scales", "zeros")
        self.inputs = {name: device.array(x) for name, x in zip(names, (a, *weights.parts), strict=True)}

    @property
    def bound(self) -> float:
        """The bound as a multiple of |A|·|W|."""
        return bound(self.problem)

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error as a multiple of |A|·|W|."""
        return self.checker.error(got.reshape(self.problem.m, self.problem.n))

    def wrong(self, got: NDArray[Any]) -> Wrong | None:
        """Return the wrong elements."""
        return self.checker.wrong(got.reshape(self.problem.m, self.problem.n), self.bound)

    @functools.cached_property
    def _in_f32(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.checker.a.astype(np.float32), self.checker.b

    def numpy(self) -> NDArray[Any]:
        """Multiply by dequantised weights, in float32."""
        a, w = self._in_f32
        product: NDArray[Any] = a @ w
        return product

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of the product in float32."""
        return self.error(got)


class WeightsOp(Op[WeightOnly]):
    """C = A·W with weights of 4 or 8 bits in blocks of 32 or 128."""

    name = "weights"
    tried = (((1, 256, 256), "nn"), ((65, 67, 63), "nn"), ((64, 64, 128), "tn"))
    variants = tuple(f"{bits}bit-{block}" for bits in sorted(BITS) for block in BLOCKS)

    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return each of ROWS, with the largest layer that takes at most 0.1 s at the peak rate."""
        del budget
        most = max((n for n in LAYER if 2 * ROWS[-1] * n * n <= 0.1 * ceiling.gflops * 1e9), default=LAYER[0])
        return [(m, most, most) for m in ROWS]

    def problem(self, size: Size, dtype: str, layout: str = "nn") -> WeightOnly:
        """Return the dense product of a size."""
        if layout not in ("nn", "tn"):
            raise ConfigError(
                f"unknown layout {layout!r} of op weights; choose from nn, tn; the layout of the weights is fixed"
            )
        m, n, k = size[:3]
        kind = dtype_of(dtype)
        a = Operand(m if layout[0] == "t" else k, transposed=layout[0] == "t")
        bits, block = map(int, self.variant.split("bit-"))
        return WeightOnly(m, n, k, kind, kind, a, bits, block)

    def described(self, m: int, n: int, k: int, bits: int, block: int, dtype: str = "float32") -> WeightOnly:
        """Return the product of a dense matrix, for `webmm/shaders`."""
        kind = dtype_of(dtype)
        return WeightOnly(m, n, k, kind, kind, Operand(k), bits, block)

    @property
    def ladders(self) -> tuple[Ladder, ...]:
        """All stages but those on matrix units, with 4 bits."""
        return LADDERS

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """Nothing: all stages are in `ladders`."""
        return ()

    def case(self, device: Device, problem: WeightOnly) -> Layer:
        """Return `problem` with random matrices."""
        return Layer(device, problem)

    def steps(self, kernel: Any, problem: WeightOnly) -> WeightsSubject:
        """Return NumPy's values for the steps of a kernel."""
        return WeightsSubject(self, kernel, problem)

    def stand_ins(self, kernel: WeightKernel, problem: WeightOnly) -> Iterator[WeightOnly]:
        """Yield small products with the same format of weights."""
        p = problem
        for m, n, k in small_sizes(kernel, p):
            yield replace(p, m=m, n=n, k=k, a=dense(p.a, (m, k), (p.m, p.k)), starts=(), **small_function(p, m, n))

    def trial(self, problem: WeightOnly) -> Trial:
        """Return quarters, and weights in blocks with different scales and zero points; sums are exact in f32."""
        p, rng = problem, np.random.default_rng(0)
        a, middle = quarters(rng, (p.m, p.k)), 2 ** (p.bits - 1)
        q = rng.integers(0, 2**p.bits, (p.n, p.blocks * p.block), np.uint32)
        places = np.arange(0, 32, p.bits, dtype=np.uint32)
        words = np.bitwise_or.reduce(q.reshape(p.n, -1, len(places)) << places, axis=-1)
        scales = rng.choice([0.25, 0.5, 1.0], (p.n, p.blocks)).astype(np.float32)
        zeros = rng.integers(middle - 2, middle + 3, (p.n, p.blocks)).astype(np.uint8)
        w = BlockWeights((p.k, p.n), p.bits, p.block, words, scales, zeros).dequantize().astype(np.float64)
        stored = laid_out(a, p.a, p.buffers()[0].end)
        given = {"a": stored, "b": words.ravel(), "scales": scales.ravel(), "zeros": zeros.ravel()}
        if p.activation:
            more = operand_values(p, rng)
            finished = functools.partial(p.applied, operands=list(more.values()))
            given |= buffers_of(p, more, {})
            allowed = allowed_errors(p, a @ w, finished, a @ np.abs(w))
            return Trial(given, representable(finished(a @ w), p.out_dtype), allowed)
        stored_eps = 0.0 if p.out_dtype == F32 else p.out_dtype.eps
        return Trial(given, a @ w, (ROUNDING + stored_eps) * (a @ np.abs(w)))

    def examples(self) -> Iterator[tuple[str, WeightOnly]]:
        """Yield each dtype, number of bits, block and layout of A, for aligned and ragged shapes."""
        shapes = {"aligned": (512, 512, 512), "ragged": (509, 511, 513)}
        for dtype, bits, block, transposed, (words, (m, n, k)) in itertools.product(
            MATRIX_DTYPES, BITS, BLOCKS, (False, True), shapes.items()
        ):
            a = Operand(m if transposed else k, transposed=transposed)
            problem = WeightOnly(m, n, k, dtype, dtype, a, bits, block)
            yield f"{dtype.name} {bits} bits, blocks of {block}, {'t' if transposed else 'n'}n {words}", problem


def weighted(size: tuple[int, ...], dtype: DType) -> ExactCase:
    """Return a product with 4-bit weights, with a zero point for each block, and all scales equal to one."""
    m, n, k = size
    block = BLOCKS[0]
    problem = WeightOnly(m, n, k, dtype, dtype, Operand(k), 4, block)
    extents = {extent.name: extent for extent in problem.buffers()}
    inputs = (
        Input("a", dtype, m * k, 1, -8, 7),
        Input("b", U8, extents["b"].end * 4, 2, 0, 255),
        Input("scales", F32, extents["scales"].end, 3, 1, 1),
        Input("zeros", U8, extents["zeros"].end, 4, 0, 15),
    )

    def compute(a: Integers, b: Integers, scales: Integers, zeros: Integers) -> NDArray[Any]:
        words = b.astype(np.uint8).view("<u4").reshape(n, -1)
        parts = scales.astype(np.float32).reshape(n, -1), zeros.astype(np.uint8).reshape(n, -1)
        return product(a.reshape(m, k), BlockWeights((k, n), 4, block, words, *parts).dequantize())

    return ExactCase(problem, inputs, compute)


_KERNELS = {
    "gpu": (Vector(), Tiles(), CpuLanes()),
    "cpu": (Vector(lanes=8, tm=2), Tiles(bm=32, bn=32, bk=8, tm=4, tn=4, unroll=1), CpuLanes(4, 4, 8)),
}
LADDERS = (Ladder("Matrix product, 4-bit weights", _KERNELS, weighted, LAYERS, (F32,), ("matrix_unit",)),)
OP = WeightsOp
