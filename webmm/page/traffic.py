"""The memory traffic of a kernel in words, and its place under a device's roofline.

This module is in the translated subset (docs/page.md): records are JavaScript's there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webmm.kernels.base import Kernel
from webmm.kernels.traffic import moved
from webmm.learn.drawings.axes import Axes, Point, roofed, roofline
from webmm.learn.drawings.svg import Svg
from webmm.measure.records import Record
from webmm.page.labels import size_of
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm
from webmm.text import figures, nbytes

SPAN = 256  # of the axes, around the ridge, in FLOP per byte


def facts(kernel: Kernel[Any], problem: Problem) -> list[tuple[str, str]]:
    """Return what a kernel computes and moves for a problem."""
    counted = moved(kernel, problem)
    least, storage, workgroup = counted.least, counted.storage, counted.workgroup
    times = f"{figures(storage / least)} × the minimum" if storage > 1.005 * least else "the minimum"
    if workgroup is None:
        within = f"{nbytes(kernel.workgroup_bytes)} per workgroup"
    else:
        within = nbytes(workgroup) if workgroup else "none"
    return [
        ("Operations", f"{figures(counted.flops / 1e6)} MFLOP"),
        ("Storage buffers", f"{nbytes(storage)}, {times}"),
        ("Workgroup memory", within),
        ("FLOP per byte of storage", figures(intensity(kernel, problem))),
    ]


def intensity(kernel: Kernel[Any], problem: Problem) -> float:
    """Return a kernel's FLOP per byte of storage buffers."""
    counted = moved(kernel, problem)
    return counted.flops / counted.storage


def roof(gflops: float, gbytes: float) -> Axes:
    """Return the roofline of a device around its ridge, and a dot to be moved to a kernel's place."""
    ridge = gflops / gbytes
    across, up = (ridge / SPAN, ridge * SPAN), (gflops / SPAN, gflops * 2)
    axes = roofed(gflops, gbytes, across, up, "FLOP per byte of storage")
    axes.svg.dot("dot best", 0, 0, 6.5)
    return axes


def roofline_of(records: Sequence[Record], gflops: float, gbytes: float) -> Svg:
    """Return the roofline of a device with the kernels of records of floating-point matrix products."""
    points = []
    for r in records:
        if r.status == "ok":
            problem = gemm(r.m, r.n, r.k, dtype=r.dtype)
            words = f"{r.kernel} {size_of(r)}: {figures(r.gflops)} GFLOP/s"
            points.append(Point(r.kernel, problem.flops / problem.bytes, r.gflops or 0, words))
    return roofline(gflops, gbytes, points)


def place(name: str, intensity: float, gflops: float | None, reach: float) -> str:
    """Return a stage's place under the roofline in words; `reach` is the roofline at its FLOP per byte."""
    allowed = f"{figures(reach)} GFLOP/s if all traffic reaches memory"
    if gflops is None:
        words = f"the roofline allows {name} {allowed}"
    else:
        more = "; caches serve repeated reads" if gflops > reach else ""
        words = f"{name} reached {figures(gflops)} GFLOP/s; the roofline allows {allowed}{more}"
    return f"At {figures(intensity)} FLOP per byte, {words}."
