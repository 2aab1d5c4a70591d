"""Ladders of other ops than products of floats, ready for a page that knows neither their tiles nor their arithmetic.

`bundle/prepared.json` lists problems: how their inputs are made, which dispatches each stage takes, with the words of
the uniform and the workgroup counts, and the fingerprint of the result. Inputs are integers out of a hash that
JavaScript has, too (`web/prepared.js`), small enough that every result is exact, sums of floats among them: one number
then tells whether all of a result is right, and no data travels.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm import quantized
from webmm.dtypes import F16, F32, I8, U8, DType
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel, Scratch
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.operations import operation_of
from webmm.ops.quantized import scheme_of
from webmm.ops.reduce import DEFAULT_SIZES
from webmm.problem import Operand, Problem
from webmm.quantization import limits, reference
from webmm.reduction import reduction
from webmm.render import params_bytes, render

Integers = NDArray[np.int32]
Words = NDArray[np.uint32]

SEED_STEP = 0x9E3779B9  # between the seeds of a problem's inputs
PACKED_DOT = "packed_4x8_integer_dot_product"  # the language feature that has dot4U8Packed and dot4I8Packed

# What a software adapter runs in place of a stage's default: it has few lanes, and compiles slowly.
LIGHT: dict[str, Kernel[Any]] = {
    kernel.name: kernel
    for kernel in (
        *(PerRow(8), Vectorized(8, 2), Tree(32, 1), Subgroup(32, 2), Alone(4, 2), TwoPass(32, 1, 2)),
        *(Columns(8, 4, 2), ColumnsTwoPass(8, 2, 1, 2)),
        quantized.CPU,
    )
}

# The first size is small: on it a page finds out which stages would take too long on a large one.
Size = tuple[int, ...]
ROWS: dict[str, tuple[Size, ...]] = {
    "gpu": ((64, 1024), *(size[:2] for size in DEFAULT_SIZES[:4])),
    "cpu": ((61, 1001), (64, 4096), (512, 8192)),
}
SIDES: dict[str, tuple[Size, ...]] = {"gpu": ((128,), (512,), (1024,), (2048,)), "cpu": ((61,), (128,), (256,))}

# Sums of integers between these over the longest rows are exact: below 2^24 for float32, 2^11 for float16.
SUMMED = {F32: (-128, 127), F16: (-1, 1)}
COMPARED = (-(2**23), 2**23 - 1)


@dataclass(frozen=True)
class Input:
    """An array of `count` integers between `low` and `high`, stored as `dtype`."""

    name: str
    dtype: DType
    count: int
    seed: int
    low: int
    high: int

    @property
    def integers(self) -> Integers:
        """The integers."""
        drawn = mix(np.arange(self.count, dtype=np.uint32) + np.uint32(self.seed * SEED_STEP % 2**32))
        above = drawn % np.uint32(self.high - self.low + 1)
        return np.asarray(above.astype(np.int32) + np.int32(self.low))


@dataclass(frozen=True)
class Case:
    """A problem with its inputs, and what becomes of their integers."""

    problem: Problem
    inputs: tuple[Input, ...]
    compute: Callable[..., NDArray[Any]]

    @property
    def expected(self) -> NDArray[Any]:
        """The result as its buffer holds it; raises ConfigError where its type would round it."""
        (written,) = (extent.dtype for extent in self.problem.buffers() if extent.written)
        exact = self.compute(*(each.integers for each in self.inputs))
        stored = exact.astype(written.numpy)
        if not np.array_equal(stored, exact):
            raise ConfigError(f"{self.problem} of these integers is no {written.name}")
        return stored


@dataclass(frozen=True, eq=False)
class Ladder:
    """The stages of an op on problems of one kind; `sizes` are by the kind of adapter."""

    title: str
    op: str
    case: Callable[[Size, DType], Case]
    sizes: dict[str, tuple[Size, ...]]
    dtypes: tuple[DType, ...]

    @functools.cache  # noqa: B019 (the ladders live as long as the module)
    def fingerprint(self, size: Size, dtype: DType) -> int:
        """Return that of the result."""
        return fingerprint(self.case(size, dtype).expected)


def mix(x: Words) -> Words:
    """Return a hash of each word (Wellons' lowbias32)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)), np.uint32)


def fingerprint(result: NDArray[Any]) -> int:
    """Return 32 bits that depend on the bits and the place of every element."""
    bits = result.reshape(-1).view(f"u{result.itemsize}").astype(np.uint32)
    return int(mix(bits ^ mix(np.arange(bits.size, dtype=np.uint32))).sum(dtype=np.uint32))


def reduced(operation: str, size: Size, dtype: DType) -> Case:
    """Return the reduction of each row of a matrix."""
    rows, length = size
    problem = reduction(rows, length, operation, dtype=dtype)
    low, high = SUMMED[dtype] if operation_of(operation).sums else COMPARED
    drawn = Input("x", dtype, rows * length, 1, low, high)
    return Case(problem, (drawn,), lambda x: operation_of(operation).reference(x.reshape(rows, length)))


def multiplied(size: Size, dtype: DType) -> Case:
    """Return a product of matrices of 8-bit integers, with a zero point and a scale for each matrix."""
    (n,) = size
    scheme = scheme_of(1, n, dtype, dtype, dtype)
    problem, _ = quantized.describe(n, n, n, (dtype, Operand(n)), (dtype, Operand(n)), scheme, dtype)
    inputs = tuple(Input(name, dtype, n * n, seed, *limits(dtype)) for seed, name in enumerate("ab", 1))

    def compute(a: Integers, b: Integers) -> NDArray[Any]:
        a_q, b_q = (x.reshape(n, n).astype(dtype.numpy) for x in (a, b))
        return reference(a_q, b_q, scheme, dtype)

    return Case(problem, inputs, compute)


def _rows(title: str, operation: str, *dtypes: DType) -> Ladder:
    return Ladder(title, "reduce", functools.partial(reduced, operation), ROWS, dtypes)


LADDERS = (
    Ladder("Products of 8-bit integers", "quantized", multiplied, SIDES, (U8, I8)),
    _rows("Sums of rows", "sum", F32, F16),
    _rows("Maxima of rows", "max", F32),
    _rows("Where rows have their maxima", "argmax", F32),
)


def kernels(ladder: Ladder, kind: str) -> Iterator[Kernel[Any]]:
    """Yield the stages as an adapter of that kind runs them, and what stands in where it lacks a builtin function."""
    for cls in STAGES[ladder.op].values():
        kernel = LIGHT.get(cls.name, cls()) if kind == "cpu" else cls()
        if isinstance(kernel, Packed):
            yield dataclasses.replace(kernel, dot="emulated")
        if not isinstance(kernel, Columns | ColumnsTwoPass):  # rows have no columns
            yield kernel


def index(add: Callable[[str], str]) -> dict[str, Any]:
    """Return what the page reads; `add` stores a shader's text and returns its name."""
    writer = _Writer(add)
    ladders = [
        {"title": ladder.title, **{kind: writer.problems(ladder, kind) for kind in ladder.sizes}} for ladder in LADDERS
    ]
    return {"ladders": ladders, "bindings": writer.bindings}


class _Writer:
    """Says in JSON types what a page runs, and stores the shaders meanwhile."""

    def __init__(self, add: Callable[[str], str]) -> None:
        self.add = add
        self.bindings: dict[str, list[dict[str, Any]]] = {}  # by shader

    def problems(self, ladder: Ladder, kind: str) -> list[dict[str, Any]]:
        return [self._problem(ladder, kind, size, dtype) for dtype in ladder.dtypes for size in ladder.sizes[kind]]

    def _problem(self, ladder: Ladder, kind: str, size: Size, dtype: DType) -> dict[str, Any]:
        case = ladder.case(size, dtype)
        problem = case.problem
        m, n, k, _ = problem.sizes
        (written,) = (extent for extent in problem.buffers() if extent.written)
        return {
            **{"op": ladder.op, "m": m, "n": n, "k": k, "dtype": dtype.name, "flops": problem.flops},
            "inputs": [{**dataclasses.asdict(each), "dtype": each.dtype.name} for each in case.inputs],
            "result": {"name": written.name, "count": written.end, "itemsize": written.dtype.itemsize},
            "fingerprint": ladder.fingerprint(size, dtype),
            "stages": [self._stage(kernel, problem) for kernel in kernels(ladder, kind)],
        }

    def _stage(self, kernel: Kernel[Any], problem: Problem) -> dict[str, Any]:
        dot = kernel.dot if isinstance(kernel, Packed) else ""
        sizes = zip(*(each.workgroup_size for each in kernel.dispatches), strict=True)
        return {
            "name": kernel.name,
            "label": f"{kernel.name} emulated" if dot == "emulated" else kernel.name,
            "summary": kernel.summary,
            "config": kernel.config,
            "features": sorted(
                render(kernel, problem, "tint").features | ({PACKED_DOT} if dot == "builtin" else set())
            ),
            "subgroup": max(each.subgroup for each in kernel.dispatches),
            "workgroup_size": [max(along) for along in sizes],
            "workgroup_bytes": max(each.workgroup_bytes for each in kernel.dispatches),
            "scratch": {left.name: left.nbytes for left in kernel.scratch(problem) if isinstance(left, Scratch)},
            "steps": [self._step(each, problem) for each in kernel.dispatches],
        }

    def _step(self, kernel: Kernel[Any], problem: Problem) -> dict[str, Any]:
        shader = render(kernel, problem, "tint")
        name = self.add(shader.wgsl)
        self.bindings[name] = [{"binding": b.binding, "name": b.name, "type": b.type} for b in shader.bindings]
        words = np.frombuffer(params_bytes(kernel, problem), "<u4").tolist()
        return {"shader": name, "params": words, "grid": kernel.dispatch(problem)}
