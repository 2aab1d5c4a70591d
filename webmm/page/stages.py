"""The stages of products of floats that the page offers: in which configurations, for which specialisations.

A shader with boundary checks is right for aligned sizes, too, so the tiles that matter come in every specialisation and
the others in a few.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from webmm.choose import gemm as choose_gemm
from webmm.choose import tuned
from webmm.kernels import BEYOND, LADDER
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.subgroup import Subgroup

# Tunables whose every combination the page offers, and how large they grow there: what a picture of a tile can show, in
# a few megabytes. The others move one at a time from their default.
PICTURED = ("size", "tile", "bm", "bn", "bk", "tm", "tn", "wx", "wy", "lanes")
LARGEST = {"bk": 16, "tn": 8}
LARGEST_WORKGROUP = 1024  # invocations: the most that GPUs offer
UNITS_PICTURED = ("bm", "bn", "sm", "sn")  # those of the stage for matrix units, whose fragments are the adapter's

# Software adapters take up to a minute to compile large register tiles; there the page runs these in their place.
LIGHT: dict[str, Any] = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 8}

# Fragments that engines let shaders multiply, with the lanes of a subgroup: on GPUs of NVIDIA, of Intel, of Apple. What
# there is, is the adapter's to say: a page takes of its bundle what it finds there.
FRAGMENTS: tuple[dict[str, Any], ...] = (
    {"fm": 16, "fn": 16, "fk": 16, "lanes": 32},
    {"fm": 8, "fn": 16, "fk": 16, "lanes": 16},
    {"fm": 8, "fn": 8, "fk": 8, "lanes": 32},
)
SPELLINGS = ("current", "deprecated")


def light(cls: type[GemmKernel]) -> GemmKernel:
    """Return the configuration of a stage that the page runs on a software adapter."""
    if issubclass(cls, CpuLanes):
        return cls(lanes=4)  # SwiftShader's subgroups
    if issubclass(cls, Subgroup):
        return cls(lanes=4, tm=4, tn=4)
    return cls(**LIGHT) if issubclass(cls, RegisterTiled) else cls()


def offered() -> list[type[GemmKernel]]:
    """Return the stages that the page can run: those of one dispatch, whose grid it knows how to count."""
    every = (*LADDER, *BEYOND)
    return [cls for cls in every if len(cls().dispatches) == 1 and "at_most" in (cls().grid_rule() or {})]


def chosen(cls: type[GemmKernel]) -> list[GemmKernel]:
    """Return a stage's default, and what `choose` picks of it."""
    shipped = (tuned.kernel_of(record) for record in tuned.shipped())
    matrix = (MatrixUnit(**tiles) for tiles in choose_gemm.MATRIX_TILES)
    picked = [kernel for kernel in (*choose_gemm.GPU, *matrix, *choose_gemm.CPU, *shipped) if type(kernel) is cls]
    return list(dict.fromkeys([cls(), light(cls), *picked]))


def recommended(cls: type[GemmKernel]) -> list[GemmKernel]:
    """Return the configurations that are run without anyone asking.

    Of a stage for matrix units, these are what is chosen for every kind of fragments and in every spelling.
    """
    if not issubclass(cls, MatrixUnit):
        return chosen(cls)
    variants = [{**fragment, "spelling": spelling} for spelling in SPELLINGS for fragment in FRAGMENTS]
    kernels = (dataclasses.replace(kernel, **variant) for variant in variants for kernel in chosen(cls))
    return list(dict.fromkeys(kernel for kernel in kernels if kernel.invalid() is None))


def configurations(cls: type[GemmKernel]) -> list[GemmKernel]:
    """Return every configuration of a stage that the page offers, the recommended ones first."""
    default = cls().config
    candidates = {f.name: f.metadata["candidates"] for f in dataclasses.fields(cls)}
    shown, fixed = (UNITS_PICTURED, tuple(FRAGMENTS[0])) if issubclass(cls, MatrixUnit) else (PICTURED, ())
    pictured = {
        name: [value for value in values if value <= LARGEST.get(name, value)]
        for name, values in candidates.items()
        if name in shown
    }
    settings = [dict(zip(pictured, values, strict=True)) for values in itertools.product(*pictured.values())]
    alone = {name: values for name, values in candidates.items() if name not in (*shown, *fixed)}
    settings.extend({name: value} for name, values in alone.items() for value in values)
    kernels = (cls(**_fitting({**default, **changes})) for changes in settings)
    possible = (kernel for kernel in kernels if kernel.invalid() is None and len(kernel.dispatches) == 1)
    small = (kernel for kernel in possible if kernel.invocations <= LARGEST_WORKGROUP)
    return list(dict.fromkeys([*recommended(cls), *small]))


def _fitting(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the tunables with `unroll` no longer than the tile that it walks."""
    if "unroll" in settings:
        settings["unroll"] = min(settings["unroll"], settings["bk"])
    return settings
