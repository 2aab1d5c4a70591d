"""Matrix products on the bench: cubes that suit the device, random operands, NumPy in float64 as the judge."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Case, Op, Size
from webmm.dtypes import F32, MATRIX_DTYPES
from webmm.engine.device import Device
from webmm.epilogues import ACTIVATIONS, BIASES, TRIALS
from webmm.kernels.base import LOOP_LIMIT
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes
from webmm.roofline import Roofline
from webmm.verify import Checker, bound

DEFAULT_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
SIZES_SHOWN = 4


class Operands(Case[Gemm]):
    """One problem's matrices, dense, drawn uniformly from [-0.5, 0.5)."""

    scale = "·|A||B|"

    def __init__(self, device: Device, problem: Gemm) -> None:
        self.problem = problem
        rng = np.random.default_rng(0)
        dtype, batch = problem.dtype.numpy, (problem.batch,) if problem.batch > 1 else ()
        a = (rng.random((*batch, problem.m, problem.k), np.float32) - 0.5).astype(dtype)
        b = (rng.random((*batch, problem.k, problem.n), np.float32) - 0.5).astype(dtype)
        self.checker = Checker(problem, a, b)
        operands = (("a", a, problem.a), ("b", b, problem.b))
        self.inputs = {
            name: device.array(x.swapaxes(-1, -2) if stored.transposed else x) for name, x, stored in operands
        }

    @property
    def bound(self) -> float:
        """As a multiple of |A|·|B|."""
        return bound(self.problem)

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error as a multiple of |A|·|B|."""
        shape = (*self.checker.a.shape[:-1], self.problem.n)
        return self.checker.error(got.reshape(shape))

    @functools.cached_property
    def _in_f32(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        a, b = (x.astype(np.float32) for x in (self.checker.a, self.checker.b))
        return a, b, np.empty((self.problem.m, self.problem.n), np.float32)

    def numpy(self) -> NDArray[Any]:
        """Multiply in float32, which is what NumPy is fast at."""
        a, b, out = self._in_f32
        return np.matmul(a, b, out=out)

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of a product in float32."""
        a, b, _ = self._in_f32
        return Checker(gemm(a.shape[0], b.shape[1], a.shape[1], dtype=F32), a, b).error(got)


class GemmOp(Op[Gemm]):
    """C = A·B."""

    name = "gemm"

    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return the four largest default cubes at which a product at the peak rate takes at most 0.1 s."""
        del budget
        fitting = [n for n in DEFAULT_SIZES if 2 * n**3 <= 0.1 * ceiling.gflops * 1e9]
        return [(n, n, n) for n in fitting[-SIZES_SHOWN:] or [DEFAULT_SIZES[0]]]

    def problem(self, size: Size, dtype: str, layout: str = "nn") -> Gemm:
        """Return the dense product of that size; t in `layout` says that A or B is transposed."""
        return gemm(*size, dtype=dtype, **transposes(layout))

    def case(self, device: Device, problem: Gemm) -> Operands:
        """Return `problem` with its matrices."""
        return Operands(device, problem)

    def examples(self) -> Iterator[tuple[str, Gemm]]:
        """Yield each dtype × layout on shapes that tiles divide, do not, and of long K; then with all epilogues."""
        shapes = {"aligned": (512, 512, 512), "ragged": (509, 511, 513), "long K": (509, 511, LOOP_LIMIT + 1)}
        for dtype, (a, b), (words, shape) in itertools.product(
            MATRIX_DTYPES, itertools.product("nt", repeat=2), shapes.items()
        ):
            problem = gemm(*shape, dtype=dtype, transpose_a=a == "t", transpose_b=b == "t")
            yield f"{dtype.name} {a}{b} {words}", problem
            if a + b == "nn" and words != "long K":
                yield from _epilogues(f"{dtype.name} {words}", problem)


def _epilogues(words: str, problem: Gemm) -> Iterator[tuple[str, Gemm]]:
    """Yield `problem` with all that may happen to its result: each bias and each activation, and all numbers."""
    for bias, activation in itertools.zip_longest(BIASES, ACTIVATIONS, fillvalue=""):
        finished = replace(problem, **TRIALS, bias=bias, activation=activation)
        yield f"{words} {', '.join(TRIALS)}, bias {bias or 'none'}, {activation or 'no activation'}", finished
