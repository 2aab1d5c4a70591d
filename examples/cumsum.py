"""An op from outside the package: y[i, j] = x[i, 0] + … + x[i, j], the cumulative sums of each row.

    webmm bench --plugin examples/cumsum.py --op cumsum --sizes 4096x1024

Three classes define it: the problem, the op, and a stage, whose WGSL template is one_by_one.wgsl in the same folder.
Programs call `cumsum()`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import webmm
from webmm.cases.base import Size, Trial
from webmm.cases.streaming import Streamed, StreamingOp, drawn, spread
from webmm.dtypes import F32, MATRIX_DTYPES, DType, dtype_of
from webmm.errors import ProblemError
from webmm.kernels.base import Binding, Kernel, Params, Stored, ceil_div, fold, tunable
from webmm.problems.base import Extent, check_floats
from webmm.problems.divisible import Divisible
from webmm.wgsl.params import U32, member


@dataclass(frozen=True)
class Cumsum(Divisible):
    """y[i, j] ← Σ x[i, :j + 1] for rows of `length` elements; x and y are dense."""

    rows: int
    length: int
    dtype: DType

    op: ClassVar[str] = "cumsum"
    cuttable: ClassVar[tuple[str, ...]] = ("rows",)

    def __post_init__(self) -> None:
        check_floats("cumsum", self.dtype)
        if min(self.rows, self.length) < 1:
            raise ProblemError(f"cumsum takes at least one row and one column, not {self.rows}x{self.length}")

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return self.rows, self.length, 1, 1

    @property
    def axes(self) -> tuple[tuple[str, ...], ...]:
        return ("rows", "length"), ("rows", "length")

    def cut(self, axis: str, start: int, length: int) -> Cumsum:
        return replace(self, rows=length)

    def buffers(self) -> tuple[Extent, ...]:
        count = self.rows * self.length
        return Extent("x", self.dtype, count), Extent("y", self.dtype, count, written=True)

    @property
    def flops(self) -> int:
        return self.rows * self.length

    @property
    def bytes(self) -> int:
        return 2 * self.rows * self.length * self.dtype.itemsize

    def __str__(self) -> str:
        return f"cumsum of {self.rows}x{self.length} {self.dtype.name}"


def rounding(p: Cumsum) -> float:
    """Return the error bound of a sum, as a multiple of Σ|x|: sequential additions, then rounding to the dtype of y."""
    return p.length * F32.eps / 2 + (p.dtype.eps if p.dtype != F32 else 0.0)


class CumsumCase(Streamed[Cumsum]):
    """An input array, and the expected sums of some of its rows."""

    scale = "·Σ|x|"

    def __init__(self, device: webmm.Device, problem: Cumsum) -> None:
        self.problem = problem
        self.x = drawn(problem.rows * problem.length, problem.dtype).reshape(problem.rows, problem.length)
        self.inputs = {"x": device.array(self.x)}
        self.checked = spread(problem.rows, problem.length)

    @property
    def bound(self) -> float:
        return rounding(self.problem)

    def at_checked(self, got: NDArray[Any]) -> NDArray[np.float64]:
        return got.reshape(self.x.shape)[self.checked].astype(np.float64)

    @functools.cached_property
    def expected(self) -> NDArray[np.float64]:
        return self.at_checked(self.x).cumsum(axis=1)

    @functools.cached_property
    def unit(self) -> NDArray[np.float64]:
        return np.abs(self.at_checked(self.x)).cumsum(axis=1) + self.problem.dtype.tiny / self.problem.dtype.eps

    def numpy(self) -> NDArray[Any]:
        return self.in_f32.cumsum(axis=1)


@webmm.register
class CumsumOp(StreamingOp[Cumsum]):
    """Cumulative sums of each row."""

    name = "cumsum"
    tried = (((64, 100, 1), "nn"), ((3, 1025, 1), "nn"))

    def along(self, size: Size, dtype: DType) -> Cumsum:
        rows, length, inner = size
        if inner != 1:
            raise ProblemError("cumsum supports the last axis only")
        return Cumsum(rows, length, dtype)

    def case(self, device: webmm.Device, problem: Cumsum) -> CumsumCase:
        return CumsumCase(device, problem)

    def reference(self, problem: Cumsum, row: Sequence[float]) -> list[tuple[float, float]]:
        total, size, sums = 0.0, 0.0, []
        for x in row:
            total, size = total + x, size + abs(x)
            sums.append((total, size))
        return sums

    def bound(self, problem: Cumsum) -> float:
        return rounding(problem)

    def stand_ins(self, kernel: Kernel[Any], problem: Cumsum) -> Iterator[Cumsum]:
        # Rows of the same length, since a driver may end long loops early; more rows than a workgroup has invocations.
        yield replace(problem, rows=min(problem.rows, kernel.invocations + 1))

    def trial(self, problem: Cumsum) -> Trial:
        x = np.random.default_rng(0).integers(1, 4, (problem.rows, problem.length)) / 4.0  # sums of these are exact
        y = x.cumsum(axis=1)
        return Trial({"x": x.ravel()}, y, problem.dtype.eps * y if problem.dtype != F32 else 0.0)

    def examples(self) -> Iterator[tuple[str, Cumsum]]:
        for dtype in MATRIX_DTYPES:
            yield dtype.name, Cumsum(64, 1000, dtype)


@dataclass(frozen=True)
class CumsumParams:
    """The uniform."""

    rows: U32 = member("rows of x and y")
    length: U32 = member("elements of a row")

    @classmethod
    def of(cls, p: Cumsum) -> CumsumParams:
        return cls(p.rows, p.length)


@webmm.register
@dataclass(frozen=True)
class OneByOne(Kernel[Cumsum]):
    """One invocation per row, which adds the elements one by one."""

    name = "one_by_one"
    op = "cumsum"
    follows = ""
    summary = "one invocation per row"
    params: ClassVar[type[Params]] = CumsumParams

    size: int = tunable(32, (8, 32, 64, 128), "rows per workgroup, one per invocation")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        return (self.size, 1, 1)

    def bindings(self, spec: Stored) -> Iterator[Binding]:
        yield Binding(1, "x", "read-only-storage", spec.dtype.array(False))
        yield Binding(2, "y", "storage", spec.out_dtype.array(False, shared=True))

    def dispatch(self, problem: Cumsum) -> tuple[int, int, int]:
        return fold(ceil_div(problem.rows, self.size))

    def iterations(self, problem: Cumsum) -> int:
        return problem.length

    def choices(self, problem: Cumsum) -> Stored:
        return Stored(problem.dtype, problem.dtype)


def cumsum(x: Any, **where: Any) -> Any:
    """Return the cumulative sums of each row of an array x (rows, length), of its kind and dtype.

    `device=` and `devices=` as in webmm's calls.
    """
    return webmm.compute(Cumsum(*x.shape, dtype_of(x.dtype)), x, **where)
