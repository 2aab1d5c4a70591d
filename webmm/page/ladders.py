"""The page's ladders other than the float GEMM ladder: problems with known results.

`bundle/ladders.js` lists them, with the parameters of their inputs, the kernels of the ladder, and the fingerprint of
the result (`webmm.page.exact`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from webmm.cases.streaming import DEFAULT_SIZES
from webmm.choose import COLUMNS, adapted, quantized
from webmm.choose import gemm as choose_gemm
from webmm.dtypes import F16, F32, F64, I8, U8, DType
from webmm.kernels import STAGES
from webmm.kernels.base import Capabilities, Kernel
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.slices import Slices, Software
from webmm.kernels.gemm.slices_unit import SlicesUnit
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.quantized.matrix_unit import MatrixUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.kernels.weights.cpu_lanes import CpuLanes
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.page.exact import ExactCase, Size, fingerprint, multiplied, reduced, thin, weighted
from webmm.page.script import runtime
from webmm.page.script.program import Program
from webmm.page.script.values import value
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm
from webmm.problems.reduce import Reduction

# Settings for software adapters instead of a stage's default: these have few lanes and compile slowly.
LIGHT: dict[str, Kernel[Any]] = {
    kernel.name: kernel
    for kernel in (
        *(PerRow(8), Vectorized(8, 2), Tree(32, 1), Subgroup(32, 2), Alone(4, 2), TwoPass(32, 1, 2)),
        *(Vector(lanes=8, tm=2), Tiles(bm=32, bn=32, bk=8, tm=4, tn=4, unroll=1), CpuLanes(4, 4, 8)),
        quantized.CPU,
    )
}
# Settings for GPUs if Python would not choose the stage: the fastest at 512×8192 and 128×32768 on an H200.
GPU: dict[str, Kernel[Any]] = {kernel.name: kernel for kernel in (Vectorized(32, 8), TwoPass(128, 4, 4))}
# Shapes of 8-bit matrix-unit fragments, with the subgroup size in lanes: NVIDIA, Intel.
FRAGMENTS: tuple[dict[str, Any], ...] = (
    {"fm": 16, "fn": 16, "fk": 32, "lanes": 32},
    {"fm": 8, "fn": 16, "fk": 32, "lanes": 16},
)
_TILES: dict[str, Any] = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4}
THIN_KERNELS: dict[str, tuple[Kernel[Any], ...]] = {
    "gpu": (Naive(), Pipelined(), SplitK(slices=2, splits=16), Gemv()),
    "cpu": (Naive(), Pipelined(**_TILES, unroll=1), SplitK(**_TILES, unroll=1, slices=1, splits=4), Gemv(8, 4)),
}
DOUBLE_KERNELS: dict[str, tuple[Kernel[Any], ...]] = {
    "gpu": (Software(), choose_gemm.SLICES, *(SlicesUnit(**fragment) for fragment in FRAGMENTS)),
    "cpu": (Software(), Slices()),
}

# The first size is small: the page uses it to find stages that would take too long on a large one.
ROWS: dict[str, tuple[Size, ...]] = {
    "gpu": ((64, 2048), *(size[:2] for size in DEFAULT_SIZES[:4])),
    "cpu": ((61, 1001), (64, 4096), (512, 8192)),
}
SIDES: dict[str, tuple[Size, ...]] = {"gpu": ((128,), (512,), (1024,), (2048,)), "cpu": ((61,), (128,), (256,))}
DOUBLE: dict[str, tuple[Size, ...]] = {
    "gpu": ((128, 128, 128), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048)),
    "cpu": ((61, 61, 61), (128, 128, 128)),
}
THIN: dict[str, tuple[Size, ...]] = {
    "gpu": ((1, 1024, 1024), (1, 4096, 4096), (4096, 1, 4096), (8, 4096, 4096), (64, 64, 65536)),
    "cpu": ((1, 61, 259), (1, 512, 1024), (512, 1, 1024), (32, 32, 4096)),
}
LAYERS: dict[str, tuple[Size, ...]] = {
    "gpu": ((1, 1024, 1024), (1, 4096, 4096), (8, 4096, 4096), (64, 4096, 4096)),
    "cpu": ((3, 33, 65), (1, 512, 512), (8, 256, 512)),
}


@dataclass(frozen=True, eq=False)
class Ladder:
    """The stages of an op on problems of one kind; `kernels` and `sizes` are keyed by the kind of adapter."""

    title: str
    kernels: dict[str, tuple[Kernel[Any], ...]]
    case: Callable[[Size, DType], ExactCase]
    sizes: dict[str, tuple[Size, ...]]
    dtypes: tuple[DType, ...]
    others: tuple[str, ...] = ()  # stages that the Explain panel shows besides

    def stages(self, kind: str, problem: Problem) -> list[Kernel[Any]]:
        """Return the stages for a problem, for a GPU with the settings that Python would choose."""
        if kind != "gpu":
            return list(self.kernels[kind])
        made = list(made_for_gpus(problem))
        return [_as_chosen(kernel, made, problem) for kernel in self.kernels[kind]]

    @functools.cache  # noqa: B019 (the ladders live as long as the module)
    def fingerprint(self, size: Size, dtype: DType) -> int:
        """Return the fingerprint of the expected result."""
        return fingerprint(self.case(size, dtype).expected)


def _stages(op: str, *absent: str) -> dict[str, tuple[Kernel[Any], ...]]:
    """Return an op's stages by the kind of adapter, without those in `absent`.

    A stage with a dot-product builtin comes after its emulated variant, the stage for matrix units once for each
    fragment shape, and the stage of a single subgroup for two subgroup sizes.
    """

    def variants(kernel: Kernel[Any]) -> Iterator[Kernel[Any]]:
        if isinstance(kernel, Packed):
            yield dataclasses.replace(kernel, dot="emulated")
        if kernel == Alone():
            yield Alone(32)  # the subgroup size of most GPUs; the default serves the others
        if isinstance(kernel, MatrixUnit):
            yield from (dataclasses.replace(kernel, **fragment) for fragment in FRAGMENTS)
        else:
            yield kernel

    classes = [cls for name, cls in STAGES[op].items() if name not in absent]
    usual = {"gpu": GPU, "cpu": LIGHT}
    chosen = {kind: [kernels.get(cls.name) or cls() for cls in classes] for kind, kernels in usual.items()}
    return {kind: tuple(itertools.chain(*map(variants, kernels))) for kind, kernels in chosen.items()}


def made_for_gpus(problem: Problem) -> Iterable[Kernel[Any]]:
    """Return Python's candidates for `problem` on an unknown GPU, with and without subgroups."""
    if isinstance(problem, Reduction):
        able = [Capabilities("", {}, frozenset(), subgroup_size=lanes) for lanes in (32, 0)]
        return [kernel for each in able for kernel in predicted(problem, each)]
    if isinstance(problem, Gemm) and problem.dtype == F64:  # browsers lack float64: emulated with integers
        return choose_gemm.made_of_integers(problem, "gpu", Capabilities("", {}, frozenset()))
    return predicted(problem, Capabilities("", {}, frozenset(), subgroup_size=32))


def predicted(problem: Problem, able: Capabilities) -> list[Kernel[Any]]:
    """Return the kernels of an op's field on a typical GPU, the one with the shortest predicted time first."""
    device: Any = SimpleNamespace(info=SimpleNamespace(kind="discrete"), capabilities=able)
    model = adapted.typical(device)
    field = COLUMNS[problem.op].field(problem, device, model.machine.multiprocessors)
    return [kernel for kernel, _, _ in model.best(field, problem)]


def _as_chosen(kernel: Kernel[Any], made: list[Kernel[Any]], problem: Problem) -> Kernel[Any]:
    if isinstance(kernel, MatrixUnit | SlicesUnit):
        return _for_fragment_shape(kernel, problem)
    same_stage = next((each for each in made if type(each) is type(kernel)), kernel)
    if isinstance(same_stage, Packed) and isinstance(kernel, Packed):
        return dataclasses.replace(same_stage, dot=kernel.dot)
    if isinstance(same_stage, Alone) and isinstance(kernel, Alone):
        return dataclasses.replace(same_stage, lanes=kernel.lanes)
    return same_stage


def _for_fragment_shape(kernel: MatrixUnit | SlicesUnit, problem: Problem) -> Kernel[Any]:
    """Return the stage with the settings that Python would choose on a device with exactly its fragment shape."""
    units = frozenset({kernel.matrix_shape})
    device = Capabilities("", {}, frozenset(), subgroup_size=kernel.lanes, matrix_shapes=units)
    made: Iterable[Kernel[Any]] = ()
    if isinstance(problem, Gemm):
        made = choose_gemm.made_of_integers(problem, "gpu", device)
    else:
        made = predicted(problem, device)
    return next((each for each in made if type(each) is type(kernel)), kernel)


# Without the stages for columns, and for rows of up to 1,024 elements.
_ROWS = _stages("reduce", "columns", "columns_two_pass", "row_tiles")
LADDERS = (
    Ladder("Matrix product, thin matrices", THIN_KERNELS, thin, THIN, (F32,)),
    Ladder("Matrix product, float64", DOUBLE_KERNELS, thin, DOUBLE, (F64,)),
    Ladder("Matrix product, 8-bit integers", _stages("quantized"), multiplied, SIDES, (U8, I8)),
    Ladder(
        "Matrix product, 4-bit weights", _stages("weights", "matrix_unit"), weighted, LAYERS, (F32,), ("matrix_unit",)
    ),
    Ladder("Row sums", _ROWS, functools.partial(reduced, "sum"), ROWS, (F32, F16)),
    Ladder("Row maxima", _ROWS, functools.partial(reduced, "max"), ROWS, (F32,)),
    Ladder("Row argmax", _ROWS, functools.partial(reduced, "argmax"), ROWS, (F32,)),
)


def module(program: Program) -> str:
    """Return a JavaScript module of the ladders, with problems and kernels as exported by `program`."""

    def text(x: Any) -> str:
        return value(x, lambda name: f"core.{program.identifier(name)}", "")

    def problem(ladder: Ladder, kind: str, size: Size, dtype: DType) -> str:
        case = ladder.case(size, dtype)
        fields = {
            "problem": text(case.problem),
            "inputs": json.dumps([each.to_json() for each in case.inputs]),
            "fingerprint": text(ladder.fingerprint(size, dtype)),
            "kernels": text(ladder.stages(kind, case.problem)),
        }
        return f"{{ {', '.join(f'{name}: {each}' for name, each in fields.items())} }}"

    def problems(ladder: Ladder, kind: str) -> str:
        return ",\n".join(problem(ladder, kind, size, dtype) for dtype in ladder.dtypes for size in ladder.sizes[kind])

    rows = (
        f"{{ title: {text(ladder.title)}, others: {text(ladder.others)}, "
        + ", ".join(f"{kind}: [{problems(ladder, kind)}]" for kind in ladder.sizes)
        + " }"
        for ladder in LADDERS
    )
    head = 'import * as $ from "../python.js";\nimport * as core from "./core.js";\n'
    return runtime.imported(head + "export default [\n" + ",\n".join(rows) + "\n];\n")
