"""Drawings of invocations: how a grid is divided, the lines of memory that a subgroup reads, and banks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from webmm.kernels.base import Kernel
from webmm.learn.addresses import accesses, names_for, tile_of
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg
from webmm.learn.kernels import problem_for
from webmm.wgsl.render import render

WIDTH = 340.0
LANES = 32  # of a subgroup, as on the H200
LINE = 128  # bytes of a cache line, as on the H200
BANKS, BANK = 32, 4  # banks of workgroup memory, and the bytes that each delivers per cycle
SIDE = 64  # rows and columns of the C that is divided
COLUMNS = 1024  # of the matrices whose lines are counted


@drawn
def hierarchy(kernel: Kernel[Any]) -> Svg:
    """Return C with its grid of workgroups, one of them with its subgroups, and one of these with its invocations."""
    rows, columns = kernel.grid.tile_m, kernel.grid.tile_n  # type: ignore[attr-defined]
    across, down, count = SIDE // columns, SIDE // rows, kernel.invocations
    alt = (
        f"C of {SIDE} by {SIDE} elements is a grid of {across * down} workgroups. A workgroup of {columns} by {rows} "
        f"invocations consists of {count // LANES} subgroups of {LANES}. An invocation computes one element."
    )
    svg, big, top = Svg(WIDTH, 246, alt), 144.0, 22.0
    svg.text(0, 13, f"grid of {across} × {down}")
    for i in range(across * down):
        x, y = i % across * big / across, top + i // across * big / down
        svg.rect("tile" if i == 1 else "faint", x, y, big / across - 2, big / down - 2)
    left = WIDTH - big
    svg.text(left, 13, f"workgroup of {columns} × {rows}")
    each = big * LANES / count
    for i in range(count // LANES):
        svg.rect("slab" if i == 0 else ("faint", "band")[i % 2], left, top + i * each, big, each)
    for i in range(1, columns):
        svg.line("line", left + i * big / columns, top, left + i * big / columns, top + big, 0.3)
    for i in range(1, rows):
        svg.line("line", left, top + i * big / rows, WIDTH, top + i * big / rows, 0.3)
    svg.rect("mine", left, top, big / columns, big / rows)
    for y0, y1 in ((top, top), (top + big / down - 2, top + big - 2)):
        svg.line("line", 2 * big / across - 2, y0, left, y1)
    lane, base = WIDTH / LANES, top + big + 38
    svg.text(0, base - 8, f"subgroup of {LANES} lanes, one instruction for all")
    for i in range(LANES):
        svg.rect("mine" if i == 0 else "slab", i * lane, base, lane - 1, 14)
    svg.text(0, base + 32, "an invocation: one element of C", css="small", kind="mine")
    return svg


def read_by_lanes(kernel: Kernel[Any], turned: bool = False) -> dict[str, list[int]]:
    """Return the bytes in A, B and C, in float32, that the lanes of the first subgroup access at k = 0.

    Rows have COLUMNS elements. `turned`: as if the text exchanged row and col.
    """
    wgsl = render(kernel, problem_for("gemm", str(COLUMNS)), "tint").wgsl
    at: dict[str, list[int]] = {"A": [], "B": [], "C": []}
    x = kernel.workgroup_size[0]
    for lane in range(LANES):
        local = {"local_index": lane, "local_x": lane % x, "local_y": lane // x}
        names = names_for(wgsl, workgroup_x=0, workgroup_y=0, grid_x=1, params_n=COLUMNS, params_m=COLUMNS, **local)
        row, col = (names["col"], names["row"]) if turned else (names["row"], names["col"])
        for name, element in (("A", row * COLUMNS), ("B", col), ("C", row * COLUMNS + col)):
            at[name].append(4 * element)
    return at


def lines_of(addresses: Sequence[int]) -> dict[int, set[int]]:
    """Return the cache lines that addresses are in, each with its elements of four bytes that are accessed."""
    lines: dict[int, set[int]] = {}
    for address in addresses:
        lines.setdefault(address // LINE, set()).add(address % LINE // 4)
    return lines


@drawn
def lines(*kernels: Kernel[Any]) -> Svg:
    """Return the cache lines of A, B and C that the first subgroup touches: of kernels, and of the last one turned."""
    panels = [(kernel.name, read_by_lanes(kernel)) for kernel in kernels]
    panels.append((f"{kernels[0].name} with row and col exchanged", read_by_lanes(kernels[0], turned=True)))
    told = []
    for name, at in panels:
        counts = ", ".join(f"{len(lines_of(at[x]))} of {x}" for x in at)
        told.append(f"{name}: {counts}")
    svg, y, cell = Svg(WIDTH, 0, f"Cache lines touched by a subgroup. {'; '.join(told)}."), 14.0, 7.0
    for name, at in panels:
        svg.text(0, y, name)
        y += 10
        for x, addresses in at.items():
            touched = lines_of(addresses)
            svg.text(0, y + 9, x, css="small")
            for i, used in enumerate(list(touched.values())[:4]):
                svg.rect("faint", 16, y + i * 8, LINE / 4 * cell, 6)
                for start, length in runs(used):
                    svg.rect("mine", 16 + start * cell, y + i * 8, length * cell - 0.5, 6)
            many = len(touched)
            words = f"{many} line" + "s" * (many > 1)
            svg.text(WIDTH, y + 9, words, anchor="end", css="small", kind="bad" if many > 4 else "text")
            if many > 4:
                svg.text(16, y + 41, f"… and {many - 4} more", css="small")
            y += 8 * min(many, 4) + (18 if many > 4 else 8)
        y += 20
    svg.height = y - 16
    return svg


def runs(numbers: set[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive numbers, each with its start and its length."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and sum(found[-1]) == number:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found


def words_in_banks(addresses: Sequence[int], nbytes: int) -> list[set[int]]:
    """Return, for each bank, the words of four bytes that accesses of `nbytes` at these addresses need of it."""
    banks: list[set[int]] = [set() for _ in range(BANKS)]
    for address in addresses:
        for word in range(address // BANK, (address + nbytes) // BANK):
            banks[word % BANKS].add(word)
    return banks


def cycles(addresses: Sequence[int], nbytes: int) -> int:
    """Return the cycles that the accesses take: the most words that are needed of one bank."""
    return max(len(words) for words in words_in_banks(addresses, nbytes))


def read_addresses(kernel: Any, adjacent: bool = False) -> list[int]:
    """Return the first byte of the vec4 of B's tile that each of eight neighbouring invocations reads, in row 0.

    `adjacent`: if each invocation had TN adjacent columns, instead of fours that are spread over the tile.
    """
    wgsl = render(kernel, problem_for("gemm", str(COLUMNS)), "tint").wgsl
    tile, indices = tile_of(wgsl, "b_tile"), next(accesses(wgsl, "b_tile", stores=False))
    if adjacent:
        indices = re.sub(r"\[lx[^\]]*\]", f"[lx * {kernel.tn // 4}u]", indices)
    return [tile.address(indices, names_for(wgsl, local_index=lane, kk=0)) for lane in range(8)]


def store_addresses(kernel: Any, dtype: str, swizzled: bool = True) -> tuple[list[int], int]:
    """Return the first byte that each lane of a subgroup stores to in A's tile, and the bytes of an element.

    The elements are those of the first store of a tile whose storage is contiguous along k. Not `swizzled`: as if the
    text did not permute the tile's vec4.
    """
    wgsl = render(kernel, problem_for("gemm", str(COLUMNS), dtype), "tint" if dtype == "float32" else "naga").wgsl
    tile, indices = tile_of(wgsl, "a_tile"), next(accesses(wgsl, "a_tile", stores=True))
    if not swizzled:
        indices = re.sub(r"\[\((.*?)\) \^ .*?\]", r"[\1]", indices)
    return [tile.address(indices, names_for(wgsl, local_index=lane)) for lane in range(LANES)], tile.element


Panel = tuple[str, list[int], int]


def _panels(alt: str, panels: Sequence[Panel], name: Callable[[int], str]) -> Svg:
    """Return a picture with a row for each lane and a column for each bank; marks where a lane accesses a bank."""
    y, cell, left = 14.0, 9.0, 50.0
    svg = Svg(WIDTH, 0, alt)
    for title, addresses, nbytes in panels:
        banks, high = words_in_banks(addresses, nbytes), 10.0 if len(addresses) == 8 else 5.0
        took = cycles(addresses, nbytes)
        svg.text(0, y, title)
        least = -(-len(addresses) * nbytes // (BANKS * BANK))
        svg.text(WIDTH, y, f"{took} cycle" + "s" * (took > 1), anchor="end", kind="bad" if took > least else "good")
        y += 8
        svg.rect("faint", left, y, BANKS * cell, len(addresses) * high)
        for lane, address in enumerate(addresses):
            if lane % max(1, len(addresses) // 8) == 0:
                svg.text(left - 6, y + lane * high + 9, name(lane), anchor="end", css="small")
            first = address // BANK
            kind = "bad" if max(len(banks[(first + i) % BANKS]) for i in range(nbytes // BANK)) > least else "slab"
            svg.rect(kind, left + first % BANKS * cell, y + lane * high, nbytes // BANK * cell - 1, high - 1)
        y += len(addresses) * high
        for bank in (0, 8, 16, 24, 31):
            svg.text(left + (bank + 0.5) * cell, y + 12, str(bank), anchor="middle", css="small")
        y += 36
    svg.text(left + BANKS * cell / 2, y - 10, "bank", anchor="middle", css="small")
    svg.height = y - 4
    return svg


@drawn
def bank_reads(kernel: Kernel[Any]) -> Svg:
    """Return the banks that eight neighbouring invocations need to read a vec4 of B's tile, adjacent and spread."""
    tn = kernel.config["tn"]
    panels = [
        (f"{tn} adjacent columns each", read_addresses(kernel, adjacent=True), 16),
        (f"fours of columns, as in {kernel.name}", read_addresses(kernel), 16),
    ]
    took = [cycles(at, nbytes) for _, at, nbytes in panels]
    alt = (
        f"Banks that eight invocations of {kernel.name} read a vec4 from: {took[0]} cycles if each had {tn} adjacent "
        f"columns, {took[1]} with fours that are spread over the tile."
    )
    return _panels(alt, panels, lambda lane: f"lx = {lane}")


@drawn
def bank_stores(kernel: Kernel[Any]) -> Svg:
    """Return the banks that a subgroup stores elements of float64 along k to, without and with the swizzle."""
    panels = []
    for title, swizzled in (("without the swizzle", False), ("with the swizzle", True)):
        addresses, nbytes = store_addresses(kernel, "float64", swizzled)
        panels.append((title, addresses, nbytes))
    took = [cycles(at, nbytes) for _, at, nbytes in panels]
    alt = (
        f"Banks that {LANES} invocations of {kernel.name} store a float64 each to: {took[0]} cycles without the "
        f"swizzle, {took[1]} with it."
    )
    return _panels(alt, panels, lambda lane: f"lane {lane}")
