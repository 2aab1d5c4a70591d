"""Charts of records: the roofline, and rounding errors."""

from __future__ import annotations

import json
import math
from typing import Any

from webmm.choose.tables import shipped
from webmm.kernels.base import Kernel
from webmm.learn.drawings import drawn
from webmm.learn.drawings.axes import Axes
from webmm.learn.drawings.svg import Svg
from webmm.learn.kernels import problem_for
from webmm.learn.numbers import COUNTED, RESULTS, best

WIDTH, HEIGHT = 340.0, 280.0
LADDER, SIZE, TABLE = "h200-f32", "4096", "nvidia-h200"


def _axes(svg: Svg, across: tuple[int, int], up: tuple[int, int], under: str, over: str) -> Axes:
    """Draw logarithmic axes over powers of ten."""
    axes = Axes(svg, (10.0 ** across[0], 10.0 ** across[1]), (10.0 ** up[0], 10.0 ** up[1]))
    axes.draw(under, over)
    return axes


def point(kernel: Kernel[Any]) -> tuple[float, float]:
    """Return the FLOP per byte that a stage loads, at its settings of the fastest record, and the recorded GFLOP/s."""
    record = best(f"gemm/{kernel.name}", LADDER, SIZE)
    assert record is not None
    assert record.gflops is not None
    problem = problem_for("gemm", SIZE)
    count = type(kernel)(**record.config).traffic(problem)
    assert count is not None
    return COUNTED["flop_per_byte"](count, problem), record.gflops


@drawn
def roofline(*kernels: Kernel[Any]) -> Svg:
    """Return stages under the roofs of the H200: bytes from memory, from the shared cache, and arithmetic."""
    rates = shipped()[TABLE].rates
    assert rates is not None
    points = [(kernel.name, *point(kernel)) for kernel in kernels]
    told = "; ".join(f"{name}: {x:.3g} FLOP per byte, {y:,.0f} GFLOP/s" for name, x, y in points)
    svg = Svg(WIDTH, HEIGHT, f"Roofline of an H200 with stages at {SIZE}³. {told}.")
    axes = _axes(svg, (-1, 3), (1, 5), "FLOP per byte that invocations load", "GFLOP/s")
    place, (_, _, _, bottom) = axes.place, axes.frame
    for i, (gbytes, kind, words) in enumerate(((rates.gbytes, "text", "memory"), (rates.cache_gbytes, "line", "L2"))):
        ridge = rates.gflops / gbytes
        svg.path(kind, [place(0.1, 0.1 * gbytes), place(ridge, rates.gflops), place(1000, rates.gflops)])
        svg.line(kind, 190, bottom - 28 + 16 * i, 206, bottom - 28 + 16 * i, 1.5)
        svg.text(211, bottom - 24 + 16 * i, f"{words}, {gbytes:,.0f} GB/s", css="small")
    for name, intensity, gflops in points:
        x, y = place(intensity, gflops)
        above = gflops > intensity * rates.cache_gbytes
        svg.dot("mine", x, y)
        if above:
            svg.text(x - 6, y - 4, name, anchor="end", css="small")
        else:
            svg.text(x + 6, y + (4 if name == points[-1][0] else 13), name, css="small")
    return svg


def errors(data: str, precision: str = "highest") -> list[tuple[int, float]]:
    """Return K and the largest recorded error, in units of 2⁻²⁴·(|A|·|B|), for a kind of operands."""
    records = json.loads((RESULTS / "h200-precision-errors.json").read_text())["records"]
    return [(r["k"], r["largest"]) for r in records if (r["data"], r["precision"]) == (data, precision)]


@drawn
def rounding() -> Svg:
    """Return the largest errors of products over K, the bound of all products, and the square root of K."""
    shown = {"positive": "mine", "signed": "slab"}
    told = []
    for data in shown:
        first, last = errors(data)[0], errors(data)[-1]
        told.append(f"{data} operands: {first[1]:.2g} at K = {first[0]:,}, {last[1]:.2g} at K = {last[0]:,}")
    svg = Svg(WIDTH, HEIGHT, f"Largest errors in units of 2⁻²⁴·(|A|·|B|). {'; '.join(told)}. The bound is 2·K.")
    place = _axes(svg, (2, 5), (0, 5), "K", "units of 2⁻²⁴·(|A|·|B|)").place
    ends = (128, 32_768)
    svg.path("bad", [place(k, 2 * k) for k in ends], 2)
    svg.path("line", [place(k, math.sqrt(k)) for k in ends])
    for words, kind, units in (("bound, 2·K", "bad", 2048.0), ("√K", "text", 32.0)):
        x, y = place(1024, units)
        svg.text(x, y - 8, words, anchor="end", kind=kind, css="small")
    for data, kind in shown.items():  # the larger errors first
        svg.path(kind, [place(k, e) for k, e in errors(data)], 2)
        for k, e in errors(data):
            svg.dot(kind, *place(k, e), 3)
        x, y = place(*errors(data)[-1])
        svg.text(x, y + (20 if data == "positive" else -8), data, anchor="end", css="small")
    return svg
