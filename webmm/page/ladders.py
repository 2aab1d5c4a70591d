"""Ladders beside that of products of floats, ready for a page that knows neither their tiles nor their arithmetic.

`bundle/prepared.json` lists problems: how their inputs are made, which dispatches each stage takes, with the words of
the uniform and the workgroup counts, and the fingerprint of the result. Inputs are integers out of a hash that
JavaScript has, too (`web/prepared.js`), small enough that every result is exact, sums of floats among them: one number
then tells whether all of a result is right, and no data travels.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.quantized import scheme_of
from webmm.cases.streaming import DEFAULT_SIZES
from webmm.choose import gemm as choose_gemm
from webmm.choose import quantized, weights
from webmm.choose import reduce as choose_reduce
from webmm.dtypes import F16, F32, I8, U8, DType
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.kernels.base import Capabilities, Kernel, Scratch
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.quantized.matrix_unit import MatrixUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import Operand
from webmm.problems.quantized import Quantized, describe
from webmm.problems.reduce import Reduction, operation_of, reduction
from webmm.problems.scheme import limits, reference
from webmm.problems.weights import BLOCKS, BlockWeights, WeightOnly
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
        *(Vector(lanes=8, tm=2), Tiles(bm=32, bn=32, bk=8, tm=4, tn=4, unroll=1)),
        quantized.CPU,
    )
}
# What a GPU runs in place of defaults where Python would not choose the stage: best of 512×8192 and 128×32768 (H200).
GPU: dict[str, Kernel[Any]] = {kernel.name: kernel for kernel in (Vectorized(32, 8), TwoPass(128, 4, 4))}
# Fragments of bytes that engines let shaders multiply, with the lanes of a subgroup: on GPUs of NVIDIA, of Intel.
FRAGMENTS: tuple[dict[str, Any], ...] = (
    {"fm": 16, "fn": 16, "fk": 32, "lanes": 32},
    {"fm": 8, "fn": 16, "fk": 32, "lanes": 16},
)
_TILES: dict[str, Any] = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4}
THIN_KERNELS: dict[str, tuple[Kernel[Any], ...]] = {
    "gpu": (Naive(), Pipelined(), SplitK(slices=2, splits=16), Gemv()),
    "cpu": (Naive(), Pipelined(**_TILES, unroll=1), SplitK(**_TILES, unroll=1, slices=1, splits=4), Gemv(8, 4)),
}

# The first size is small: on it a page finds out which stages would take too long on a large one.
Size = tuple[int, ...]
ROWS: dict[str, tuple[Size, ...]] = {
    "gpu": ((64, 1024), *(size[:2] for size in DEFAULT_SIZES[:4])),
    "cpu": ((61, 1001), (64, 4096), (512, 8192)),
}
SIDES: dict[str, tuple[Size, ...]] = {"gpu": ((128,), (512,), (1024,), (2048,)), "cpu": ((61,), (128,), (256,))}
THIN: dict[str, tuple[Size, ...]] = {
    "gpu": ((1, 1024, 1024), (1, 4096, 4096), (4096, 1, 4096), (8, 4096, 4096), (64, 64, 65536)),
    "cpu": ((1, 61, 259), (1, 512, 1024), (512, 1, 1024), (32, 32, 4096)),
}
LAYERS: dict[str, tuple[Size, ...]] = {
    "gpu": ((1, 1024, 1024), (1, 4096, 4096), (8, 4096, 4096), (64, 4096, 4096)),
    "cpu": ((3, 33, 65), (1, 512, 512), (8, 256, 512)),
}

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
    def start(self) -> int:
        """What the hash takes for the first element; for the others, the words that follow."""
        return self.seed * SEED_STEP % 2**32

    @property
    def integers(self) -> Integers:
        """The integers."""
        return _draw(self.count, self.start, self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """Return what JavaScript draws the integers by."""
        kept = {"count": self.count, "start": self.start, "low": self.low, "high": self.high}
        return {"name": self.name, "dtype": self.dtype.name, **kept}


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
    """The stages of an op on problems of one kind; `kernels` and `sizes` are by the kind of adapter."""

    title: str
    kernels: dict[str, tuple[Kernel[Any], ...]]
    case: Callable[[Size, DType], Case]
    sizes: dict[str, tuple[Size, ...]]
    dtypes: tuple[DType, ...]

    def stages(self, kind: str, problem: Problem) -> list[Kernel[Any]]:
        """Return the stages for a problem: on a GPU with the settings with which Python would choose them there."""
        if kind != "gpu":
            return list(self.kernels[kind])
        made = list(made_for_gpus(problem))
        return [_as_made(kernel, made, problem) for kernel in self.kernels[kind]]

    @functools.cache  # noqa: B019 (the ladders live as long as the module)
    def fingerprint(self, size: Size, dtype: DType) -> int:
        """Return that of the result."""
        return fingerprint(self.case(size, dtype).expected)


def mix(x: Words) -> Words:
    """Return a hash of each word (Wellons' lowbias32)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)), np.uint32)


@functools.lru_cache(maxsize=2)
def _draw(count: int, start: int, low: int, high: int) -> Integers:
    drawn = mix(np.arange(count, dtype=np.uint32) + np.uint32(start))
    return np.asarray((drawn % np.uint32(high - low + 1)).astype(np.int32) + np.int32(low))


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
    problem, _ = describe(n, n, n, (dtype, Operand(n)), (dtype, Operand(n)), scheme, dtype)
    inputs = tuple(Input(name, dtype, n * n, seed, *limits(dtype)) for seed, name in enumerate("ab", 1))

    def compute(a: Integers, b: Integers) -> NDArray[Any]:
        a_q, b_q = (x.reshape(n, n).astype(dtype.numpy) for x in (a, b))
        return reference(a_q, b_q, scheme, dtype)

    return Case(problem, inputs, compute)


def thin(size: Size, dtype: DType) -> Case:
    """Return a product of floats."""
    m, n, k = size
    inputs = tuple(
        Input(name, dtype, count, seed, -8, 7) for seed, (name, count) in enumerate((("a", m * k), ("b", k * n)))
    )
    return Case(gemm(m, n, k, dtype=dtype), inputs, lambda a, b: _product(a.reshape(m, k), b.reshape(k, n)))


def weighted(size: Size, dtype: DType) -> Case:
    """Return a product with weights of 4 bits, each block with its zero point, all scales one."""
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
        return _product(a.reshape(m, k), BlockWeights((k, n), 4, block, words, *parts).dequantize())

    return Case(problem, inputs, compute)


def _product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


def _stages(op: str, *absent: str) -> dict[str, tuple[Kernel[Any], ...]]:
    """Return an op's stages by the kind of adapter, after what stands in for those that need a builtin function.

    One for matrix units comes for each kind of fragments, and one of a single subgroup for two sizes of it.
    """

    def variants(kernel: Kernel[Any]) -> Iterator[Kernel[Any]]:
        if isinstance(kernel, Packed):
            yield dataclasses.replace(kernel, dot="emulated")
        if kernel == Alone():
            yield Alone(32)  # all lanes of most GPUs' subgroups; the default serves the others
        if isinstance(kernel, MatrixUnit):
            yield from (dataclasses.replace(kernel, **fragment) for fragment in FRAGMENTS)
        else:
            yield kernel

    classes = [cls for name, cls in STAGES[op].items() if name not in absent]
    usual = {"gpu": GPU, "cpu": LIGHT}
    chosen = {kind: [kernels.get(cls.name) or cls() for cls in classes] for kind, kernels in usual.items()}
    return {kind: tuple(itertools.chain(*map(variants, kernels))) for kind, kernels in chosen.items()}


def made_for_gpus(problem: Problem) -> Iterable[Kernel[Any]]:
    """Return what Python chooses among for `problem` on a GPU that it knows nothing of, with and without subgroups."""
    if isinstance(problem, Reduction):
        return [kernel for lanes in (32, 0) for kernel in choose_reduce.made_for_gpus(problem, lanes)]
    if isinstance(problem, Quantized):
        return quantized.made_for_gpus(problem)
    if isinstance(problem, WeightOnly):
        return weights.made_for_gpus(problem)
    return choose_gemm.made_for_gpus(problem) if isinstance(problem, Gemm) else ()


def made_for_matrix_units() -> Iterator[Kernel[Any]]:
    """Yield the stages of all ladders that use matrix units."""
    kernels = (kernel for ladder in LADDERS for kernel in ladder.kernels["gpu"])
    return (kernel for kernel in kernels if kernel.matrix_shape)


def _as_made(kernel: Kernel[Any], made: list[Kernel[Any]], problem: Problem) -> Kernel[Any]:
    if isinstance(kernel, MatrixUnit) and isinstance(problem, Quantized):
        return _on_its_units(kernel, problem)
    alike = next((each for each in made if type(each) is type(kernel)), kernel)
    if isinstance(alike, Packed) and isinstance(kernel, Packed):
        return dataclasses.replace(alike, dot=kernel.dot)
    return alike


def _on_its_units(kernel: MatrixUnit, problem: Quantized) -> Kernel[Any]:
    """Return the stage as Python would run it on a device that has its very fragments."""
    units = frozenset({kernel.matrix_shape})
    device = Capabilities("", {}, frozenset(), subgroup_size=kernel.lanes, matrix_shapes=units)
    return next(iter(quantized.made_for_matrix_units(problem, device)), kernel)


def matrix(kernel: Kernel[Any]) -> dict[str, Any] | None:
    """Return what matrix units must multiply, and how the shader spells it; None for a kernel that uses none."""
    if (shape := kernel.matrix_shape) is None:
        return None
    return {**dataclasses.asdict(shape), "lanes": kernel.subgroup, "spelling": kernel.config["spelling"]}


_ROWS = _stages("reduce", "columns", "columns_two_pass")  # rows have no columns
LADDERS = (
    Ladder("Thin products of floats", THIN_KERNELS, thin, THIN, (F32,)),
    Ladder("Products of 8-bit integers", _stages("quantized"), multiplied, SIDES, (U8, I8)),
    Ladder("Products with 4-bit weights", _stages("weights"), weighted, LAYERS, (F32,)),
    Ladder("Sums of rows", _ROWS, functools.partial(reduced, "sum"), ROWS, (F32, F16)),
    Ladder("Maxima of rows", _ROWS, functools.partial(reduced, "max"), ROWS, (F32,)),
    Ladder("Where rows have their maxima", _ROWS, functools.partial(reduced, "argmax"), ROWS, (F32,)),
)


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
            **{"op": problem.op, "variant": problem.variant, "m": m, "n": n, "k": k, "dtype": dtype.name},
            "flops": problem.flops,
            "inputs": [each.to_json() for each in case.inputs],
            "result": {"name": written.name, "count": written.end, "itemsize": written.dtype.itemsize},
            "fingerprint": ladder.fingerprint(size, dtype),
            "stages": [self._stage(kernel, problem) for kernel in ladder.stages(kind, problem)],
        }

    def _stage(self, kernel: Kernel[Any], problem: Problem) -> dict[str, Any]:
        dot = getattr(kernel, "dot", "")
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
            "matrix": matrix(kernel),
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
