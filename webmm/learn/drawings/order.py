"""Drawings of order: of tiles on their way through C, and of invocations around barriers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.learn.addresses import names_for
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg
from webmm.learn.kernels import problem_for
from webmm.wgsl.render import render

WIDTH = 340.0
SIDE = 16_384  # rows and columns of the C whose tiles are numbered
RUNNING = STAGES["gemm"]["persistent"]().config["workgroups"]  # at once, as `persistent` starts them on an H200
ROWS = 16  # of tiles that are drawn


def tiles_of(kernel: Any, side: int, count: int) -> list[tuple[int, int]]:
    """Return the row and column, in tiles, of the first `count` tiles of a square C, in the order of the shader."""
    before, _, _ = render(kernel, problem_for("gemm", str(side)), "tint").wgsl.partition("let a_base")
    found = []
    for tile in range(count):
        names = names_for(before, workgroup_x=tile, workgroup_y=0, grid_x=1, params_m=side, params_n=side)
        found.append((names["row0"] // kernel.bm, names["col0"] // kernel.bn))
    return found


def needed(kernel: Any, tiles: Sequence[tuple[int, int]]) -> int:
    """Return the different elements of A and B that tiles of C need for each k."""
    rows, columns = ({tile[axis] for tile in tiles} for axis in (0, 1))
    return len(rows) * int(kernel.bm) + len(columns) * int(kernel.bn)


@drawn
def tile_order(kernel: Any) -> Svg:
    """Return which tiles of C run at the same time, numbered along rows and in groups of rows of tiles."""
    panels = [(group, dataclasses.replace(kernel, group=group)) for group in (1, kernel.group)]
    orders = [(group, tiles_of(each, SIDE, RUNNING), each) for group, each in panels]
    told = [f"group = {group}: {needed(each, order):,}" for group, order, each in orders]
    alt = f"The first {RUNNING} tiles of {SIDE} by {SIDE}. Elements of A and B for each k: {'; '.join(told)}."
    across = SIDE // kernel.bn
    one, high = WIDTH / across, 5.0
    svg, y = Svg(WIDTH, 0, alt), 14.0
    for group, order, each in orders:
        svg.text(0, y, f"group = {group}")
        svg.text(WIDTH, y, f"{needed(each, order):,} elements per k", anchor="end")
        svg.rect("faint", 0, y + 8, WIDTH, ROWS * high)
        for row in sorted({row for row, _ in order}):
            columns = [column for r, column in order if r == row]
            svg.rect("slab", 0, y + 8 + row * high, len(columns) * one, high - 0.5)
        path = [((c + 0.5) * one, y + 8 + (r + 0.5) * high) for r, c in order[: 3 * max(group, 4)]]
        svg.path("mine", path, 1)
        y += ROWS * high + 34
    svg.text(0, y - 14, f"{RUNNING} tiles that run at the same time; the first of them in order", css="small")
    svg.height = y - 8
    return svg


PHASES = {"store": "slab", "read": "tile"}  # what an invocation does with the tiles in workgroup memory
TIMES = ((3, 4), (5, 3), (4, 4), (7, 3))  # of the phases of four invocations, made up: they differ


def phases_of(kernel: Kernel[Any]) -> list[str]:
    """Return what an invocation does in a step along k, in the order of the shader: store, read, and the barriers."""
    wgsl = render(kernel, problem_for("gemm", "1024"), "tint").wgsl
    body = wgsl[wgsl.index("for (var k0") :]
    found = []
    for line in body.splitlines():
        if "workgroupBarrier()" in line:
            found.append("barrier")
        elif re.match(r"\s*\w_tile\[", line):
            found.append("store")
        elif re.search(r"= .*\w_tile\[", line):
            found.append("read")
    return [phase for i, phase in enumerate(found) if i == 0 or found[i - 1] != phase]


Span = tuple[str, float, float]


def timeline(phases: Sequence[str], steps: int = 2) -> list[list[Span]]:
    """Return when each of four invocations stores and reads, with the barriers of the phases."""
    now = [0.0] * len(TIMES)
    spans: list[list[Span]] = [[] for _ in TIMES]
    for step in range(steps):
        for phase in phases:
            if phase == "barrier":
                now = [max(now)] * len(now)
                continue
            for i in range(len(TIMES)):
                took = TIMES[(i + step) % len(TIMES)][list(PHASES).index(phase)]
                spans[i].append((phase, now[i], now[i] + took))
                now[i] += took
    return spans


def early(spans: Sequence[Sequence[Span]]) -> list[tuple[int, float]]:
    """Return the invocations, with the moment, that read before all have stored, or store before all have read."""
    found = []
    for number in range(1, len(spans[0])):
        done = max(each[number - 1][2] for each in spans)
        found += [(i, each[number][1]) for i, each in enumerate(spans) if each[number][1] < done]
    return found


@drawn
def barriers(kernel: Kernel[Any]) -> Svg:
    """Return four invocations that store to tiles and read them, without the barriers of the shader and with them."""
    phases = phases_of(kernel)
    without = [phase for phase in phases if phase != "barrier"]
    panels = [("without barriers", timeline(without)), (f"with those of {kernel.name}", timeline(phases))]
    races = [len(early(spans)) for _, spans in panels]
    alt = f"Four invocations store and read tiles: {races[0]} times too early without barriers, {races[1]} with them."
    end = max(each[-1][2] for _, spans in panels for each in spans)
    svg, scale, y = Svg(WIDTH, 0, alt), WIDTH / end, 14.0
    for title, spans in panels:
        svg.text(0, y, title)
        count = len(early(spans))
        svg.text(WIDTH, y, f"{count or 'never'} too early", anchor="end", kind="bad" if count else "good")
        for i, each in enumerate(spans):
            for phase, start, stop in each:
                svg.rect(PHASES[phase], start * scale, y + 8 + 16 * i, (stop - start) * scale - 1, 14)
        for i, at in early(spans):
            svg.rect("bad", at * scale, y + 8 + 16 * i, 3, 14)
        if not count:
            ends = {max(each[n][2] for each in spans) for n in range(len(spans[0]))}
            for at in ends:
                svg.line("text", at * scale - 0.5, y + 6, at * scale - 0.5, y + 8 + 64, 2)
        y += 98
    for x, kind, words in ((0, "slab", "stores to tiles"), (110, "tile", "reads tiles"), (200, "bad", "too early")):
        svg.rect(kind, x, y - 12, 11, 11)
        svg.text(x + 16, y - 2, words, css="small")
    svg.height = y + 4
    return svg
