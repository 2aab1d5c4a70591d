"""Drawings of a device: its memories, how many invocations fit, and how other subgroups hide a wait."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from webmm.choose.tables import shipped
from webmm.kernels.base import Kernel
from webmm.kernels.traffic import Traffic
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg
from webmm.learn.kernels import problem_for

WIDTH = 340.0
DEVICE = "nvidia-h200"  # the table of rates
SCHEDULERS = 4  # of a multiprocessor; each starts an instruction of one subgroup per cycle
# Bytes of a multiprocessor's cache with its workgroup memory, of the shared cache, and of the memory, from the vendor's
# documents that docs/learn/concepts/memories.md links.
L1, L2, MEMORY = 256 * 1024, 50e6, 141e9
WORD = 4


@dataclass(frozen=True)
class Memory:
    """A kind of memory of the device: its bytes in all, and 10⁹ bytes/s that it delivers."""

    name: str
    nbytes: float
    gbytes: float


def memories_of(device: str = DEVICE) -> list[Memory]:
    """Return the memories, the nearest first: rates of the nearest three follow from the clock, others were measured.

    Registers feed an FMA on each lane with three words per cycle, workgroup memory, or the cache in the same hardware,
    a subgroup with a word per lane.
    """
    table = shipped()[device]
    m, rates = table.machine, table.rates
    assert rates is not None
    per_us = m.multiprocessors * m.clock * WORD / 1e3  # 10⁹ bytes/s of one word per cycle and multiprocessor
    return [
        Memory("registers", m.multiprocessors * m.registers * WORD, 3 * m.lanes * per_us),
        Memory("workgroup memory", m.multiprocessors * m.workgroup_bytes, m.subgroup * per_us),
        Memory("multiprocessor's cache (L1)", m.multiprocessors * L1, m.subgroup * per_us),
        Memory("shared cache (L2)", L2, rates.cache_gbytes),
        Memory("the device's memory", MEMORY, rates.gbytes),
    ]


def amount(nbytes: float) -> str:
    """Return a number of bytes in words, with two or three figures."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.3g} B"


def speed_of(gbytes: float) -> str:
    """Return 10⁹ bytes/s in words."""
    return f"{gbytes / 1e3:.2g} TB/s" if gbytes < 1e5 else f"{gbytes / 1e3:.0f} TB/s"


@drawn
def memories() -> Svg:
    """Return the memories of the H200 with their sizes and rates, on logarithmic scales."""
    found = memories_of()
    told = "; ".join(f"{m.name}: {amount(m.nbytes)}, {speed_of(m.gbytes)}" for m in found)
    svg = Svg(WIDTH, 54 * len(found) + 22, f"The memories of an H200. {told}.")
    for i, memory in enumerate(found):
        y = 54 * i + 14
        svg.text(0, y, memory.name)
        for j, (kind, value, least, words) in enumerate(
            (
                ("slab", memory.nbytes, 1e6, amount(memory.nbytes)),
                ("mine", memory.gbytes, 100.0, speed_of(memory.gbytes)),
            )
        ):
            length = 48.0 * math.log10(value / least)
            svg.rect(kind, 0, y + 6 + 15 * j, length, 12)
            svg.text(length + 6, y + 16 + 15 * j, words, css="small")
    y = 54 * len(found) + 4
    svg.rect("slab", 0, y, 11, 11)
    svg.text(16, y + 10, "size", css="small")
    svg.rect("mine", 60, y, 11, 11)
    svg.text(76, y + 10, "bytes per second (both: a step is × 10)", css="small")
    for x in range(0, 340, 48):
        svg.line("line", x, 20, x, 54 * len(found) - 6, 0.3)
    return svg


def traffic_of(kernel: Kernel[Any], size: str = "4096") -> Traffic:
    """Return what a kernel counts of its work at a size."""
    count = kernel.traffic(problem_for("gemm", size))
    assert count is not None
    return count


def resident(count: Traffic, device: str = DEVICE) -> tuple[int, str]:
    """Return the invocations of a kernel that a multiprocessor holds at once, and what limits them."""
    m = shipped()[device].machine
    limits = {
        "the most invocations": m.invocations // count.invocations,
        "its registers": m.registers // (count.registers * count.invocations),
        "workgroups": m.workgroups,
    }
    if count.workgroup_bytes:
        limits["workgroup memory"] = m.workgroup_bytes // count.workgroup_bytes
    least = min(limits, key=lambda name: limits[name])
    return limits[least] * count.invocations, least


@drawn
def occupancy(*kernels: Kernel[Any]) -> Svg:
    """Return the invocations of each kernel that fit on a multiprocessor, of those that it can hold."""
    most, rows = shipped()[DEVICE].machine.invocations, []
    for kernel in kernels:
        count = traffic_of(kernel)
        rows.append((kernel.name, count.registers, *resident(count)))
    told = "; ".join(f"{name}: {fit} with {each} registers each" for name, each, fit, _ in rows)
    svg = Svg(WIDTH, 46 * len(rows) + 2, f"Invocations on a multiprocessor of at most {most}. {told}.")
    for i, (name, each, fit, limit) in enumerate(rows):
        y = 46 * i + 14
        svg.text(0, y, f"{name}, {each} registers")
        svg.text(WIDTH, y, f"{fit:,} of {most:,}", anchor="end")
        svg.rect("faint", 0, y + 6, WIDTH, 14)
        svg.rect("slab", 0, y + 6, WIDTH * fit / most, 14)
        svg.text(4, y + 17, f"limited by {limit}", css="small")
    return svg


def schedule(subgroups: int, wait: float, work: float, until: float) -> list[list[tuple[float, float]]]:
    """Return when each subgroup computes on one scheduler: it loads, waits, computes, and starts anew.

    The scheduler takes whichever is ready first; times are in cycles.
    """
    ready, now = [wait] * subgroups, 0.0
    spans: list[list[tuple[float, float]]] = [[] for _ in range(subgroups)]
    while now < until:
        first = min(range(subgroups), key=lambda i: (ready[i], i))
        start = max(now, ready[first])
        now = start + work
        spans[first].append((start, now))
        ready[first] = now + wait
    return spans


def busy(spans: list[list[tuple[float, float]]], start: float, until: float) -> float:
    """Return the part of the time between two moments in which the scheduler computes."""
    return sum(max(0.0, min(b, until) - max(a, start)) for each in spans for a, b in each) / (until - start)


def step_of(kernel: Kernel[Any]) -> tuple[float, float, int]:
    """Return the cycles of a step's wait and of its FMAs, and the subgroups that a scheduler has, on the H200.

    The wait is the least time of a step that was fitted to the times of products.
    """
    table, count = shipped()[DEVICE], traffic_of(kernel)
    wait = table.coefficients("gemm", "gemm.tiles")["latency"]
    return wait, count.fmas, max(1, resident(count)[0] // table.machine.subgroup // SCHEDULERS)


@drawn
def latency(kernel: Kernel[Any]) -> Svg:
    """Return how the steps of 1, 2 … subgroups of a kernel share a scheduler: they compute, or wait for memory."""
    wait, work, most = step_of(kernel)
    counts = [n for n in (1, 2, 4) if n <= most]
    span, top, told = 3 * (wait + work), 0.0, []
    svg, left, scale = Svg(WIDTH, 0, ""), 0.0, WIDTH / (3 * (wait + work))
    for n in counts:
        spans = schedule(n, wait, work, 40 * span)
        share = busy(spans, 20 * span, 40 * span)
        told.append(f"{n} subgroup{'s' * (n > 1)}: {share:.0%}")
        svg.text(left, top + 13, f"{n} subgroup" + "s" * (n > 1))
        svg.text(WIDTH, top + 13, f"{share:.0%} of the time", anchor="end", kind="good" if share > 0.9 else "bad")
        for i, each in enumerate(spans):
            y = top + 19 + 13 * i
            svg.rect("faint", left, y, WIDTH, 11)
            for start, end in each:
                if start < span:
                    svg.rect("slab", left + start * scale, y, (min(end, span) - start) * scale - 1, 11)
        top += 19 + 13 * n + 10
    svg.rect("slab", 0, top, 11, 11)
    svg.text(16, top + 10, f"computes, {work:,.0f} cycles", css="small")
    svg.rect("faint", 160, top, 11, 11)
    svg.text(176, top + 10, f"waits, {wait:,.0f} at least", css="small")
    svg.height = top + 14
    svg.alt = f"The part of the time in which a scheduler computes steps of {kernel.name}. {'; '.join(told)}."
    return svg
