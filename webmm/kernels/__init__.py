"""The kernels: frozen dataclasses of tile sizes, each beside a WGSL template of the same name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from webmm.errors import ConfigError
from webmm.kernels.base import Kernel
from webmm.kernels.elementwise.map import Map
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.persistent import Persistent
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.gemm.subgroup import Subgroup as SubgroupTiled
from webmm.kernels.gemm.tile_1d import Tile1D
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.vectorized import Vectorized
from webmm.kernels.gemm.workgroup_1d import Workgroup1D
from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.quantized.base import QuantizedKernel
from webmm.kernels.quantized.matrix_unit import MatrixUnit as ByteMatrixUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.kernels.reduce.base import ReduceKernel
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.serial import Serial
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized as VectorizedRows
from webmm.kernels.weights.base import WeightKernel
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.records import Record

# In the order of the ladder: each stage changes one thing about the one before it.
LADDER: tuple[type[GemmKernel], ...] = (
    Naive,
    Workgroup1D,
    Workgroup2D,
    Tile1D,
    Tile2D,
    Shared,
    Vectorized,
    Blocked,
    Pipelined,
    Persistent,
    SplitK,
    Gemv,
    SubgroupTiled,
    CpuLanes,
    CpuTexture,
)
BEYOND: tuple[type[GemmKernel], ...] = (MatrixUnit,)  # what needs hardware that few devices offer to shaders
KERNELS: dict[str, type[GemmKernel]] = {kernel.name: kernel for kernel in (*LADDER, *BEYOND)}
QUANTIZED: tuple[type[QuantizedKernel], ...] = (Unpacked, Packed, ByteMatrixUnit)
REDUCTIONS: tuple[type[ReduceKernel], ...] = (
    Serial,
    PerRow,
    VectorizedRows,
    Tree,
    Subgroup,
    Alone,
    TwoPass,
    Columns,
    ColumnsTwoPass,
)
WEIGHTS: tuple[type[WeightKernel], ...] = (Vector, Tiles)
STAGES: dict[str, Mapping[str, type[Kernel[Any]]]] = {  # of every op, by name
    "gemm": KERNELS,
    "quantized": {kernel.name: kernel for kernel in QUANTIZED},
    "weights": {kernel.name: kernel for kernel in WEIGHTS},
    "reduce": {kernel.name: kernel for kernel in REDUCTIONS},
    "normalise": {Rows.name: Rows, Strips.name: Strips},
    "elementwise": {Map.name: Map},
}


def kernel_class(name: str, op: str = "gemm") -> type[Any]:
    """Return the op's kernel class called `name`; raises ConfigError for an unknown one, listing those that exist."""
    if op not in STAGES:
        raise ConfigError(f"unknown op {op!r}; choose from {', '.join(STAGES)}")
    if name not in STAGES[op]:
        raise ConfigError(f"unknown kernel {name!r}; choose from {', '.join(STAGES[op])}")
    return STAGES[op][name]


def label_of(record: Record) -> str:
    """Return the kernel of a record and whatever is set in its config besides the defaults."""
    if record.kernel not in STAGES.get(record.op, ()):
        return record.kernel
    default = STAGES[record.op][record.kernel]().config
    changed = [f"{name}={value}" for name, value in record.config.items() if default.get(name) != value]
    return " ".join([record.kernel, *changed])


def configure(name: str, settings: Mapping[str, str], op: str = "gemm") -> Any:
    """Return the op's kernel called `name` with tunables set from text, such as {"bm": "64"}.

    Raises ConfigError for an unknown op, kernel or tunable, and for a value that is not one of the field's type.
    """
    cls = kernel_class(name, op)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values: dict[str, object] = {}
    for key, text in settings.items():
        if key not in fields:
            known = ", ".join(fields) or "it has none"
            raise ConfigError(f"{name} has no tunable {key!r}; its tunables: {known}")
        values[key] = _parse(f"{name}.{key}", text, fields[key].default)
    return cls(**values)


def _parse(name: str, text: str, default: object) -> object:
    if not isinstance(default, int):
        return text
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"{name} takes an integer, not {text!r}") from error
