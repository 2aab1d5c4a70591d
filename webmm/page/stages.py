"""The float GEMM stages that the page offers, with their settings.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from webmm.choose import cpu, tuned
from webmm.choose import gemm as choose_gemm
from webmm.choose.field import F32_UNIT_TILES, UNIT_TILES
from webmm.kernels import STAGES
from webmm.kernels.base import Capabilities
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.matrix_unit import MatrixUnit, MatrixUnitF32
from webmm.kernels.gemm.subgroup import Subgroup
from webmm.problems.gemm import gemm

# Tunables that the page offers in all combinations, and their limits there: those that a picture of a tile can show,
# within a few megabytes. The others are varied one at a time from their default.
PICTURED = ("size", "tile", "bm", "bn", "bk", "tm", "tn", "wx", "wy", "lanes")
LARGEST = {"bk": 16, "tn": 8}
LARGEST_WORKGROUP = 1024  # invocations: the maximum of GPUs
UNITS_PICTURED = ("bm", "bn", "sm", "sn")  # those of stages for matrix units
OF_DEVICE = ("fm", "fn", "fk", "lanes", "spelling")  # tunables of these that the adapter and the engine decide

# Software adapters take up to a minute to compile large register tiles; the page uses these settings on them.
LIGHT: dict[str, Any] = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 8}


def light(cls: type[GemmKernel]) -> GemmKernel:
    """Return the stage with the settings that the page uses on a software adapter."""
    if issubclass(cls, CpuLanes):
        return cls(lanes=4)  # SwiftShader's subgroups
    if issubclass(cls, Subgroup):
        return cls(lanes=4, tm=4, tn=4)
    return cls(**LIGHT) if issubclass(cls, RegisterTiled) else cls()


def offered() -> list[type[GemmKernel]]:
    """Return the stages that the page can run, also of plugins: those with one dispatch and a grid of tiles."""
    problem = gemm(1, 1, 1)
    tiled = [
        cls for cls in STAGES[GemmKernel.op].values() if "at_most" in (cls().grid_rule(cls().general(problem)) or {})
    ]
    return [cls for cls in tiled if len(cls().dispatches) == 1]


def chosen(cls: type[GemmKernel]) -> list[GemmKernel]:
    """Return a stage with its default settings, the light ones, and those that `choose` may pick."""
    shipped = (tuned.kernel_of(record) for record in tuned.shipped())
    units = [MatrixUnit(**tiles) for tiles in UNIT_TILES] + [MatrixUnitF32(**tiles) for tiles in F32_UNIT_TILES]
    picked = [kernel for kernel in (*choose_gemm.GPU, *units, *cpu.ANY, *shipped) if type(kernel) is cls]
    return list(dict.fromkeys([cls(), light(cls), *picked]))


def configurations(cls: type[GemmKernel], device: Capabilities) -> list[GemmKernel]:
    """Return all kernels of a stage that the page offers on a device, the default and those of `choose` first.

    Those for matrix units come with each fragment shape that the device lists and that they fit, the likely fastest
    first; if it lists none, with their default.
    """
    default = cls().config
    candidates = {f.name: f.metadata["candidates"] for f in dataclasses.fields(cls)}
    shown, fixed = (UNITS_PICTURED, OF_DEVICE) if issubclass(cls, MatrixUnit) else (PICTURED, ())
    pictured = {
        name: [value for value in values if value <= LARGEST.get(name, value)]
        for name, values in candidates.items()
        if name in shown
    }
    settings = [dict(zip(pictured, values, strict=True)) for values in itertools.product(*pictured.values())]
    others = {name: values for name, values in candidates.items() if name not in (*shown, *fixed)}
    settings.extend({name: value} for name, values in others.items() for value in values)
    kernels = (cls(**_fitting({**default, **changes})) for changes in settings)
    possible = (kernel for kernel in kernels if kernel.invalid() is None and len(kernel.dispatches) == 1)
    small = [kernel for kernel in possible if kernel.invocations <= LARGEST_WORKGROUP]
    each = itertools.product(_fragments(cls, device), (*chosen(cls), *small))
    adapted = (dataclasses.replace(kernel, **fragment) for fragment, kernel in each)
    return list(dict.fromkeys(kernel for kernel in adapted if kernel.invalid() is None))


def _fragments(cls: type[GemmKernel], device: Capabilities) -> list[dict[str, int]]:
    """Return the tunables of each fragment shape that a stage can use on a device; [{}] if there are none."""
    shape = cls().matrix_shape
    shapes = device.fragments(shape.operands, shape.result) if shape else []
    lanes = device.subgroup_size or cls().subgroup
    settings = [{"fm": s.m, "fn": s.n, "fk": s.k, "lanes": lanes} for s in shapes]
    return [each for each in settings if cls(**each).invalid() is None] or [{}]


def _fitting(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with `unroll` limited to `bk`."""
    if "unroll" in settings:
        settings["unroll"] = min(settings["unroll"], settings["bk"])
    return settings
